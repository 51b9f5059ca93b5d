"""The shadow state, mutable: the same `View` as `preempt_spec.state.State`, changed in place by the same micro-events.

Running requests that decode steadily are not touched one by one: they form a cohort (`cohort`). Everything else melts
the request first and then works on plain numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from preempt_oracle.monitor.content import Held, range_holds, same, slot_holds
from preempt_oracle.monitor.members import Members
from preempt_oracle.monitor.memory import Host, Memory
from preempt_oracle.monitor.plan import Plan
from preempt_oracle.monitor.request import Req
from preempt_spec.events import DEVICE, HOST, Header, Limits
from preempt_spec.policies.policy import Policy
from preempt_spec.policies.visits import passes_over
from preempt_spec.state import needed_pages
from preempt_spec.view import HOLE, Copy, Cycle


class Shadow(Members):
    """See `preempt_spec.view.View` for the questions it answers."""

    def __init__(self, header: Header, policy: Policy) -> None:
        super().__init__()
        self.policy: Policy = policy
        self.limits: Limits = header.limits
        pool = {(p.tier, p.group): p for p in header.pools}
        self.groups = header.groups
        self.memory = []
        for g, group in enumerate(header.groups):
            here = pool[DEVICE, g]
            self.memory.append(Memory(group, here.total, here.reserved))
        self.host = [
            Host(group, pool[HOST, g].total if (HOST, g) in pool else 0) for g, group in enumerate(header.groups)
        ]
        self.pages = tuple(m.page for m in self.memory)
        # The short cuts know of growth one by one, and of a queue whose head is next.
        self.simple = len(self.memory) == 1 and self.memory[0].kind == "full" and not header.limits.drafts
        self.simple = self.simple and not passes_over(policy)
        # Made-up ids hold nothing worth remembering.
        self.looks = "blocks" in header.observes
        self.hosts = any(h.total for h in self.host)
        self.tracks = self.looks or ("copies" in header.observes and self.hosts)
        self.waiting: list[str] = []
        self.swapped: list[str] = []
        self.aborted: list[str] = []
        self.copies: dict[int, Copy] = {}
        self.carried: dict[int, list[Held]] = {}
        self.copied = False  # what one block holds may stand in others too
        self.loose: dict[tuple[int, int], int] = {}  # (group, block) given up -> frame that still writes it
        self.last_frame = -1
        self.stall = 0
        self.paused = False
        self.gated = False
        self.ahead = False  # a token that still flew was granted
        self.cycle: Cycle | None = None
        self.plan = Plan(-1, ())
        self.preemptions = 0
        self.recomputed = 0
        self.delivered = 0
        self.resumes = 0

    # -- the View -----------------------------------------------------------------------------------------------------

    def live(self) -> Collection[str]:
        """Ids of all live requests."""
        return self.requests.keys()

    def request(self, request: str) -> Req:
        """A live request. KeyError if it is not live."""
        return self.requests[request]

    def total(self, group: int) -> int:
        """Blocks that may be owned."""
        return self.memory[group].total - self.memory[group].reserved

    def reserved(self, group: int) -> int:
        """The engine's own blocks."""
        return self.memory[group].reserved

    def extent(self, group: int) -> int:
        """All blocks of the group."""
        return self.memory[group].total

    def free(self, group: int) -> int:
        """How many blocks may be handed out."""
        return self.memory[group].nfree

    def is_free(self, group: int, block: int) -> bool:
        """Whether this one may."""
        return self.memory[group].is_free(block)

    def free_ids(self, group: int) -> set[int]:
        """Blocks that may be handed out."""
        return self.memory[group].free_ids()

    def idle(self, group: int) -> int:
        """How many of the free blocks are findable."""
        m = self.memory[group]
        return sum([what is not None and m.is_free(b) for b, what in m.published.items()])

    def pinned(self, group: int, block: int) -> int:
        """Pins on this block."""
        return self.memory[group].pins.get(block, 0)

    def fence(self, group: int, block: int) -> int | None:
        """The frame this block's fence waits for."""
        return self.memory[group].fences.get(block)

    def arriving(self, group: int, block: int) -> bool:
        """Whether an unordered copy in flight fills this block: it is then not free, whoever owns it."""
        return block in self.memory[group].filling

    def loosed(self, group: int, block: int) -> int | None:
        """The frame that may still write this block for a request which gave it up while that frame flew."""
        return self.loose.get((group, block))

    def overdue(self) -> Sequence[tuple[int, int]]:
        """(block, frame) of each fence whose frame came back before this step."""
        fences = sorted(x for m in self.memory for x in m.fences.items())
        return [(b, f) for b, f in fences if f < self.plan.frame and f not in self.frames]

    def shared(self, group: int) -> Mapping[int, int]:
        """Holders of each block that has several."""
        return self.memory[group].shared()

    def owner(self, group: int, block: int) -> str:
        """Who holds the block."""
        m = self.memory[group]
        if not m.reserved <= block < m.total:
            return "the engine (reserved)"
        for r in self.requests.values():
            if block in r.tables[group]:
                return r.id
        if block in m.pins:
            return "a pin"
        return "a fence" if block in m.fences else "a copy" if block in m.filling else "nobody"

    def covered(self, request: str, start: int, upto: int) -> int:
        """How far a pass over [start, upto) finds this request's prefix in every slot it attends, in every group."""
        r = self.requests[request]
        for m, table in zip(self.memory, r.tables, strict=True):
            if m.kind != "recurrent":
                first = max(0, start + 1 - m.group.window) if m.kind == "sliding" else 0
                upto = self._covered(r, m, table, first, upto)
        return upto

    def _covered(self, r: Req, m: Memory, table: list[int], first: int, upto: int) -> int:
        page = m.page
        if self._all_held(m, table, r, first, upto):
            return upto
        for i in range(first // page, -(-upto // page)):
            lo, hi = max(first, i * page), min((i + 1) * page, upto)
            if i >= len(table) or table[i] == HOLE:
                return lo
            b = table[i]
            self._settle_owner(m, b)
            if not m.holds(b, r.tokens, r.salt, lo, hi):
                for p in range(lo, hi):
                    if not m.slot_holds(b, p - i * page, r.tokens, r.salt, p + 1):
                        return p
        return upto

    def _all_held(self, m: Memory, table: Sequence[int], r: Req, lo: int, hi: int) -> bool:
        """Whether each page of a table was written last in one go, for positions [lo, hi) of this stream.

        From the last page on, so that streams are compared once, and not page by page.
        """
        page, top, owners, tokens = m.page, m.top, m.owner, r.tokens
        last, equal = -(-hi // page), tokens
        if last > len(table):
            return False
        for i in range(last - 1, lo // page - 1, -1):
            b = table[i]
            if b == HOLE:
                return False
            owner = owners[b]
            if owner is not None and owner.steady:
                self.settle(owner)
            run = top[b]
            if run is None:
                return False
            written, salt, index, first, end = run
            upto = min(hi, (i + 1) * page)
            if index != i or first > max(lo, i * page) or end < upto or salt != r.salt:
                return False
            if written is not tokens and written is not equal:
                if not same(written, tokens, upto):
                    return False
                equal = written
        return True

    def carries(self, request: str, start: int) -> bool:
        """Whether the state of every recurrent group is this request's after `start` tokens."""
        r = self.requests[request]
        for m, table in zip(self.memory, r.tables, strict=True):
            if start and m.kind == "recurrent":
                last = table[-1] if table else HOLE
                if last == HOLE or not m.holds(last, r.tokens, r.salt, start - 1, start):
                    return False
        return True

    def _settle_owner(self, m: Memory, b: int) -> None:
        owner = m.owner[b]
        if owner is not None and owner.steady:
            self.settle(owner)

    def resident(self, request: str, upto: int, look: Sequence[Sequence[int]]) -> bool:
        """Whether best_hit is at least `upto`: first where it most likely is, then everywhere."""
        r, m = self.requests[request], self.memory[0]
        need = -(-upto // m.page)
        if len(self.memory) > 1 or m.kind != "full" or len(look[0]) < need or need * m.page > len(r.tokens):
            return self.best_hit(request) >= upto
        return self._all_held(m, look[0], r, 0, need * m.page) or self.best_hit(request) >= upto

    def best_hit(self, request: str) -> int:
        """Longest page-aligned prefix of which every group has (or this frame writes) what it takes to go on."""
        r = self.requests[request]
        for other in self.rows:
            if other.steady:
                self.settle(other)
        page, seen = max(self.pages), dict[tuple[int, int], bool]()
        upto = len(r.tokens) // page * page
        if self.simple or (len(self.memory) == 1 and self.memory[0].kind == "full"):
            m, n = self.memory[0], 0
            while n < upto and self._page_somewhere(m, r, n + page):
                n += page
            return n
        while upto and not all(self._resident(r, g, m, upto, seen) for g, m in enumerate(self.memory)):
            upto -= page
        return upto

    def _resident(self, r: Req, g: int, m: Memory, upto: int, seen: dict[tuple[int, int], bool]) -> bool:
        if m.kind == "recurrent":
            return any(m.holds(b, r.tokens, r.salt, upto - 1, upto) for b in range(m.total))
        first = max(0, upto + 1 - m.group.window) // m.page * m.page if m.kind == "sliding" else 0
        for end in range(first + m.page, upto + 1, m.page):
            if (g, end) not in seen:
                seen[g, end] = self._page_somewhere(m, r, end)
            if not seen[g, end]:
                return False
        return True

    def _page_somewhere(self, m: Memory, r: Req, end: int) -> bool:
        """Whether some block holds the page of that prefix, or a grant of this step writes it."""
        if any(m.holds(b, r.tokens, r.salt, end - m.page, end) for b in range(m.total) if m.top[b] is not None):
            return True
        for other, (start, tokens) in (*self.plan.granted.items(), *self.plan.pending.items()):
            o = self.requests[other]
            if start + tokens >= end and o.salt == r.salt and o.tokens[:end] == r.tokens[:end]:
                return True
        return False

    def holds_page(self, group: int, block: int) -> bool:
        """Whether a block is what it was published as."""
        m = self.memory[group]
        what = m.published.get(block)
        if what is None:
            return False
        self._settle_owner(m, block)
        tokens, salt, end = what
        return m.holds(block, tokens, salt, end - m.slots, end)

    def findable(self) -> bool:
        """Whether any block is published."""
        return any(what is not None for m in self.memory for what in m.published.values())

    def fingerprint(self) -> object:
        """All that decides what a scheduler without cache and hidden state does next, as a value; block ids apart."""
        requests = frozenset(
            (r.id, r.place, r.computed, len(r.tokens), r.placeholders, r.drafts) for r in self.requests.values()
        )
        free = tuple([m.nfree for m in self.memory])
        queues = (tuple(self.running), tuple(self.waiting), tuple(self.swapped))
        return (*queues, requests, free, len(self.frames))

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
            any(self.host_holds(request, g, b, page, upto) for b in h.blocks)
            for g, h in enumerate(self.host)
            for page in needed_pages(h.group, upto)
            if h.group.kind == "recurrent" or page >= start // h.slots
        )

    def host_holds(self, request: str, group: int, block: int, page: int, upto: int) -> bool:
        """Whether a host block holds page `page` of the request's prefix, as far as `upto` tokens go."""
        h, r = self.host[group], self.requests[request]
        held = h.blocks.get(block)
        if held is None:
            return False
        if h.group.kind == "recurrent":
            return slot_holds(held, 1, 0, r.tokens, r.salt, upto)
        window = h.group.window if h.group.kind == "sliding" else 0
        first = max(page * h.slots, upto + 1 - window) if window else page * h.slots
        return range_holds(held, h.slots, r.tokens, r.salt, first, min((page + 1) * h.slots, upto))

    def held(self, group: int, block: int) -> Held:
        """What a device block holds."""
        m = self.memory[group]
        self._settle_owner(m, block)
        return m.held(block)
