"""The acts of a step on the wire: objects with "act", mirroring the act classes of `preempt_spec.events`."""

from __future__ import annotations

from typing import TypeAlias

from .fields import Blocks, Cause, Copied, Count, Direction, GroupBlocks, Int64, Queue, RequestId, TaggedAct


class Demote(TaggedAct, frozen=True):
    """A running request becomes a victim."""

    request: RequestId
    after: Count = 0
    cause: Cause = "growth"
    beneficiaries: tuple[RequestId, ...] = ()
    resource: str = "blocks"
    need: Int64 | None = None
    supply: Int64 | None = None


class Release(TaggedAct, frozen=True):
    """A victim's memory goes back."""

    request: RequestId
    after: Count = 0
    blocks: GroupBlocks | None = None
    until: Count | None = None
    computed: Int64 | None = None
    drafts: Int64 | None = None
    kept: Count = 0


class Requeue(TaggedAct, frozen=True):
    """A victim re-enters a queue."""

    request: RequestId
    after: Count = 0
    queue: Queue = "waiting"
    index: Count | None = None
    known: Count | None = None


class Plan(TaggedAct, frozen=True):
    """A grant made and then taken back in the same step."""

    request: RequestId
    after: Count = 0
    start: Count = 0
    tokens: Count = 0
    blocks: GroupBlocks = ()


class Unplan(TaggedAct, frozen=True):
    """The engine takes a grant of this step back."""

    request: RequestId
    after: Count = 0
    tokens: Count = 0


class Skip(TaggedAct, frozen=True):
    """A request was looked at and passed over."""

    request: RequestId
    guard: str
    after: Count = 0


class Publish(TaggedAct, frozen=True):
    """Blocks become findable by prefix."""

    request: RequestId
    blocks: Blocks
    after: Count = 0
    group: Count = 0


class _BlocksAct(TaggedAct, frozen=True):
    blocks: Blocks
    after: Count = 0
    group: Count = 0


class Withdraw(_BlocksAct, frozen=True):
    """Blocks stop being findable."""


class Pin(_BlocksAct, frozen=True):
    """Somebody other than a table holds these blocks."""


class Unpin(_BlocksAct, frozen=True):
    """The pin is gone."""


class Unfence(_BlocksAct, frozen=True):
    """Fenced blocks become free."""


class Shed(TaggedAct, frozen=True):
    """Blocks leave a request's table because its sliding window has passed them."""

    request: RequestId
    blocks: Blocks
    after: Count = 0
    group: Count = 0


class Exchange(TaggedAct, frozen=True):
    """Blocks of a request's table give way to others of the same content."""

    request: RequestId
    blocks: Blocks
    instead: Blocks
    after: Count = 0
    group: Count = 0


class Swap(TaggedAct, frozen=True):
    """Blocks are copied between tiers, ordered before this step's frame: (source, destination, group) each."""

    request: RequestId
    direction: Direction
    blocks: Copied
    after: Count = 0


class Load(TaggedAct, frozen=True):
    """A waiting request gets blocks that asynchronous copies fill; or, if it `runs`, just those that it hits."""

    request: RequestId
    computed: Count
    blocks: GroupBlocks
    after: Count = 0
    hit: Count = 0
    runs: bool = False


class Evict(_BlocksAct, frozen=True):
    """Host blocks become free."""


Act: TypeAlias = (
    Demote
    | Release
    | Requeue
    | Plan
    | Unplan
    | Skip
    | Publish
    | Withdraw
    | Pin
    | Unpin
    | Unfence
    | Shed
    | Exchange
    | Swap
    | Load
    | Evict
)
