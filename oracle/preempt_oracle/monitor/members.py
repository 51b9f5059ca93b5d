"""The cohort: running requests that decode steadily, and share a clock.

While `steady`, a request's computed tokens are `base + clock`, and its KV writes are noted only when somebody could
look (`settle`). It is granted one token in each step, at most `limits.frames` of which fly: so it is in every frame in
flight that was dispatched since it joined, in the latest one at the least, and its placeholders are what its computed
tokens are ahead of its known ones.

A member whose last output flies has nothing to compute: it *rests* in the running queue, passed over by all steps,
until the output is back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from preempt_oracle.monitor.columns import Columns
from preempt_oracle.monitor.flight import Flight
from preempt_oracle.monitor.memory import Memory
from preempt_oracle.monitor.request import Req
from preempt_spec.view import HOLE, Fate, Place


class Members:
    """The part of the shadow state that the cohort's short cuts rest on."""

    memory: list[Memory]
    tracks: bool
    simple: bool  # one group of full attention, and no drafts: there may be a cohort

    def __init__(self) -> None:
        self.requests: dict[str, Req] = {}
        self.frames: dict[int, Flight] = {}
        self.running: list[str] = []
        self.rows: list[Req] = []  # the running queue as objects
        self.columns = Columns()  # unless stale: of all steady rows, and these come first, but for those who rest
        self.resting: list[Req] = []
        self.stale = False
        self.clock = 0
        self.ticked = 0  # 1 between a fast step's dispatch and its close: computed tokens are ahead of the marks
        self.back = (-1, -1)  # the latest frame that was delivered to the cohort as a whole, and its tick
        self.calendar: dict[int, list[Req]] = {}  # clock -> requests whose tables must grow by then, if `due` still is
        self.finals: dict[int, list[Req]] = {}  # clock -> requests whose last output flies by then, if `final` still is
        self.melted = 0  # how many times a running request was taken out of the cohort
        self.odd = False  # somebody may stand in running and in waiting: no short cut applies any more

    # -- its members' KV ----------------------------------------------------------------------------------------------

    def settle(self, r: Req) -> None:
        """Note the KV writes of a steady request up to now."""
        now = r.base + self.clock
        if r.noted != now:
            self.write(r, r.noted, now)
            r.noted = now

    def write(self, r: Req, start: int, end: int) -> None:
        """KV of positions [start, end) is written for r's prefix."""
        if not self.tracks:
            return
        for g, m in enumerate(self.memory):
            page, table, refs = m.page, r.tables[g], m.refs
            if m.kind == "recurrent":
                if table and table[-1] != HOLE and m.write(table[-1], r, end - 1, end - 1, end):
                    self._disturb(r, g, table[-1])
                continue
            first = start // page
            for i, b in enumerate(table[first : -(-end // page)], first):
                lo, hi = i * page, (i + 1) * page
                if b == HOLE:
                    continue
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
                self.doubt(other)

    def doubt(self, r: Req) -> None:
        """Look at its slots from now on."""
        r.suspect = True
        self.melt(r)

    # -- in and out ---------------------------------------------------------------------------------------------------

    def melt(self, r: Req) -> None:
        """Take a request out of the cohort."""
        if r.steady:
            if not self.stale:
                last = len(self.columns.ids) - 1
                if self.columns.ids[last] == r.id:
                    self.columns.drop(last)
                else:
                    self.stale = True
            self.melted += 1
            self._thaw(r)

    def _thaw(self, r: Req) -> None:
        self.settle(r)
        r.set_peak(r.base + self.clock - self.ticked)
        for flight in self.frames.values():
            if flight.tick > r.joined:
                flight.loose.append(r)
        r.freeze()

    def melt_all(self) -> None:
        """Everybody on plain numbers."""
        for r in self.rows:
            if r.steady:
                self._thaw(r)
        for r in self.resting:
            r.resting = False
        self.resting.clear()
        self.calendar.clear()
        self.finals.clear()
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
            if not self.odd:
                break  # it stood there once
        if r.resting:
            r.resting = False
            self.resting.remove(r)
        if r.steady:
            if not self.stale:
                columns.drop(columns.ids.index(r.id))
            self._thaw(r)

    def line_up(self, running: Sequence[str]) -> None:
        """Those who run stand in this order from now on."""
        if [*running] != self.running:
            self.running = [*running]
            self.rows = [self.requests[r] for r in running]
            self.stale = True

    def settle_in(self, requests: Iterable[Req]) -> None:
        """Who decodes steadily (again) goes into the cohort."""
        if not self.simple:
            return
        m, latest = self.memory[0], next(reversed(self.frames.values()), None)
        for r in requests:
            if r.steady or r.resting or r.place is not Place.RUNNING:
                continue
            if r.flies_last():
                r.resting = True
                self.resting.append(r)
                continue
            known = len(r.tokens) + r.placeholders
            if r.suspect or not r.plain or r.drafts or known != r.base + 1 or known >= r.limit or r.peak > r.base:
                continue
            if latest is not None and not ((due := latest.get(r.id)) and due.outputs == 1 and due.fate is Fate.LIVE):
                continue
            table = r.tables[0]
            room = len(table) * m.page
            tail = table[r.base // m.page] if r.base < room else None
            if room >= r.base and (tail is None or m.refs[tail] == 1) and r.reach <= max(r.base, len(r.tokens)):
                self._join(r)

    def _join(self, r: Req) -> None:
        """Into the cohort: it runs, one token ahead of its KV, in slots of its own."""
        r.noted = r.base
        r.base -= self.clock
        r.steady = True
        r.joined = self.clock
        self.schedule_growth(r)
        final = r.final = r.limit - 1 - r.base
        if (ends := self.finals.get(final)) is not None:
            ends.append(r)
        else:
            self.finals[final] = [r]
        if not self.stale:
            at = len(self.columns.ids) + len(self.resting)
            if at < len(self.rows) and self.rows[at] is r:
                self.columns.add(r.id, r.tokens, r.base)
            else:
                self.stale = True

    def schedule_growth(self, r: Req) -> None:
        """Note the clock at which the table is full."""
        at = r.due = len(r.tables[0]) * self.memory[0].page - r.base
        if (due := self.calendar.get(at)) is not None:
            due.append(r)
        else:
            self.calendar[at] = [r]

    def retire(self) -> None:
        """Members that have nothing to compute in the step to come rest, or, if no output flies, leave the cohort."""
        for r in self.finals.pop(self.clock, ()):
            if r.steady and r.final == self.clock:
                if not self.stale:
                    self.columns.drop(self.columns.ids.index(r.id))
                self.melted += 1
                self._thaw(r)
                if r.flies_last():
                    r.resting = True
                    self.resting.append(r)
                else:
                    self.stale = True

    def derive(self) -> None:
        """Make the columns anew. Who runs behind somebody outside the cohort cannot be in it."""
        columns, ahead = Columns(), True
        for r in self.rows:
            if r.resting:
                continue
            if r.steady and ahead:
                columns.add(r.id, r.tokens, r.base)
                continue
            ahead = False
            if r.steady:
                self._thaw(r)
        self.columns, self.stale = columns, False

    def tick(self, frame: int, flight: Flight | None) -> None:
        """The frame leaves: every member of the cohort is one token further."""
        self.calendar.pop(self.clock, None)
        self.clock += 1
        if flight is not None:
            self.frames[frame] = flight
