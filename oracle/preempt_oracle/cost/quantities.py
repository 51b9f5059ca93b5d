"""Quantities with units: `50GB/s`, `7.5 GiB/s`, `400Gbit/s`, `32KiB`, `5us`, `989TFLOP/s`, `4096`, `50%`; exact.

A quantity is a number and a unit, with or without spaces between them. The number is decimal (`7.5`, `1e3`) or a ratio
of whole numbers (`16384/3125`), so that every `Fraction` can be written down exactly and read again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Final, TypeAlias

from .errors import CostInputError, quoted
from .units import Dimension, belongs_to

_LONGEST: Final = 200  # characters
_DIGITS: Final = 90  # of one whole number
_EXPONENT: Final = 40  # 1e999999 would be an integer of a million digits
_NUMBER: Final = re.compile(
    r"(?P<whole>[0-9]+)?(?:\.(?P<part>[0-9]+))?(?:[eE](?P<exponent>[+-]?[0-9]+))?(?:/(?P<below>[0-9]+))?"
)

_Refusal: TypeAlias = Callable[[str], CostInputError]


def parse(text: str, dimension: Dimension, where: str, *, zero: bool = False, field: str = "") -> Fraction:
    """The quantity that `text` writes, in the base unit of `dimension` (B, B/s, s, FLOP/s, tokens, 1).

    `where` (an option, a file) and `field` are for the message. Raises CostInputError if it is no quantity of this
    dimension, out of its bounds, or zero without `zero`.
    """

    def refuse(reason: str) -> CostInputError:
        return CostInputError(where, field, f"{quoted(text)} {reason}, such as {dimension.example}")

    expected = f"{dimension.name} (units: {dimension.listed}) is expected"
    stripped = text.strip()
    if not stripped:
        raise CostInputError(where, field, f"is empty; {expected}, such as {dimension.example}")
    if len(stripped) > _LONGEST:
        raise refuse(f"is longer than {_LONGEST} characters; {expected}")
    sign, unsigned = ("-", stripped[1:]) if stripped[0] in "-\N{MINUS SIGN}" else ("", stripped.removeprefix("+"))
    value, unit = _number(unsigned.lstrip(), refuse_with=lambda reason: refuse(f"{reason}; {expected}"))
    if sign:
        raise refuse(f"is negative; {expected}")
    size = dimension.units.get(unit)
    if size is None:
        raise refuse(f"{_wrong_unit(unit, dimension)}; {expected}")
    value *= size
    _bounded(value, dimension, zero, refuse)
    return value


def _number(text: str, refuse_with: _Refusal) -> tuple[Fraction, str]:
    """The number at the start of `text`, and the unit behind it."""
    match = _NUMBER.match(text)
    assert match is not None  # everything in the pattern is optional
    whole, part, exponent, below = match.group("whole", "part", "exponent", "below")
    if whole is None and part is None:
        if text[:3].lower() in ("nan", "inf"):
            raise refuse_with("is not a finite number")
        if text and text[0].isdigit():
            raise refuse_with("has digits other than 0 to 9")
        raise refuse_with("does not start with a number")
    rest = text[match.end() :]
    if rest[:1] in (",", "_", ".") or (rest[:1].isdigit()):
        raise refuse_with("is not a number: write digits 0 to 9 without separators, and a point before decimals")
    if max(map(len, (whole or "", part or "", below or ""))) > _DIGITS:
        raise refuse_with(f"has more than {_DIGITS} digits")
    # int() of a long exponent is slow too: its length is looked at first.
    power = int(exponent) if exponent and len(exponent) <= 4 else (0 if not exponent else _EXPONENT + 1)
    if abs(power) > _EXPONENT:
        raise refuse_with(f"has an exponent beyond ±{_EXPONENT}")
    if below is not None and (part is not None or exponent is not None or not int(below)):
        raise refuse_with("is not a ratio of two whole numbers" if int(below) else "divides by zero")
    number = Fraction(int(f"{whole or ''}{part or ''}"), 10 ** len(part or "") * int(below or "1"))
    return number * Fraction(10) ** power, rest.strip()


def _wrong_unit(unit: str, dimension: Dimension) -> str:
    if not unit:
        return "has no unit"
    if hint := dimension.hints.get(unit):
        return f"is ambiguous: {hint}"
    if other := belongs_to(unit):
        return f"is {other.name}, not {dimension.name}"
    if alike := [known for known in dimension.units if known.lower() == unit.lower()]:
        return f"has the unit {quoted(unit)}: upper and lower case matter, {' or '.join(alike)}"
    return f"has an unknown unit {quoted(unit, 20)}"


def _bounded(value: Fraction, dimension: Dimension, zero: bool, refuse: _Refusal) -> None:
    if value == 0 and not zero:
        raise refuse(f"is zero; {dimension.name} must be greater")
    if dimension.whole and value.denominator != 1:
        raise refuse("is not whole")
    if value > dimension.most:
        raise refuse(f"is more than {exact(dimension.most, dimension)}")
    if 0 < value < dimension.least:
        raise refuse(f"is less than {exact(dimension.least, dimension)}")


def exact(value: Fraction, dimension: Dimension) -> str:
    """`value` as the shortest text that `parse` reads as exactly that value, with the largest unit that divides it."""
    # Without Greek letters and percent signs, which shells and files of other encodings spoil.
    symbols = [u.replace("\N{MICRO SIGN}", "u") for u in (*dimension.display, *dimension.binary) if u != "%"]
    units = {symbol: dimension.units[symbol] for symbol in symbols}
    dividing = [(size, unit) for unit, size in units.items() if value and (value / size).denominator == 1]
    size, unit = max(dividing) if dividing else (Fraction(1), dimension.base)
    return f"{value / size}{unit}"


def show(value: Fraction, dimension: Dimension, digits: int = 4) -> str:
    """`value` for people: about `digits` significant digits, in the unit of its size; `parse` reads it as that.

    A size that is a whole number of KiB … TiB is shown so, exactly. Tokens and counts are rounded to whole ones.
    """
    if dimension.whole:
        return str(round(value))
    for unit in reversed(dimension.binary):
        scaled = value / dimension.units[unit]
        if scaled.denominator == 1 and 0 < scaled < 10**digits:
            return f"{scaled}{unit}"
    shown = "0"
    for unit in dimension.display:
        shown = _rounded(value / dimension.units[unit], digits)
        # Judged after rounding: 999.96 GB/s is 1 TB/s, not 1000 GB/s.
        if Fraction(shown) < 1000 or unit == dimension.display[-1]:
            break
    return f"{shown}{unit}"


def _rounded(value: Fraction, digits: int) -> str:
    """`value` as a plain decimal of at most `digits` significant digits, half to even, no zeros at the end."""
    if value == 0:
        return "0"
    # The power of ten of the first digit: an estimate from the lengths, then the truth.
    power = len(str(value.numerator)) - len(str(value.denominator))
    power -= value < Fraction(10) ** power
    places = max(digits - 1 - power, 0)
    scaled = round(value * 10**places) if power < digits else round(value)
    text = str(scaled).rjust(places + 1, "0")
    whole, part = (text[:-places], text[-places:].rstrip("0")) if places else (text, "")
    return f"{whole}.{part}" if part else whole
