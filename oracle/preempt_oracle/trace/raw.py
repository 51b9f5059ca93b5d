"""Structs that a line is decoded from in part: where most of it is known already (`repeats`), or not yet (a header).

They stand apart from their users because those can be compiled, and msgspec's structs cannot.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Raw, Struct
from msgspec.json import Decoder

from . import wire
from .fields import VERSION, Blocks, Count, Int64, Record, Source
from .records import NOTHING_OBSERVED, Delta, Hit, Observed, Resumed, Sent
from .wire import Deliver, Step

NONE: Final = Raw(b"[]")
Deltas: TypeAlias = tuple[tuple[str, Count, Blocks], ...]  # what `Delta` holds, cheaper to make and to read


class RawStep(Step, frozen=True, tag="step"):
    """A step whose repeated arrays are left as bytes."""

    requests: Raw = NONE  # type: ignore[assignment]
    tokens: Raw = NONE  # type: ignore[assignment]


class RawDeliver(Deliver, frozen=True, tag="deliver"):
    """A delivery of a token each."""

    requests: Raw = NONE  # type: ignore[assignment]
    tokens: tuple[tuple[Int64], ...] = ()


class Rest(Record, frozen=True):
    """A step behind its `tokens`."""

    start: tuple[Count, ...] | None = None
    blocks: tuple[Delta, ...] = ()
    sent: tuple[Sent, ...] = ()
    resumed: tuple[Resumed, ...] = ()
    hits: tuple[Hit, ...] = ()
    drafts: tuple[Hit, ...] = ()
    acts: tuple[wire.Act, ...] = ()
    reason: str = ""
    observed: Observed = NOTHING_OBSERVED
    source: Source | None = None


class AnyVersion(Struct, gc=False):
    """What every version of a header has; a newer one may have fields unknown here, so the rest is not looked at."""

    event: str
    trace: int = VERSION


class Observes(Struct, gc=False):
    """The names as they stand in the line: a set would hide that one stands there twice."""

    observes: tuple[str, ...] = ()


_Other: TypeAlias = (
    wire.Header
    | wire.Arrive
    | wire.Reject
    | wire.Abort
    | wire.Finish
    | wire.Control
    | wire.CopyStart
    | wire.CopyDone
    | wire.EngineError
    | wire.Footer
)
LINE: Final[Decoder[RawStep | RawDeliver | _Other]] = Decoder(RawStep | RawDeliver | _Other)
REST: Final = Decoder(Rest)
IDS: Final = Decoder(tuple[str, ...])
COUNTS: Final = Decoder(tuple[Count, ...])
ANY_VERSION: Final = Decoder(AnyVersion)
OBSERVES: Final = Decoder(Observes)
DELTAS: Final = Decoder(Deltas)
TOKENS: Final = Decoder(tuple[Int64, ...])
