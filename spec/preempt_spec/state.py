"""The shadow state, pure: what an observer remembers of a scheduler. Frozen; every change makes a new state.

Its answers (the `View` the rules read) are derived from as little as possible, so that nothing here can disagree with
itself: references are counted from the tables, free blocks are what remains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from attrs import field, frozen

from preempt_spec.events import DEVICE, HOST, Group, Header, Limits
from preempt_spec.memory import Ahead, Memory, Slot, is_page
from preempt_spec.policies.policy import Policy
from preempt_spec.view import HOLE, Copy, Cycle, Due, Place

Tables = tuple[tuple[int, ...], ...]


@frozen
class Request:
    """A live request. Lengths in tokens; `tables` and `sent` hold block ids per group."""

    id: str
    prompt: int
    tokens: tuple[int, ...]
    max_tokens: int
    priority: int
    arrival: int
    salt: str
    tables: Tables
    sent: Tables
    place: Place = Place.WAITING
    computed: int = 0
    peak: int = 0
    goal: int = 0
    preempted: bool = False
    incarnation: int = 0
    placeholders: int = 0
    drafts: int = 0
    last: int = -1
    since: tuple[int, int] = (-1, 0)

    def prefix(self, upto: int) -> Slot:
        """What a slot at position upto - 1 must hold."""
        return (self.salt, self.tokens[:upto]) if upto <= len(self.tokens) else Ahead(self.id, upto)


@frozen
class Plan:
    """The step being planned: see `PlanView`. `incoming`: what swaps bring to (group, block) before the frame runs."""

    frame: int
    entered: tuple[str, ...]
    granted: Mapping[str, tuple[int, int]] = field(factory=dict)
    drafts: Mapping[str, int] = field(factory=dict)
    pending: Mapping[str, tuple[int, int]] = field(factory=dict)
    spent: int = 0
    spent_running: int = 0
    admitted: tuple[str, ...] = ()
    anew: int = 0
    swept: bool = False
    restored: tuple[str, ...] = ()
    torn: tuple[str, ...] = ()
    demoted: tuple[str, ...] = ()
    requeued: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(factory=dict)
    served: tuple[str, ...] = ()
    fenced: bool = False
    self_preempted: bool = False
    published: tuple[tuple[int, int], ...] = ()
    displaced: tuple[tuple[str, str], ...] = ()
    incoming: tuple[tuple[int, int, tuple[Slot, ...]], ...] = ()


@frozen
class State:
    """The shadow state between two micro-events."""

    policy: Policy
    limits: Limits
    memory: tuple[Memory, ...]
    host: tuple[Memory, ...] = ()
    requests: Mapping[str, Request] = field(factory=dict)
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    swapped: tuple[str, ...] = ()
    aborted: tuple[str, ...] = ()
    frames: Mapping[int, Mapping[str, Due]] = field(factory=dict)  # undelivered
    copies: Mapping[int, Copy] = field(factory=dict)
    carried: Mapping[int, tuple[tuple[Slot, ...], ...]] = field(factory=dict)  # per copy: what its sources held
    loose: Mapping[tuple[int, int], int] = field(factory=dict)  # (group, block) given up -> frame that still writes it
    last_frame: int = -1
    stall: int = 0
    paused: bool = False
    gated: bool = False
    ahead: bool = False
    preemptions: int = 0
    recomputed: int = 0
    delivered: int = 0
    cycle: Cycle | None = None
    plan: Plan = Plan(-1, ())

    # -- the View -----------------------------------------------------------------------------------------------------

    @property
    def groups(self) -> tuple[Group, ...]:
        """The KV-cache groups."""
        return tuple(m.group for m in self.memory)

    @property
    def pages(self) -> tuple[int, ...]:
        """Tokens per block, per group."""
        return tuple(m.page for m in self.memory)

    def live(self) -> Collection[str]:
        """Ids of all live requests."""
        return self.requests.keys()

    def request(self, request: str) -> Request:
        """A live request. KeyError if it is not live."""
        return self.requests[request]

    def total(self, group: int) -> int:
        """Blocks that may be owned."""
        return self.memory[group].total - self.memory[group].reserved

    def reserved(self, group: int) -> int:
        """Blocks that are never handed out: the lowest ids."""
        return self.memory[group].reserved

    def extent(self, group: int) -> int:
        """All blocks of the group."""
        return self.memory[group].total

    def _holders(self, group: int) -> Counter[int]:
        count = Counter(b for r in self.requests.values() for b in r.tables[group] if b != HOLE)
        for b, block in self.memory[group].blocks.items():
            if block.pins:
                count[b] += block.pins
        return count

    def free_ids(self, group: int) -> set[int]:
        """Blocks that may be handed out."""
        m = self.memory[group]
        fenced = {b for b, block in m.blocks.items() if block.fence is not None}
        return set(range(m.reserved, m.total)) - self._holders(group).keys() - fenced - self._filled(group)

    def _filled(self, group: int) -> set[int]:
        unordered = (c for c in self.copies.values() if c.direction == "in" and c.before is None)
        return {dst for c in unordered for _, dst, g in c.blocks if g == group}

    def arriving(self, group: int, block: int) -> bool:
        """Whether an unordered copy in flight fills this block: it is then not free, whoever owns it."""
        return block in self._filled(group)

    def loosed(self, group: int, block: int) -> int | None:
        """The frame that may still write this block for a request which gave it up while that frame flew."""
        return self.loose.get((group, block))

    def pinned(self, group: int, block: int) -> int:
        """Pins on this block."""
        return self.memory[group].block(block).pins

    def fence(self, group: int, block: int) -> int | None:
        """The frame this block's fence waits for."""
        return self.memory[group].block(block).fence

    def overdue(self) -> tuple[tuple[int, int], ...]:
        """(block, frame) of each fence whose frame came back before this step."""
        fences = ((b, x.fence) for m in self.memory for b, x in m.blocks.items() if x.fence is not None)
        return tuple((b, f) for b, f in sorted(fences) if f < self.plan.frame and f not in self.frames)

    def free(self, group: int) -> int:
        """How many may be handed out."""
        return len(self.free_ids(group))

    def is_free(self, group: int, block: int) -> bool:
        """Whether this one may."""
        return block in self.free_ids(group)

    def idle(self, group: int) -> int:
        """How many of the free blocks are findable."""
        free = self.free_ids(group)
        return sum(x.published is not None and b in free for b, x in self.memory[group].blocks.items())

    def shared(self, group: int) -> Mapping[int, int]:
        """Holders of each block that has several."""
        return {b: n for b, n in self._holders(group).items() if n > 1}

    def owner(self, group: int, block: int) -> str:
        """Who holds the block."""
        m = self.memory[group]
        if not m.reserved <= block < m.total:
            return "the engine (reserved)"
        for r in self.requests.values():
            if block in r.tables[group]:
                return r.id
        if m.block(block).pins:
            return "a pin"
        return "a fence" if m.block(block).fence is not None else "a copy" if self.arriving(group, block) else "nobody"

    def covered(self, request: str, start: int, upto: int) -> int:
        """How far a pass over [start, upto) finds this request's prefix in every slot it attends, in every group."""
        r = self.requests[request]
        for m, table in zip(self.memory, r.tables, strict=True):
            if m.group.kind == "recurrent":
                continue  # its state is there or not when the pass reads it: `Plan.torn`
            first = max(0, start + 1 - m.group.window) if m.group.kind == "sliding" else 0
            for p in range(first, upto):
                i, slot = divmod(p, m.page)
                if i >= len(table) or table[i] == HOLE or m.block(table[i]).slots[slot] != r.prefix(p + 1):
                    upto = p
                    break
        return upto

    def carries(self, request: str, start: int) -> bool:
        """Whether every recurrent group holds this request's state after `start` tokens."""
        r = self.requests[request]
        return start == 0 or all(
            t and m.block(t[-1]).slots[0] == r.prefix(start)
            for m, t in zip(self.memory, r.tables, strict=True)
            if m.group.kind == "recurrent"
        )

    def findable(self) -> bool:
        """Whether any block is published."""
        return any(b.published is not None for m in self.memory for b in m.blocks.values())

    def best_hit(self, request: str) -> int:
        """Longest page-aligned prefix of which every group has (or this frame writes) what it takes to go on."""
        r = self.requests[request]
        page = max(m.page for m in self.memory)
        upto = len(r.tokens) // page * page
        while upto and not all(self._resident(r, m, upto) for m in self.memory):
            upto -= page
        return upto

    def resident(self, request: str, upto: int, look: Sequence[Sequence[int]]) -> bool:
        """Whether best_hit is at least `upto`."""
        return self.best_hit(request) >= upto

    def _resident(self, r: Request, m: Memory, upto: int) -> bool:
        if m.group.kind == "recurrent":
            # The state of another pass is good only once that pass is dispatched: it is read before it is written.
            return any(b.slots[0] == r.prefix(upto) for b in m.blocks.values())
        full = {b.slots[-1] for b in m.blocks.values() if is_page(b, b.slots[-1])}
        # Pages that this very frame writes count: its layers write before they attend.
        for writer, (start, tokens) in (*self.plan.granted.items(), *self.plan.pending.items()):
            w = self.requests[writer]
            full |= {w.prefix(end) for end in range(m.page, start + tokens + 1, m.page)}
        first = max(0, upto + 1 - m.group.window) // m.page * m.page if m.group.kind == "sliding" else 0
        return all(r.prefix(end) in full for end in range(first + m.page, upto + 1, m.page))

    def holds_page(self, group: int, block: int) -> bool:
        """Whether a block is what it was published as."""
        b = self.memory[group].block(block)
        return is_page(b, b.published)

    def fingerprint(self) -> object:
        """What a scheduler without cache and hidden state decides by, block ids apart."""
        requests = frozenset(
            (r.id, r.place, r.computed, len(r.tokens), r.placeholders, r.drafts) for r in self.requests.values()
        )
        free = tuple(self.free(g) for g in range(len(self.memory)))
        return (self.running, self.waiting, self.swapped, requests, free, len(self.frames))

    # -- the host tier ------------------------------------------------------------------------------------------------

    def host_extent(self, group: int) -> int:
        """All host blocks of the group."""
        return self.host[group].total

    def host_free(self, group: int) -> int:
        """Host blocks not in use."""
        return self.host[group].total - len(self.host[group].blocks)

    def host_used(self, group: int, block: int) -> bool:
        """Whether a host block is in use."""
        return block in self.host[group].blocks

    def hosted(self, request: str, start: int, upto: int) -> bool:
        """Whether host blocks hold what it takes, from position `start` on, to go on after `upto` tokens."""
        return all(
            any(self.host_holds(request, g, b, page, upto) for b in m.blocks)
            for g, m in enumerate(self.host)
            for page in needed_pages(m.group, upto)
            if m.group.kind == "recurrent" or page >= start // m.page
        )

    def host_holds(self, request: str, group: int, block: int, page: int, upto: int) -> bool:
        """Whether a host block holds that page of the request's prefix."""
        m, r = self.host[group], self.requests[request]
        if block not in m.blocks:
            return False
        slots = m.block(block).slots
        if m.group.kind == "recurrent":
            return slots[0] == r.prefix(upto)
        window = m.group.window if m.group.kind == "sliding" else 0
        first = max(page * m.page, upto + 1 - window) if window else page * m.page
        last = min((page + 1) * m.page, upto)
        return all(slots[p - page * m.page] == r.prefix(p + 1) for p in range(first, last))


def needed_pages(group: Group, upto: int) -> range:
    """The pages of a request's table whose KV it takes to go on after `upto` tokens; one for a recurrent state."""
    if not upto:
        return range(0)
    if group.kind == "recurrent":
        return range(1)
    first = max(0, upto + 1 - group.window) // group.page_size if group.kind == "sliding" else 0
    return range(first, -(-upto // group.page_size))


def initial(header: Header, policy: Policy) -> State:
    """The state before the first event."""

    def tier(name: str) -> tuple[Memory, ...]:
        pools = {p.group: p for p in header.pools if p.tier == name}
        found = [(group, pools.get(g)) for g, group in enumerate(header.groups)]
        return tuple(Memory(group, pool.total if pool else 0, pool.reserved if pool else 0) for group, pool in found)

    return State(policy, header.limits, tier(DEVICE), tier(HOST))
