"""Acts: what happens inside one step, in real order.

`after` counts the grants of the step's parallel arrays that were made before the act; acts of equal `after` keep the
order of the list.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class Demote:
    """A running request becomes a victim. `need` and `supply` (blocks) are the engine's own figures, if seen.

    `beneficiaries`: who lacks what it gives up; one request, unless the policy makes room for several at once.
    What its flying frames still bring is stale from here on; the policy says by `cause` whether it is appended.
    """

    request: str
    after: int = 0
    cause: str = "growth"  # growth, admission, starvation, reset, pause
    beneficiaries: tuple[str, ...] = ()
    resource: str = "blocks"
    need: int | None = None
    supply: int | None = None


@frozen
class Release:
    """A victim's memory goes back. `blocks`: per group, what the allocator really took. `until`: a frame, if fenced.

    `kept`: tokens that still count as computed because the host tier holds their KV (a swap); 0: to be recomputed.
    """

    request: str
    after: int = 0
    blocks: tuple[tuple[int, ...], ...] | None = None
    until: int | None = None
    computed: int | None = None  # the engine's computed tokens afterwards
    drafts: int | None = None  # drafts the engine still holds afterwards
    kept: int = 0  # tokens


@frozen
class Requeue:
    """A victim re-enters a queue, `waiting` or `swapped`, at `index`, keeping `known` tokens (prompt and outputs)."""

    request: str
    after: int = 0
    queue: str = "waiting"
    index: int | None = None
    known: int | None = None


@frozen
class Plan:
    """A grant made and then taken back in the same step; grants that stand are in the step's arrays."""

    request: str
    after: int = 0
    start: int = 0
    tokens: int = 0
    blocks: tuple[tuple[int, ...], ...] = ()


@frozen
class Unplan:
    """The engine takes a grant of this step back."""

    request: str
    after: int = 0
    tokens: int = 0


@frozen
class Skip:
    """A request was looked at and passed over, for a reason the shadow state cannot see."""

    request: str
    guard: str
    after: int = 0


@frozen
class Publish:
    """Blocks become findable by prefix: they hold (or will, once this frame ran) `request`'s prefix."""

    request: str
    blocks: tuple[int, ...]
    after: int = 0
    group: int = 0


@frozen
class Withdraw:
    """Blocks stop being findable."""

    blocks: tuple[int, ...]
    after: int = 0
    group: int = 0


@frozen
class Pin:
    """Somebody other than a table holds these blocks (a transfer, a checkpoint)."""

    blocks: tuple[int, ...]
    after: int = 0
    group: int = 0


@frozen
class Unpin:
    """The pin is gone."""

    blocks: tuple[int, ...]
    after: int = 0
    group: int = 0


@frozen
class Unfence:
    """Fenced blocks become free: the passes that may still write them are over."""

    blocks: tuple[int, ...]
    after: int = 0
    group: int = 0


@frozen
class Shed:
    """Blocks leave a request's table because its sliding window has passed them; their places in it stay, empty."""

    request: str
    blocks: tuple[int, ...]
    after: int = 0
    group: int = 0


@frozen
class Exchange:
    """Blocks of a request's table give way to others that hold, or in this frame get, the same pages of its prefix.

    What was computed twice is kept once.
    `blocks` are given back; `instead`, in the same order, stand in their places. The worker is told of it like of any
    other change of a table.
    """

    request: str
    blocks: tuple[int, ...]
    instead: tuple[int, ...]
    after: int = 0
    group: int = 0


@frozen
class Swap:
    """Blocks are copied between tiers, ordered before this step's frame: (source, destination, group) each.

    `out`: device to host, `in`: host to device. Within a step, out-copies come before in-copies.
    """

    request: str
    direction: str
    blocks: tuple[tuple[int, int, int], ...]
    after: int = 0


@frozen
class Load:
    """A waiting request gets blocks that asynchronous copies fill; `computed` tokens count once they are there.

    It is in no queue that is served, and resumes by a grant once the copies are done. `runs`: nothing is copied, all
    of it is a local hit, and the request is among those who run at once, though this brings it no token.
    """

    request: str
    computed: int
    blocks: tuple[tuple[int, ...], ...]
    after: int = 0
    hit: int = 0  # tokens of a local prefix hit: the leading blocks, which nothing is copied into
    runs: bool = False


@frozen
class Evict:
    """Host blocks become free."""

    blocks: tuple[int, ...]
    after: int = 0
    group: int = 0


Act = (
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
