"""The shadow state, pure: what an observer remembers of a scheduler. Frozen; every change makes a new state.

Its answers (the `View` the rules read) are derived from as little as possible, so that nothing here can disagree with
itself: references are counted from the tables, free blocks are what remains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from attrs import evolve, field, frozen

from preempt_spec.events import DEVICE, Header, Limits
from preempt_spec.policies.policy import Policy
from preempt_spec.view import Place

Prefix = tuple[str, tuple[int, ...]]  # salt and every token up to and including a slot
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
    preempted: bool = False
    incarnation: int = 0

    def prefix(self, upto: int) -> Prefix:
        """What a slot at position upto - 1 must hold."""
        return (self.salt, self.tokens[:upto])


@frozen
class Block:
    """What is known of a block: per slot the prefix it was last written for; pins, a fence, the prefix published."""

    slots: tuple[Prefix | None, ...]
    pins: int = 0
    fence: int | None = None
    published: Prefix | None = None


@frozen
class Memory:
    """The blocks of one group on the device. Blocks never touched are not listed."""

    page: int
    total: int
    reserved: int
    blocks: Mapping[int, Block] = field(factory=dict)

    def block(self, b: int) -> Block:
        """The block, untouched ones included."""
        return self.blocks.get(b) or Block((None,) * self.page)

    def having(self, changed: Mapping[int, Block]) -> Memory:
        """With some blocks replaced."""
        return evolve(self, blocks={**self.blocks, **changed})


@frozen
class Plan:
    """The step being planned: see `PlanView`."""

    frame: int
    entered: tuple[str, ...]
    granted: Mapping[str, tuple[int, int]] = field(factory=dict)
    pending: Mapping[str, tuple[int, int]] = field(factory=dict)
    spent: int = 0
    spent_running: int = 0
    admitted: tuple[str, ...] = ()
    demoted: tuple[str, ...] = ()
    requeued: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(factory=dict)
    served: tuple[str, ...] = ()
    fenced: bool = False
    self_preempted: bool = False
    published: tuple[tuple[int, int], ...] = ()


@frozen
class State:
    """The shadow state between two micro-events."""

    policy: Policy
    limits: Limits
    memory: tuple[Memory, ...]
    requests: Mapping[str, Request] = field(factory=dict)
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    aborted: tuple[str, ...] = ()
    frames: Mapping[int, Mapping[str, bool]] = field(factory=dict)  # undelivered: request -> reached its end
    last_frame: int = -1
    stall: int = 0
    plan: Plan = Plan(-1, ())

    # -- the View -----------------------------------------------------------------------------------------------------

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

    def _holders(self, group: int) -> Counter[int]:
        count = Counter(b for r in self.requests.values() for b in r.tables[group])
        for b, block in self.memory[group].blocks.items():
            if block.pins:
                count[b] += block.pins
        return count

    def free_ids(self, group: int) -> set[int]:
        """Blocks that may be handed out."""
        m = self.memory[group]
        fenced = {b for b, block in m.blocks.items() if block.fence is not None}
        return set(range(m.reserved, m.total)) - self._holders(group).keys() - fenced

    def free(self, group: int) -> int:
        """How many may be handed out."""
        return len(self.free_ids(group))

    def is_free(self, group: int, block: int) -> bool:
        """Whether this one may."""
        return block in self.free_ids(group)

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
        return "a pin" if m.block(block).pins else "a fence" if m.block(block).fence is not None else "nobody"

    def covered(self, request: str, upto: int) -> int:
        """Leading slots that hold exactly this request's prefix, in every group."""
        r = self.requests[request]
        for p in range(upto):
            for m, table in zip(self.memory, r.tables, strict=True):
                i, slot = divmod(p, m.page)
                if i >= len(table) or m.block(table[i]).slots[slot] != r.prefix(p + 1):
                    return p
        return upto

    def best_hit(self, request: str) -> int:
        """Longest page-aligned prefix of which every group has (or this frame writes) each page in some block."""
        r = self.requests[request]
        return min(self._best(r, m) for m in self.memory)

    def resident(self, request: str, upto: int, look: Sequence[Sequence[int]]) -> bool:
        """Whether that much of the prefix is there."""
        return self.best_hit(request) >= upto

    def extent(self, group: int) -> int:
        """All blocks of the group."""
        return self.memory[group].total

    def _best(self, r: Request, m: Memory) -> int:
        full = {b.slots[-1] for b in m.blocks.values() if is_page(b, b.slots[-1])}
        # Pages that this very frame writes count: its layers write before they attend.
        for writer, (start, tokens) in (*self.plan.granted.items(), *self.plan.pending.items()):
            w = self.requests[writer]
            full |= {w.prefix(end) for end in range(m.page, start + tokens + 1, m.page)}
        n = 0
        while n + m.page <= len(r.tokens) and r.prefix(n + m.page) in full:
            n += m.page
        return n

    def holds_page(self, group: int, block: int) -> bool:
        """Whether a block is what it was published as."""
        b = self.memory[group].block(block)
        return is_page(b, b.published)


def is_page(block: Block, prefix: Prefix | None) -> bool:
    """Whether every slot holds its part of the page that ends `prefix`."""
    if prefix is None:
        return False
    salt, tokens = prefix
    first = len(tokens) - len(block.slots) + 1
    return all(slot == (salt, tokens[: first + i]) for i, slot in enumerate(block.slots))


def initial(header: Header, policy: Policy) -> State:
    """The state before the first event."""
    memory = []
    for g, group in enumerate(header.groups):
        pool = next(p for p in header.pools if p.group == g and p.tier == DEVICE)
        memory.append(Memory(group.page_size, pool.total, pool.reserved))
    return State(policy, header.limits, tuple(memory))
