"""Trace v1 on the wire: one msgspec struct per class of `preempt_spec.events`, same fields, order and defaults.

A line of a trace is a JSON object with "event"; an act is an object with "act"; the small records (Delta, Sent,
Resumed, Hit, Held, Refs) are JSON arrays in field order. A field at its default may be left out, an unknown field is an
error. Types are strict: 3.0 and true are not integers, integers fit 64 bits.

Two decisions about types:

* Sequences are tuples. They decode and compare as fast as lists here, are frozen, share one empty default, and have the
  type of the spec's own fields.
* Request ids are held to `ID_PATTERN` where they are rare (arrive, reject, abort, finish, acts). The pattern costs
  0.3 µs an id, more than all the rest of a grant, so the parallel arrays, the small records and the queues take any
  string: an id in them either arrived, and was checked then, or is unknown and refused by whoever judges the trace.

Figures the engine read off its own books (reference counts, free blocks, computed tokens of a victim, need and supply)
may be negative: a negative reference count is a violation to report, not a malformed trace.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec.json import Decoder, Encoder

from .acts import (
    Act,
    Demote,
    Evict,
    Exchange,
    Load,
    Pin,
    Plan,
    Publish,
    Release,
    Requeue,
    Shed,
    Skip,
    Swap,
    Unfence,
    Unpin,
    Unplan,
    Withdraw,
)
from .fields import (
    VERSION,
    Content,
    ControlKind,
    Copied,
    Count,
    Direction,
    Disposition,
    GroupBlocks,
    Int64,
    Origin,
    RequestId,
    Source,
    TaggedEvent,
    TaggedLine,
)
from .records import NOTHING_OBSERVED, Cached, Delta, Group, Held, Hit, Limits, Observed, Pool, Refs, Resumed, Sent

__all__ = [
    "DECODER",
    "ENCODER",
    "NOTHING_OBSERVED",
    "VERSION",
    "Abort",
    "Act",
    "Arrive",
    "Cached",
    "Control",
    "CopyDone",
    "CopyStart",
    "Deliver",
    "Delta",
    "Demote",
    "EngineError",
    "Event",
    "Evict",
    "Exchange",
    "Finish",
    "Footer",
    "Group",
    "Header",
    "Held",
    "Hit",
    "Limits",
    "Line",
    "Load",
    "Observed",
    "Pin",
    "Plan",
    "Pool",
    "Publish",
    "Refs",
    "Reject",
    "Release",
    "Requeue",
    "Resumed",
    "Sent",
    "Shed",
    "Skip",
    "Source",
    "Step",
    "Swap",
    "Unfence",
    "Unpin",
    "Unplan",
    "Withdraw",
    "source_of",
]


class Header(TaggedLine, frozen=True):
    """The first line of a trace."""

    engine: str
    version: str
    policy: str
    limits: Limits
    groups: tuple[Group, ...] = (Group(),)
    pools: tuple[Pool, ...] = ()
    observes: frozenset[str] = frozenset()
    assumes: tuple[str, ...] = ()
    content: Content = "plain"
    trace: Count = VERSION


class Arrive(TaggedEvent, frozen=True):
    """A request enters the waiting queue."""

    request: RequestId
    prompt: tuple[Int64, ...]
    max_tokens: Count
    priority: Int64 = 0
    arrival: Int64 = 0
    salt: str = ""


class Reject(TaggedEvent, frozen=True):
    """The engine refuses a request that arrived."""

    request: RequestId
    reason: str = ""


class Abort(TaggedEvent, frozen=True):
    """The user cancels a request."""

    request: RequestId
    reason: str = ""
    blocks: GroupBlocks | None = None
    observed: Observed = NOTHING_OBSERVED
    until: Count | None = None
    acts: tuple[Act, ...] = ()


class Finish(TaggedEvent, frozen=True):
    """The engine ends a request."""

    request: RequestId
    reason: str = "length"
    blocks: GroupBlocks | None = None
    until: Count | None = None


class Control(TaggedEvent, frozen=True):
    """The operator acts on the scheduler between steps."""

    kind: ControlKind
    acts: tuple[Act, ...] = ()


class Step(TaggedEvent, frozen=True):
    """One scheduling decision, dispatched as `frame`; `requests`, `tokens` and `start` are parallel."""

    frame: Count
    requests: tuple[str, ...] = ()
    tokens: tuple[Count, ...] = ()
    start: tuple[Count, ...] | None = None
    blocks: tuple[Delta, ...] = ()
    sent: tuple[Sent, ...] = ()
    resumed: tuple[Resumed, ...] = ()
    hits: tuple[Hit, ...] = ()
    drafts: tuple[Hit, ...] = ()
    acts: tuple[Act, ...] = ()
    reason: str = ""
    observed: Observed = NOTHING_OBSERVED


class Deliver(TaggedEvent, frozen=True):
    """A frame's outputs reach the scheduler; all arrays are parallel.

    `emitted` left out, in a trace whose header observes "emitted", says: read, and equal to `tokens`.
    """

    frame: Count
    requests: tuple[str, ...] = ()
    tokens: tuple[tuple[Int64, ...], ...] = ()
    accepted: tuple[Count, ...] | None = None
    disposition: tuple[Disposition, ...] | None = None
    emitted: tuple[tuple[Int64, ...], ...] | None = None
    proposed: tuple[Count, ...] | None = None
    acts: tuple[Act, ...] = ()


class CopyStart(TaggedEvent, frozen=True):
    """Blocks begin to move between tiers: (source, destination, group) each."""

    copy: Count
    direction: Direction
    blocks: Copied
    before: Count | None = None


class CopyDone(TaggedEvent, frozen=True):
    """A copy ended."""

    copy: Count
    ok: bool = True


class EngineError(TaggedEvent, frozen=True):
    """An exception raised while the engine was driven."""

    origin: Origin
    kind: str
    message: str = ""
    where: str = ""


class Footer(TaggedLine, frozen=True):
    """The last line: counts by which a cut-off trace is recognised. `lines` counts header and footer too.

    `lost`: at least so many events are missing behind it, since the recording stopped.
    """

    lines: Count
    steps: Count
    grants: Count
    preemptions: Count
    lost: Count = 0


Event: TypeAlias = Arrive | Reject | Abort | Finish | Control | Step | Deliver | CopyStart | CopyDone | EngineError
Line: TypeAlias = Header | Event | Footer

_DEFAULT_SOURCE: Final[dict[type[TaggedEvent], Source]] = {
    Arrive: "environment",
    Abort: "environment",
    Control: "environment",
    Step: "plan",
    Reject: "plan",
    Finish: "plan",
    EngineError: "plan",
    Deliver: "worker",
    CopyStart: "worker",
    CopyDone: "worker",
}

#: Decodes one line by type alone; `reader` adds duplicate keys and structure. Raises msgspec.DecodeError.
DECODER: Final[Decoder[Line]] = Decoder(Line)
#: Encodes one line, sets in sorted order, so that equal events give equal bytes.
ENCODER: Final = Encoder(order="deterministic")


def source_of(event: Event) -> Source:
    """Who caused `event`: as written in the line, else by its type."""
    return event.source or _DEFAULT_SOURCE[type(event)]
