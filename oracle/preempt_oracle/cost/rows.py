"""The rows of data/*.json as they are written: quantities with their units, unknown fields refused.

Every row has an id, the source of its numbers, and whether all of them were read there (`verified`) or some recalled.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from .facts import Count, Model

_FOLDER: Final = Path(__file__).parent / "data"
R = TypeVar("R")


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all rows have."""

    id: str
    aliases: tuple[str, ...] = ()
    source: str
    verified: bool
    note: str = ""


class ModelRow(Row, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model. The stated counts are what its makers say, rounded, for people; the exact ones follow from `facts`."""

    name: str
    stated_params: str = ""
    stated_active: str = ""
    facts: Model


class LinkRate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A bandwidth of the host link that somebody measured with pinned memory."""

    out: str = ""  # device to host, bytes/s
    back: str = ""  # host to device, bytes/s
    how: str
    source: str


class AcceleratorRow(Row, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An accelerator. Peaks are dense; the link's bandwidth is that of ONE direction on paper."""

    name: str
    bf16: str
    fp8: str = ""
    memory: str
    memory_bandwidth: str
    link: str
    link_bandwidth: str = ""
    measured: tuple[LinkRate, ...] = ()


class CopyRow(Row, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Effective bandwidth over the size of one copy. Points are (size, bandwidth); `error` is ± of each bandwidth."""

    setup: str
    error: str = ""
    out: tuple[tuple[str, str], ...] = ()
    back: tuple[tuple[str, str], ...] = ()


class RateRow(Row, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Bandwidth of whole transfers whose copies are of one size that the source does not state: no law follows."""

    setup: str
    copies: Count
    out: str
    back: str


class TimesRow(Row, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Times of requests by their length in tokens: computed, and loaded from a cache tier instead."""

    setup: str
    model: str
    accelerator: str
    tokens: tuple[Count, ...]
    compute: tuple[str, ...]
    load: tuple[str, ...]


class Curves(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """curves.json."""

    copies: tuple[CopyRow, ...]
    rates: tuple[RateRow, ...]
    times: tuple[TimesRow, ...]


def _decoded(name: str, kind: type[R]) -> R:
    return msgspec.json.decode((_FOLDER / name).read_bytes(), type=kind)


@cache
def model_rows() -> tuple[ModelRow, ...]:
    """models.json."""
    return _decoded("models.json", tuple[ModelRow, ...])


@cache
def accelerator_rows() -> tuple[AcceleratorRow, ...]:
    """accelerators.json."""
    return _decoded("accelerators.json", tuple[AcceleratorRow, ...])


@cache
def curve_rows() -> Curves:
    """curves.json."""
    return _decoded("curves.json", Curves)
