"""The cohort's short cuts: a step in which running requests decode steadily costs work only for what changes.

Nothing here decides whether a rule holds. A short cut is taken where comparing whole columns (ids, counts, starts)
proves that the clauses of every plain grant hold, and then only their exercise counts are added; whatever is not plain
goes through the clauses of the specification, one micro-event at a time, at its place in the order (`mixed`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import cast

from preempt_oracle.monitor.books import Books
from preempt_oracle.monitor.change import forget, rejoin
from preempt_oracle.monitor.counts import Active, Ledger, counts
from preempt_oracle.monitor.growth import grow
from preempt_oracle.monitor.mixed import Mixed
from preempt_oracle.monitor.plan import Flight
from preempt_oracle.monitor.shadow import Shadow
from preempt_oracle.trace import wire
from preempt_spec import events as ev
from preempt_spec.rules import Violation
from preempt_spec.system import judge


class Cohort:
    """Fast steps and deliveries over a shadow. `step` and `deliver` answer None where no short cut applies."""

    def __init__(self, shadow: Shadow, active: Active, count: Counter[str]) -> None:
        self.s, self.count = shadow, count
        self.counts, self.ledger = counts(active), Ledger()
        self.books = Books(shadow, self.counts, self.ledger)
        self.mixed = Mixed(shadow, active, count, self.counts, self.ledger, self.books)
        self.judges_streams = any(rule == "output/stream" for rule, _ in active.get(ev.Deliver, ()))

    def flush(self) -> None:
        """Bring the exercise counts up to date."""
        self.ledger.flush(self.counts, self.count)

    # -- a step ------------------------------------------------------------------------------------------------------

    def step(self, e: wire.Step) -> list[Violation] | None:
        """Judge and apply a step whose grants begin with the cohort in order, this step's victims left out."""
        s = self.s
        if len(s.memory) > 1 or s.frames or e.frame <= s.last_frame or not s.rows or s.odd:
            return None
        if s.stale:
            s.derive()
        start = s.columns.starts()
        if not e.acts and self._steady(e, start):
            done = self._decode(e)
            if done is not None:
                return done
        return self._mixed(e, start)

    def _mixed(self, e: wire.Step, start: tuple[int, ...]) -> list[Violation] | None:
        """Preemptions, admissions, chunks."""
        return self.mixed.step(e, start)

    def _steady(self, e: wire.Step, start: tuple[int, ...]) -> bool:
        """Everybody who runs is of the cohort and is granted one token where it stands."""
        c, requests, tokens, told = self.s.columns, e.requests, e.tokens, e.start
        if requests is not c.ids:
            if requests != c.ids:
                return False
            c.ids = requests  # the reader hands out one object as long as the array stays as it is
        if tokens is not c.ones:
            if tokens != c.ones:
                return False
            c.ones = tokens
        return (told is None or told == start) and len(requests) == len(self.s.rows)

    def _decode(self, e: wire.Step) -> list[Violation] | None:
        """Nothing but steady decoding and growing tables, and the engine's books agree."""
        s, n, k = self.s, self.ledger, len(e.requests)
        if k > s.limits.budget:
            return None
        grown = self.books.quiet(e)
        if grown is None:
            return None
        if grown:
            grow(s, grown)
        s.last_frame = e.frame
        s.tick(e.frame, Flight(e.requests, None, s.columns.streams, (), s.epoch))
        s.stall = 0
        n.plain += k
        n.grants += k
        n.entered += k
        n.growth += len(grown)
        n.moves += 1
        n.step += 1
        self.books.count_quiet(e)
        return []

    # -- a delivery --------------------------------------------------------------------------------------------------

    def deliver(self, e: wire.Deliver) -> list[Violation] | None:
        """Exactly the requests that are due get exactly one token each, and the engine appends just that."""
        s = self.s
        flight = s.frames.get(e.frame)
        if flight is None or e.disposition is not None or not self.judges_streams:
            return None
        if flight.ends is not None or flight.epoch != s.epoch:
            return None
        due = flight.ids
        if e.requests is not due and e.requests != due:
            return None
        if e.emitted is not None and e.emitted != e.tokens:
            return None
        try:
            tokens = [t for (t,) in e.tokens]
        except ValueError:
            return None  # somebody got more or fewer tokens than one
        streams: Sequence[list[int]] = flight.streams
        if len(tokens) != len(streams):
            return None
        # A loop in C: appending is most of what a delivery costs.
        deque(map(list.append, streams, tokens), maxlen=0)
        del s.frames[e.frame]
        self.count["output/stream"] += len(due)
        s.stall = 0
        if flight.loose:
            rejoin(s, flight.loose)
        return []

    # -- an end ------------------------------------------------------------------------------------------------------

    def finish(self, e: wire.Finish) -> list[Violation] | None:
        """A request ends, and gives back just the blocks it owned."""
        s = self.s
        if len(s.memory) > 1 or e.request not in s.requests or e.blocks is None:
            return None
        if not self.mixed.plain.returned(e.request, e.blocks):
            return None
        self.ledger.finished += 1
        broken = judge(s, cast(ev.Finish, e), self.counts.ending, self.count)
        if not broken:
            forget(s, e.request)
        return broken
