"""The shadow state, mutable: the same `View` as `preempt_spec.state.State`, changed in place by the same micro-events.

Running requests that decode steadily are not touched one by one. They form a cohort with a common clock: while
`steady`, a request's computed tokens are `base + clock`, and its KV writes are noted only when somebody could look
(`settle`). Everything else melts the request first and then works on plain numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from preempt_oracle.monitor.columns import Columns
from preempt_oracle.monitor.memory import Memory
from preempt_oracle.monitor.plan import Flight, Plan
from preempt_oracle.monitor.request import Req
from preempt_spec.events import DEVICE, Header, Limits
from preempt_spec.policies.policy import Policy
from preempt_spec.view import Place


class Shadow:
    """See `preempt_spec.view.View` for the questions it answers."""

    def __init__(self, header: Header, policy: Policy) -> None:
        self.policy: Policy = policy
        self.limits: Limits = header.limits
        pool = {p.group: p for p in header.pools if p.tier == DEVICE}
        self.memory = [
            Memory(group.page_size, pool[g].total, pool[g].reserved) for g, group in enumerate(header.groups)
        ]
        self.pages = tuple(m.page for m in self.memory)
        self.tracks = "blocks" in header.observes  # made-up ids hold nothing worth remembering
        self.requests: dict[str, Req] = {}
        self.running: list[str] = []
        self.waiting: list[str] = []
        self.aborted: list[str] = []
        self.frames: dict[int, Flight] = {}
        self.last_frame = -1
        self.stall = 0
        self.plan = Plan(-1, ())
        self.clock = 0
        self.ticked = 0  # 1 between a fast step's dispatch and its close: computed tokens are ahead of the marks
        self.calendar: dict[int, list[Req]] = {}  # clock -> requests whose tables must grow by then, if `due` still is
        self.rows: list[Req] = []  # the running queue as objects
        self.columns = Columns()  # unless stale: of all steady rows, and these come first in the queue
        self.stale = False
        self.melted = 0  # how many times a running request was taken out of the cohort
        self.odd = False  # somebody may stand in running and in waiting: no short cut applies any more
        self.epoch = 0  # how many requests were forgotten
        self.preemptions = 0
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

    def shared(self, group: int) -> Mapping[int, int]:
        """Holders of each block that has several."""
        return self.memory[group].shared()

    def owner(self, group: int, block: int) -> str:
        """Who holds the block."""
        m = self.memory[group]
        if block < m.reserved:
            return "the engine (reserved)"
        for r in self.requests.values():
            if block in r.tables[group]:
                return r.id
        return "a pin" if block in m.pins else "a fence" if block in m.fences else "nobody"

    def covered(self, request: str, upto: int) -> int:
        """Leading slots that hold exactly this request's prefix, in every group."""
        r = self.requests[request]
        return min(self._covered(r, m, r.tables[g], upto) for g, m in enumerate(self.memory))

    def _covered(self, r: Req, m: Memory, table: list[int], upto: int) -> int:
        page = m.page
        for i, first in enumerate(range(0, upto, page)):
            if i >= len(table):
                return first
            b = table[i]
            self._settle_owner(m, b)
            last = min(first + page, upto)
            if not m.page_holds(b, r.tokens, r.salt, first, last):
                for p in range(first, last):
                    if not m.slot_holds(b, p - first, r.tokens, r.salt, p + 1):
                        return p
        return upto

    def _settle_owner(self, m: Memory, b: int) -> None:
        owner = m.owner[b]
        if owner is not None and owner.steady:
            self.settle(owner)

    def resident(self, request: str, upto: int, look: Sequence[Sequence[int]]) -> bool:
        """Whether best_hit is at least `upto`: first where it most likely is, then everywhere."""
        r = self.requests[request]
        for g, m in enumerate(self.memory):
            need = -(-upto // m.page)
            if len(look[g]) < need or not all(self._page_at(m, look[g][i], r, i) for i in range(need)):
                return self.best_hit(request) >= upto
        return True

    def _page_at(self, m: Memory, b: int, r: Req, i: int) -> bool:
        self._settle_owner(m, b)
        return m.page_holds(b, r.tokens, r.salt, i * m.page, (i + 1) * m.page)

    def best_hit(self, request: str) -> int:
        """Longest page-aligned prefix resident in every group, pages this very frame writes included."""
        r = self.requests[request]
        for other in self.rows:
            if other.steady:
                self.settle(other)
        return min(self._best(r, m, g) for g, m in enumerate(self.memory))

    def _best(self, r: Req, m: Memory, g: int) -> int:
        n = 0
        while n + m.page <= len(r.tokens) and (
            any(m.page_holds(b, r.tokens, r.salt, n, n + m.page) for b in range(m.total))
            or self._planned(r, n + m.page)
        ):
            n += m.page
        return n

    def _planned(self, r: Req, upto: int) -> bool:
        """Whether a grant of this step writes that prefix."""
        for other, (start, tokens) in (*self.plan.granted.items(), *self.plan.pending.items()):
            o = self.requests[other]
            if start + tokens >= upto and o.salt == r.salt and o.tokens[:upto] == r.tokens[:upto]:
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
        return m.page_holds(block, tokens, salt, end - m.page, end)

    # -- the cohort ---------------------------------------------------------------------------------------------------

    def settle(self, r: Req) -> None:
        """Note the KV writes of a steady request up to now."""
        now = r.base + self.clock
        self.write(r, r.noted, now)
        r.noted = now

    def melt(self, r: Req) -> None:
        """Take a request out of the cohort."""
        if r.steady:
            if not self.stale:
                last = len(self.columns.ids) - 1
                if self.rows[last] is r:
                    self.columns.drop(last)
                else:
                    self.stale = True
            self.melted += 1
            self._thaw(r)

    def _thaw(self, r: Req) -> None:
        self.settle(r)
        now = r.base + self.clock
        r.set_peak(now - self.ticked)
        r.steady = False
        r.base = now

    def melt_all(self) -> None:
        """Everybody on plain numbers."""
        for r in self.rows:
            if r.steady:
                self._thaw(r)
        self.calendar.clear()
        self.stale = True

    def join(self, r: Req) -> None:
        """Into the cohort: it runs, one token ahead of its KV, in slots of its own."""
        r.noted = r.base
        r.base -= self.clock
        r.steady = True
        self.schedule_growth(r)
        if not self.stale:
            if self.rows[len(self.columns.ids)] is r:
                self.columns.add(r.id, r.tokens, r.base + self.clock)
            else:
                self.stale = True

    def leave(self, r: Req) -> None:
        """Out of the running queue."""
        rows, columns = self.rows, self.columns
        while r.place is Place.RUNNING or self.odd:
            try:
                i = rows.index(r)
            except ValueError:
                break
            del rows[i], self.running[i]
            if i < len(columns.ids):
                columns.drop(i)
            if not self.odd:
                break  # it stood there once
        if r.steady:
            self._thaw(r)

    def derive(self) -> None:
        """Make the columns anew. Who runs behind somebody outside the cohort cannot be in it."""
        columns = self.columns = Columns()
        for i, r in enumerate(self.rows):
            if r.steady and len(columns.ids) == i:
                columns.add(r.id, r.tokens, r.base + self.clock)
            elif r.steady:
                self._thaw(r)
        self.stale = False

    def tick(self, frame: int, flight: Flight | None) -> None:
        """The frame leaves: every member of the cohort is one token further."""
        self.calendar.pop(self.clock, None)
        self.clock += 1
        if flight is not None:
            self.frames[frame] = flight

    def schedule_growth(self, r: Req) -> None:
        """Note the clock at which the table is full."""
        at = r.due = len(r.tables[0]) * self.pages[0] - r.base
        if (due := self.calendar.get(at)) is not None:
            due.append(r)
        else:
            self.calendar[at] = [r]

    def write(self, r: Req, start: int, end: int) -> None:
        """KV of positions [start, end) is written for r's prefix."""
        if not self.tracks:
            return
        for g, m in enumerate(self.memory):
            page, table, refs = m.page, r.tables[g], m.refs
            first = start // page
            for i, b in enumerate(table[first : -(-end // page)], first):
                lo, hi = i * page, (i + 1) * page
                if start <= lo and hi <= end and refs[b] == 1:
                    m.fill(b, r, i, lo, hi)
                elif m.write(b, r, i, max(start, lo), min(end, hi)):
                    self._disturb(r, g, b)

    def _disturb(self, r: Req, g: int, b: int) -> None:
        """Somebody wrote into a block that others hold: from now on they are looked at slot by slot."""
        for other in self.requests.values():
            if other is r:
                r.suspect = r.suspect or r.tables[g].count(b) > 1
            elif b in other.tables[g] and not other.suspect:
                other.suspect = True
                self.melt(other)
