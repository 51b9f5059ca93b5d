"""The shadow state, mutable: the same `View` as `preempt_spec.state.State`, changed in place by the same micro-events.

Running requests that decode steadily are not touched one by one. They form a cohort with a common clock: while
`steady`, a request's computed tokens are `base + clock`, and its KV writes are noted only when somebody could look
(`settle`). Everything else melts the request first and then works on plain numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from preempt_oracle.monitor.memory import Memory
from preempt_spec.events import DEVICE, Header, Limits
from preempt_spec.policies.policy import Policy
from preempt_spec.view import Place


class Req:
    """A live request: see `RequestView`."""

    __slots__ = (
        "_peak", "arrival", "base", "due", "id", "incarnation", "max_tokens", "noted", "place", "plain", "preempted",
        "priority", "prompt", "salt", "sent", "shadow", "steady", "suspect", "tables", "tokens",
    )  # fmt: skip

    def __init__(self, shadow: Shadow, id: str, prompt: Sequence[int], groups: int) -> None:
        self.shadow, self.id, self.prompt, self.tokens = shadow, id, len(prompt), list(prompt)
        self.max_tokens = self.priority = self.arrival = self.incarnation = 0
        self.salt = ""
        self.place = Place.WAITING
        self.base = self._peak = self.noted = 0  # noted: positions whose KV writes are recorded in memory
        self.due = -1  # the clock at which its table must have grown
        self.steady = self.preempted = self.suspect = False
        self.plain = True  # its next slot is nobody else's
        self.tables: list[list[int]] = [[] for _ in range(groups)]
        self.sent: list[list[int]] = [[] for _ in range(groups)]

    @property
    def computed(self) -> int:
        """Tokens whose KV is resident."""
        return self.base + self.shadow.clock if self.steady else self.base

    @property
    def peak(self) -> int:
        """High-water mark of computed tokens before this step. A steady request is always at it."""
        return max(self._peak, self.computed - self.shadow.ticked) if self.steady else self._peak

    def set_peak(self, tokens: int) -> None:
        """Raise the high-water mark."""
        if tokens > self._peak:
            self._peak = tokens


class Granted(Mapping[str, tuple[int, int]]):
    """The standing grants of a step: those entered one by one, and [0, upto) of its parallel arrays, read on demand."""

    __slots__ = ("byhand", "ids", "merged", "start", "tokens", "upto")

    def __init__(self) -> None:
        self.byhand: dict[str, tuple[int, int]] = {}
        self.ids: Sequence[str] = ()
        self.tokens: Sequence[int] = ()
        self.start: Sequence[int] = ()
        self.merged = self.upto = 0

    def _all(self) -> dict[str, tuple[int, int]]:
        a, b = self.merged, self.upto
        if a < b:
            grants = zip(self.start[a:b], self.tokens[a:b], strict=True)
            self.byhand.update(zip(self.ids[a:b], grants, strict=True))
            self.merged = b
        return self.byhand

    def enter(self, request: str, start: int, tokens: int) -> None:
        """One more grant, by hand: behind all of the arrays that were looked at."""
        self._all()[request] = (start, tokens)

    def __getitem__(self, request: str) -> tuple[int, int]:
        if request in self.byhand:
            return self.byhand[request]
        try:
            i = self.ids.index(request, self.merged, self.upto)
        except ValueError:
            raise KeyError(request) from None
        return self.start[i], self.tokens[i]

    def __contains__(self, request: object) -> bool:
        return request in self.byhand or request in self.ids[self.merged : self.upto]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return self.upto - self.merged + len(self.byhand)


class Plan:
    """The step being planned: see `PlanView`."""

    __slots__ = (
        "admitted", "demoted", "entered", "fenced", "frame", "granted", "pending", "published", "requeued",
        "self_preempted", "served", "skipped", "spent", "spent_running",
    )  # fmt: skip

    def __init__(self, frame: int, entered: Sequence[str]) -> None:
        self.frame, self.entered = frame, entered
        self.granted = Granted()
        self.pending: dict[str, tuple[int, int]] = {}
        self.spent = self.spent_running = 0
        self.admitted: list[str] = []
        self.demoted: list[str] = []
        self.requeued: list[str] = []
        self.skipped: dict[str, str] = {}
        self.served: tuple[str, ...] = ()
        self.fenced = self.self_preempted = False
        self.published: list[tuple[int, int]] = []


class Flight(Mapping[str, bool]):
    """A frame in flight. `ends` None: every request of it reached the end of its known tokens.

    `streams` (token lists in the order of `ids`) and `loose` (those outside the cohort) serve the fast delivery; they
    are good as long as nobody was forgotten since (`epoch`).
    """

    __slots__ = ("ends", "epoch", "ids", "loose", "streams")

    def __init__(
        self,
        ids: Sequence[str],
        ends: dict[str, bool] | None,
        streams: Sequence[list[int]] = (),
        loose: Sequence[str] = (),
        epoch: int = -1,
    ) -> None:
        self.ids, self.ends, self.streams, self.loose, self.epoch = ids, ends, streams, loose, epoch

    def _all(self) -> dict[str, bool]:
        if self.ends is None:
            self.ends = dict.fromkeys(self.ids, True)
        return self.ends

    def __getitem__(self, request: str) -> bool:
        return self._all()[request]

    def __contains__(self, request: object) -> bool:
        return request in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self.ids)


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
        self.calendar: dict[int, set[str]] = {}  # clock -> steady requests whose tables must grow by then
        self.rows: list[Req] = []  # the running queue as objects
        self.epoch = 0  # how many requests were forgotten
        self.odd = False  # somebody may stand in running and in waiting: no short cut applies any more
        self.preemptions = 0
        self.resumes = 0
        self.stale = True  # what the cohort derived from `rows` must be derived anew

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
        now, noted = r.base + self.clock, r.noted
        if now > noted and self.tracks:
            m = self.memory[0]
            i = noted // m.page
            if now <= (i + 1) * m.page:  # within one page, nearly always
                b = r.tables[0][i]
                if m.write(b, r, i, noted, now):
                    self._disturb(r, 0, b)
            else:
                self.write(r, noted, now)
        r.noted = now

    def melt(self, r: Req) -> None:
        """Take a request out of the cohort."""
        if r.steady:
            self.settle(r)
            now = r.computed
            r.set_peak(now - self.ticked)
            if (due := self.calendar.get(r.due)) is not None:
                due.discard(r.id)
            r.steady = False
            r.base = now
            self.stale = True

    def melt_all(self) -> None:
        """Everybody on plain numbers."""
        for r in self.rows:
            self.melt(r)
        self.calendar.clear()

    def join(self, r: Req) -> None:
        """Into the cohort: it runs, one token ahead of its KV, in slots of its own."""
        r.noted = r.base
        r.base -= self.clock
        r.steady = True
        self.schedule_growth(r)
        self.stale = True

    def schedule_growth(self, r: Req) -> None:
        """Note the clock at which the table is full."""
        at = r.due = len(r.tables[0]) * self.pages[0] - r.base
        if (due := self.calendar.get(at)) is not None:
            due.add(r.id)
        else:
            self.calendar[at] = {r.id}

    def write(self, r: Req, start: int, end: int) -> None:
        """KV of positions [start, end) is written for r's prefix."""
        if not self.tracks:
            return
        for g, m in enumerate(self.memory):
            page, table = m.page, r.tables[g]
            first = start // page
            for i, b in enumerate(table[first : -(-end // page)], first):
                lo, hi = i * page, (i + 1) * page
                if m.write(b, r, i, start if start > lo else lo, end if end < hi else hi):
                    self._disturb(r, g, b)

    def _disturb(self, r: Req, g: int, b: int) -> None:
        """Somebody wrote into a block that others hold: from now on they are looked at slot by slot."""
        for other in self.requests.values():
            if other is r:
                r.suspect = r.suspect or r.tables[g].count(b) > 1
            elif b in other.tables[g] and not other.suspect:
                other.suspect = True
                self.melt(other)
