"""Models, accelerators and measured curves by name; an unknown name is refused with the nearest ones.

Names are compared without regard to case, and `_`, `/` and spaces count as `-`. The owner of a model may stand before
it: `meta-llama/Llama-3.1-8B` is `llama-3.1-8b`, unless there is a file or folder of that path: then that is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

from attrs import frozen

from preempt_spec.cost.shape import Architecture

from . import rows
from .architecture import architecture
from .curves import CopyCurve, from_row
from .errors import CostInputError, near, quoted
from .facts import Model
from .parameters import Parameters, count
from .quantities import parse
from .units import BANDWIDTH, BYTES, FLOP_RATE, SECONDS, Dimension


@frozen
class KnownModel:
    """A model, from the registry or from a config.json."""

    id: str  # of the registry, or the path of the file
    name: str
    source: str  # of the facts
    verified: bool  # whether all facts were read there
    note: str  # what is particular or left out; may be ""
    facts: Model

    @property
    def architecture(self) -> Architecture[Fraction]:
        """What the cost functions take; counts over all GPUs."""
        return architecture(self.facts)

    @property
    def parameters(self) -> Parameters:
        """Parameter counts."""
        return count(self.facts)

    @property
    def weight_width(self) -> Fraction:
        """Bytes per parameter as the weights are shipped, on average."""
        return self.parameters.weight_width(self.facts)


@frozen
class LinkRate:
    """A measured bandwidth of the host link, in bytes/s per direction; None: not measured in that direction."""

    out: Fraction | None  # device to host
    back: Fraction | None  # host to device
    how: str
    source: str


@frozen
class Accelerator:
    """A GPU or TPU. Peaks are dense, in FLOP/s; bandwidths in bytes/s."""

    id: str
    name: str
    source: str
    verified: bool
    note: str
    bf16_flops: Fraction
    fp8_flops: Fraction | None  # None: no faster than BF16
    memory_bytes: Fraction
    memory_bandwidth: Fraction
    link: str
    link_bandwidth: Fraction | None  # per direction, on paper; None: not known
    measured: tuple[LinkRate, ...]


@frozen
class RequestTimes:
    """Measured times of requests, in seconds by length in tokens."""

    id: str
    source: str
    verified: bool
    note: str
    setup: str
    model: str  # ids of the registry
    accelerator: str
    tokens: tuple[int, ...]
    compute: tuple[Fraction, ...]
    load: tuple[Fraction, ...]


@frozen
class TransferRate:
    """The measured bandwidth of one transfer of many copies of a size that is not stated, bytes/s per direction."""

    id: str
    source: str
    verified: bool
    note: str
    setup: str
    copies: int
    out: Fraction
    back: Fraction


class _Named(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def aliases(self) -> tuple[str, ...]: ...


T = TypeVar("T")


@cache
def models() -> tuple[KnownModel, ...]:
    """All models, in the order of the file."""
    return tuple(KnownModel(r.id, r.name, r.source, r.verified, r.note, r.facts) for r in rows.model_rows())


@cache
def accelerators() -> tuple[Accelerator, ...]:
    """All accelerators, in the order of the file."""
    return tuple(map(_accelerator, rows.accelerator_rows()))


@cache
def curves() -> tuple[CopyCurve, ...]:
    """All measured copy curves, in the order of the file."""
    return tuple(map(from_row, rows.curve_rows().copies))


def request_times() -> tuple[RequestTimes, ...]:
    """All measured request times."""
    return tuple(
        RequestTimes(
            r.id, r.source, r.verified, r.note, r.setup, r.model, r.accelerator, r.tokens,
            tuple(_stored(t, SECONDS, r.id) for t in r.compute), tuple(_stored(t, SECONDS, r.id) for t in r.load),
        )
        for r in rows.curve_rows().times
    )  # fmt: skip


def transfer_rates() -> tuple[TransferRate, ...]:
    """All measured transfer rates without a size per copy."""
    return tuple(
        TransferRate(
            r.id, r.source, r.verified, r.note, r.setup, r.copies,
            _stored(r.out, BANDWIDTH, r.id), _stored(r.back, BANDWIDTH, r.id),
        )
        for r in rows.curve_rows().rates
    )  # fmt: skip


def find_model(name: str, where: str = "--model") -> KnownModel:
    """The model of that name or alias; or, if `name` is a path of a file or folder, the one its config.json describes.

    Raises CostInputError that blames `where` (or the file) if there is none, or the file is no usable config.
    """
    if _is_path(name):
        from . import huggingface  # only for files: the command line is started for names mostly

        path = Path(name)
        folder = path if path.is_dir() else path.resolve().parent
        return KnownModel(name, folder.resolve().name, name, True, "", huggingface.read(path))
    return _find(name, models(), rows.model_rows(), where, "model, and no path of a config.json")


def find_accelerator(name: str, where: str = "--accelerator") -> Accelerator:
    """The accelerator of that name or alias. Raises CostInputError that blames `where`."""
    return _find(name, accelerators(), rows.accelerator_rows(), where, "accelerator")


def find_curve(name: str, where: str = "--curve") -> CopyCurve:
    """The measured curve of that name or alias. Raises CostInputError that blames `where`."""
    return _find(name, curves(), rows.curve_rows().copies, where, "curve")


def _is_path(name: str) -> bool:
    """Whether a file or folder is meant. A bare name of the registry is not, even if there is such a folder."""
    if "/" not in name and _spelled(name) in _names(rows.model_rows()):
        return False
    try:
        # Path("") would be the current folder.
        return name.endswith(".json") or (name != "" and Path(name).exists())
    except (OSError, ValueError):  # too long for a path, or with a NUL
        return False


def _find(name: str, values: Sequence[T], rows_: Sequence[_Named], where: str, what: str) -> T:
    names = _names(rows_)
    place = names.get(_spelled(name))
    if place is None:
        ids = [row.id for row in rows_]
        close = near(_spelled(name), list(names)) or f"; known: {', '.join(ids)}"
        raise CostInputError(where, "", f"{quoted(name)} is the name of no known {what}{close}")
    return values[place]


def _names(rows_: Iterable[_Named]) -> dict[str, int]:
    return {spelling: i for i, row in enumerate(rows_) for spelling in (row.id, *row.aliases)}


def _spelled(name: str) -> str:
    """A name as the files spell it."""
    return name[:200].strip().casefold().rpartition("/")[2].replace("_", "-").replace(" ", "-")


def _accelerator(r: rows.AcceleratorRow) -> Accelerator:
    return Accelerator(
        id=r.id,
        name=r.name,
        source=r.source,
        verified=r.verified,
        note=r.note,
        bf16_flops=_stored(r.bf16, FLOP_RATE, r.id),
        fp8_flops=_maybe(r.fp8, FLOP_RATE, r.id),
        memory_bytes=_stored(r.memory, BYTES, r.id),
        memory_bandwidth=_stored(r.memory_bandwidth, BANDWIDTH, r.id),
        link=r.link,
        link_bandwidth=_maybe(r.link_bandwidth, BANDWIDTH, r.id),
        measured=tuple(
            LinkRate(_maybe(m.out, BANDWIDTH, r.id), _maybe(m.back, BANDWIDTH, r.id), m.how, m.source)
            for m in r.measured
        ),
    )


def _stored(text: str, dimension: Dimension, row: str) -> Fraction:
    return parse(text, dimension, "registry", field=row)


def _maybe(text: str, dimension: Dimension, row: str) -> Fraction | None:
    return _stored(text, dimension, row) if text else None
