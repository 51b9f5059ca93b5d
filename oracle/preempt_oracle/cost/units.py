"""The dimensions of the cost model's inputs and the units of each. Symbols as in the SI and IEC 80000-13, plus FLOP.

kB is 1000 bytes and KiB 1024; b and bit are bits, B is a byte. What people write both ways (KB, K) is no unit here:
a factor of 1.024, or of 8, decides some of the answers.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from attrs import field, frozen

_SI: Final = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_IEC: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50}


def _si(symbol: str, size: Fraction = Fraction(1)) -> dict[str, Fraction]:
    return {prefix + symbol: size * 10**power for prefix, power in _SI.items()}


def _iec(symbol: str) -> dict[str, Fraction]:
    return {prefix + symbol: Fraction(2**power) for prefix, power in _IEC.items()}


@frozen(eq=False)
class Dimension:
    """A kind of quantity: what may be written, and between which bounds it means anything."""

    name: str  # with its article
    example: str
    base: str  # the symbol of the unit of size 1
    units: dict[str, Fraction]  # symbol -> size in the base unit
    listed: str  # the units for a message
    display: tuple[str, ...]  # for people, ascending; the base unit or a part of it first
    least: Fraction  # of what is not zero
    most: Fraction  # beyond any machine; also keeps floats far from infinity
    whole: bool = False
    binary: tuple[str, ...] = ()  # units preferred for what they divide
    hints: dict[str, str] = field(factory=dict)  # often written, and means two things or something else


_AMBIGUOUS_K: Final = "K is 1000 to some and 1024 to others; write"
_ONE: Final = Fraction(1)
_BIT: Final = Fraction(1, 8)
_MICRO: Final = Fraction(1, 10**6)

BYTES: Final = Dimension(
    name="a size",
    example="32KiB",
    base="B",
    units=_si("B") | _iec("B"),
    listed="B, kB, MB, GB, TB, KiB, MiB, GiB, TiB",
    display=("B", "kB", "MB", "GB", "TB", "PB"),
    binary=("KiB", "MiB", "GiB", "TiB"),
    least=_ONE,
    most=Fraction(10**18),
    hints={"KB": f"{_AMBIGUOUS_K} KiB (1024 bytes) or kB (1000)", "K": f"{_AMBIGUOUS_K} KiB or kB"},
)

BANDWIDTH: Final = Dimension(
    name="a bandwidth",
    example="50GB/s",
    base="B/s",
    units=_si("B/s") | _iec("B/s") | _si("bit/s", _BIT) | _si("b/s", _BIT) | _si("bps", _BIT),
    listed="B/s, MB/s, GB/s, TB/s, MiB/s, GiB/s, Mbit/s, Gbit/s",
    display=("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"),
    least=_ONE,
    most=Fraction(10**18),
    hints={"KB/s": f"{_AMBIGUOUS_K} KiB/s (1024 bytes) or kB/s (1000)"},
)

SECONDS: Final = Dimension(
    name="a time",
    example="5us",
    base="s",
    units={
        "s": _ONE,
        "ms": Fraction(1, 10**3),
        "us": _MICRO,
        "\N{MICRO SIGN}s": _MICRO,
        "\N{GREEK SMALL LETTER MU}s": _MICRO,
        "ns": Fraction(1, 10**9),
    },
    listed="s, ms, us, ns",
    display=("ns", "\N{MICRO SIGN}s", "ms", "s"),
    least=Fraction(1, 10**15),
    most=Fraction(10**9),
)

FLOP_RATE: Final = Dimension(
    name="a rate of computation",
    example="989TFLOP/s",
    base="FLOP/s",
    units=_si("FLOP/s") | _si("FLOPS"),
    listed="GFLOP/s, TFLOP/s, PFLOP/s",
    display=tuple(f"{prefix}FLOP/s" for prefix in _SI),
    least=_ONE,
    most=Fraction(10**21),
    hints={
        f"{prefix}{work}": f"{prefix}{work} may be work or a rate; write {prefix}FLOP/s"
        for prefix in "GTP"
        for work in ("FLOP", "FLOPs")
    },
)

TOKENS: Final = Dimension(
    name="a number of tokens",
    example="4096",
    base="",
    units={
        "": _ONE,
        "token": _ONE,
        "tokens": _ONE,
        "k": Fraction(10**3),
        "M": Fraction(10**6),
        "Ki": Fraction(2**10),
        "Mi": Fraction(2**20),
    },
    listed="none, k (1000), Ki (1024), M, Mi",
    display=("",),
    least=_ONE,
    most=Fraction(10**12),
    whole=True,
    hints={"K": f"{_AMBIGUOUS_K} k or Ki, or the number in full"},
)

COUNT: Final = Dimension(
    name="a whole number",
    example="4",
    base="",
    units={"": _ONE},
    listed="none",
    display=("",),
    least=_ONE,
    most=Fraction(10**9),
    whole=True,
)

SHARE: Final = Dimension(
    name="a share between 0 and 1",
    example="0.5 or 50%",
    base="",
    units={"": _ONE, "%": Fraction(1, 100)},
    listed="none or %",
    display=("%",),
    least=Fraction(1, 10**12),
    most=_ONE,
)

DIMENSIONS: Final = (BYTES, BANDWIDTH, SECONDS, FLOP_RATE, TOKENS, COUNT, SHARE)


def belongs_to(unit: str) -> Dimension | None:
    """The dimension of a unit, so that a size given for a bandwidth can be called one. "" belongs to none."""
    return next((d for d in DIMENSIONS if unit and unit in d.units), None)
