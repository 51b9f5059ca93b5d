"""The cohort's short cuts: a step in which running requests decode steadily costs work only for what changes.

Nothing here decides whether a rule holds. A short cut is taken where comparing whole columns (ids, counts, starts)
proves that the clauses of every plain grant hold, and then only their exercise counts are added; whatever is not plain
goes through the clauses of the specification, one micro-event at a time, at its place in the order (`mixed`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from preempt_oracle.monitor.books import Books
from preempt_oracle.monitor.change import change, forget, line_up_waiting
from preempt_oracle.monitor.counts import Active, Ledger, counts
from preempt_oracle.monitor.flight import Flight
from preempt_oracle.monitor.flying import tighten
from preempt_oracle.monitor.growth import grow
from preempt_oracle.monitor.labels import Labels, proved
from preempt_oracle.monitor.mixed import Mixed
from preempt_oracle.monitor.plan import Plan
from preempt_oracle.monitor.request import Req
from preempt_oracle.monitor.shadow import Shadow
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_oracle.trace.raw import Deltas, Rest
from preempt_oracle.trace.steady import SteadyDeliver, SteadyStep
from preempt_spec import events as ev
from preempt_spec.rules import Violation
from preempt_spec.system import admissible, judge
from preempt_spec.view import Fate

_NO_LABELS: tuple[int, int, Labels] = (0, 0, {})


class Cohort:
    """Fast steps, deliveries and ends over a shadow. All answer None, and have judged nothing, where none applies."""

    def __init__(self, shadow: Shadow, active: Active, count: Counter[str]) -> None:
        self.s, self.active, self.count = shadow, active, count
        self.counts, self.ledger = counts(active), Ledger()
        self.books = Books(shadow, self.counts, self.ledger)
        self.mixed = Mixed(shadow, active, count, self.counts, self.ledger, self.books)

    def flush(self) -> None:
        """Bring the exercise counts up to date."""
        self.ledger.flush(self.counts, self.count)

    # -- a step ------------------------------------------------------------------------------------------------------

    def step(self, e: wire.Step) -> list[Violation] | None:
        """Judge and apply a step whose grants begin with the cohort in order, this step's victims left out."""
        if not self._ready(e.frame, e.drafts):
            return None
        if self._steady(e):
            done = self._decode(e.frame, e.requests, e.start is not None, e, ())
            if done is not None:
                return done
        return self._mixed(e)

    def steady_step(self, e: SteadyStep) -> list[Violation] | None:
        """Judge and apply a step that lets the same requests go on as the step before it, where they were told."""
        s = self.s
        if not self._ready(e.frame, e.rest.drafts):
            return None
        c = s.columns
        if c.told != s.clock or e.requests is not c.ids or e.tokens is not c.ones or not self._all_run(e.requests):
            return None
        return self._decode(e.frame, e.requests, True, e.rest, e.grown)

    def _ready(self, frame: int, drafts: tuple[wire.Hit, ...]) -> bool:
        """Whether the cohort may go on with this frame; its columns are up to date then."""
        s = self.s
        if not s.simple or s.odd or not s.rows or s.paused or s.copies or drafts:
            return False
        if frame <= s.last_frame or len(s.frames) >= s.limits.frames:
            return False
        line_up_waiting(s)
        if s.clock in s.finals:
            s.retire()
        for r in s.resting:
            if not r.flies_last():
                return False  # its last output is back, and it was not ended
        if s.stale:
            s.derive()
        return True

    def _mixed(self, e: wire.Step) -> list[Violation] | None:
        """Preemptions, admissions, chunks."""
        return self.mixed.step(e)

    def _steady(self, e: wire.Step) -> bool:
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
        return (told is None or told == c.starts(self.s.clock)) and self._all_run(requests)

    def _all_run(self, requests: tuple[str, ...]) -> bool:
        return len(requests) == len(self.s.rows) - len(self.s.resting)

    def _decode(
        self, frame: int, requests: tuple[str, ...], told: bool, e: wire.Step | Rest, given: Deltas
    ) -> list[Violation] | None:
        """Nothing but steady decoding, growing tables and findable pages, and the engine's books agree.

        `told`: the starts are in the step, and were compared. `given`: growth that stands apart from `e`.
        """
        s, n, k = self.s, self.ledger, len(requests)
        if not k or k > s.limits.budget or s.plan.published:
            return None
        found = proved(s, e.acts) if e.acts else _NO_LABELS
        if found is None:
            return None
        grown = self.books.quiet(e, given)
        if grown is None:
            return None
        if grown:
            grow(s, grown)
        if e.acts:
            n.publishes += found[0]
            n.published += found[1]
            s.memory[0].published.update(found[2])
        s.last_frame = frame
        s.plan = Plan(frame, ())
        latest = next(reversed(s.frames), None)
        s.ahead = s.ahead or latest is not None  # the latest frame brings each of them a token
        c = s.columns
        s.tick(frame, Flight(requests, {}, c.streams, [], s.clock + 1, c.bases, latest))
        c.told = s.clock if told else -1
        s.stall = 0
        n.plain += k
        n.continued += k if told else 0
        n.grants += k
        n.entered += len(s.rows)
        n.growth += len(grown)
        n.moves += 1
        n.step += 1
        self.books.count_quiet(e, given)
        return []

    # -- a delivery --------------------------------------------------------------------------------------------------

    def deliver(self, e: wire.Deliver) -> list[Violation] | None:
        """The oldest frame: exactly the requests that are due get one token each, and the engine appends just that."""
        if e.disposition is not None or e.accepted is not None or e.proposed is not None:
            return None
        if e.emitted is not None and e.emitted != e.tokens:
            return None
        try:
            tokens = [t for (t,) in e.tokens]
        except ValueError:
            return None  # somebody got more or fewer tokens than one
        return self._deliver(e.frame, e.requests, tokens, e.acts)

    def steady_deliver(self, e: SteadyDeliver) -> list[Violation] | None:
        """The same, of a delivery of which that much is known."""
        return self._deliver(e.frame, e.requests, e.column, ())

    def _deliver(
        self, frame: int, requests: tuple[str, ...], tokens: Sequence[Any], acts: tuple[wire.Act, ...]
    ) -> list[Violation] | None:
        s = self.s
        flight = s.frames.get(frame)
        if flight is None or not flight.fast or next(iter(s.frames)) != frame:
            return None
        due = flight.owed
        if requests is not due and requests != due:
            return None
        streams: list[list[int]] = flight.streams
        if len(tokens) != len(streams):
            return None
        for r in flight.loose:
            if not r.steady and not self._fits(flight, r):
                return None
        for stream, token in zip(streams, tokens):  # noqa: B905 - of one length: looked at just now
            stream.append(token)  # not seen as an int when compiled: it would be made anew
        del s.frames[frame]
        if s.loose:
            tighten(s, frame)
        s.back = (frame, flight.tick)
        s.delivered += len(due)
        if due:
            s.stall, s.cycle = 0, None
        self.ledger.delivered += len(due)
        for r in flight.loose:
            r.brought(frame)
            if not r.steady and flight.own[r.id].fate is Fate.LIVE:
                r.promised(-1)
        if flight.loose and s.limits.frames == 1:
            s.settle_in(flight.loose)
        for act in map(to_spec, acts):
            assert isinstance(act, ev.Act)
            admissible(s, act)
            if broken := judge(s, act, self.active, self.count):
                return broken
            change(s, act)
        return []

    def _fits(self, flight: Flight, r: Req) -> bool:
        """A token for one outside the cohort is its next, and nothing was written for others in its place."""
        due = flight.own[r.id] = flight[r.id]
        known = len(r.tokens)
        if due.position != known or (due.after is not None and due.after != r.last):
            return False
        return known < r.limit and r.reach <= max(known, r.base if due.fate is Fate.LIVE else r.reach)

    # -- an end ------------------------------------------------------------------------------------------------------

    def finish(self, e: wire.Finish) -> list[Violation] | None:
        """A request ends, and gives back just the blocks it owned."""
        s = self.s
        if not s.simple or e.request not in s.requests or e.blocks is None or e.until is not None:
            return None
        if not self.mixed.plain.returned(e.request, e.blocks):
            return None
        self.ledger.finished += 1
        broken = judge(s, cast(ev.Finish, e), self.counts.ending, self.count)
        if not broken:
            forget(s, e.request, None)
            s.gated = False
        return broken
