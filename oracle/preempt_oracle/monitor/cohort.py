"""The cohort's short cuts: a step in which running requests decode steadily costs work only for what changes.

Nothing here decides whether a rule holds. A short cut is taken where comparing whole columns (ids, counts, starts)
proves that the clauses of every plain grant hold, and then only their exercise counts are added; whatever is not plain
goes through the clauses of the specification, one micro-event at a time, at its place in the order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from preempt_oracle.monitor.books import Books
from preempt_oracle.monitor.change import change, own, rejoin
from preempt_oracle.monitor.counts import counts
from preempt_oracle.monitor.shadow import Flight, Plan, Req, Shadow
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.rules import Violation
from preempt_spec.rules.rule import Clause
from preempt_spec.system import admissible, judge

Growth = dict[str, tuple[int, ...]]  # request -> blocks that join its table in this step


class Cohort:
    """Fast steps and deliveries over a shadow. `step` and `deliver` answer None where no short cut applies."""

    def __init__(
        self, shadow: Shadow, active: Mapping[type, tuple[tuple[str, Clause], ...]], count: Counter[str]
    ) -> None:
        self.s, self.active, self.count = shadow, active, count
        self.counts = counts(active)
        self.books = Books(shadow, self.counts, count)
        self.ids: tuple[str, ...] = ()  # the running queue, and columns over it
        self.ones: tuple[int, ...] = ()
        self.bases: list[int] = []
        self.streams: list[list[int]] = []
        self.rough: list[int] = []  # positions that are not in the cohort
        self.judges_streams = any(rule == "output/stream" for rule, _ in active.get(ev.Deliver, ()))

    # -- a step ------------------------------------------------------------------------------------------------------

    def step(self, e: wire.Step) -> list[Violation] | None:
        """Judge and apply a step whose grants begin with the running queue in order, this step's victims left out."""
        s = self.s
        if len(s.memory) > 1 or s.frames or e.frame <= s.last_frame or not s.rows or s.odd:
            return None
        if s.stale:
            self._derive(s.rows)
            s.stale = False
        victims: set[str] | None = None
        if e.acts:
            victims = {a.request for a in e.acts if type(a) is wire.Demote}
            if any(type(a) is wire.Requeue and a.request not in victims for a in e.acts):
                return None  # somebody is requeued who was not preempted here: not in the columns' terms
        if victims:
            rows = [r for r in s.rows if r.id not in victims]
            self._derive(rows)
        else:
            rows = s.rows
        k, rough = len(self.ids), self.rough
        requests, tokens, told = e.requests, e.tokens, e.start
        exact = len(requests) == k
        if len(rough) > 8 or (requests if exact else requests[:k]) != self.ids:
            return None
        clock = s.clock
        start = [b + clock for b in self.bases]
        if rough:
            self._smooth(rows, start, told)
            tokens = self._marked(tokens[:k])
        elif not exact:
            tokens = tokens[:k]
        if tokens != self.ones or (told is not None and [*(told if exact else told[:k])] != start):
            return None
        spent = k if exact and not rough else sum(e.tokens)
        grown: Growth = {d.request: d.blocks for d in e.blocks if d.blocks and not d.group}
        due = s.calendar.get(clock)
        if spent > s.limits.budget or len(grown) < len(e.blocks) or (due and not self._all_due_grow(due, grown, victims)):
            return None
        if e.acts or rough or not exact:
            return self._mixed(e, [*rows], start, grown)
        return self._decode(e, start, grown)

    def _derive(self, rows: list[Req]) -> None:
        """The columns over some rows of the running queue. Victims' absence makes them stale again at once."""
        self.ids = tuple([r.id for r in rows])
        self.ones = (1,) * len(rows)
        self.bases = [r.base for r in rows]
        self.streams = [r.tokens for r in rows]
        self.rough = [i for i, r in enumerate(rows) if not r.steady]
        self.s.stale = rows is not self.s.rows

    def _smooth(self, rows: list[Req], start: list[int], told: tuple[int, ...] | None) -> None:
        """Where a request outside the cohort starts is judged by the clauses, not by the column."""
        for i in self.rough:
            start[i] = rows[i].base if told is None else told[i]

    def _marked(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """How many tokens it gets, likewise."""
        marked = [*tokens]
        for i in self.rough:
            marked[i] = 1
        return tuple(marked)

    @staticmethod
    def _all_due_grow(due: set[str], grown: Growth, victims: set[str] | None) -> bool:
        return all(r in grown or (victims is not None and r in victims) for r in due)

    # -- nothing but steady decoding and growing tables --------------------------------------------------------------

    def _decode(self, e: wire.Step, start: list[int], grown: Growth) -> list[Violation] | None:
        s, c, k = self.s, self.counts, len(self.ids)
        if grown and not self._may_grow(grown):
            return None
        quiet = self.books.quiet(e, grown)
        s.last_frame = e.frame
        if not quiet:
            plan = s.plan = Plan(e.frame, [*s.running])
            granted = plan.granted
            granted.ids, granted.tokens, granted.start, granted.upto = e.requests, e.tokens, start, k
            plan.spent = plan.spent_running = k
        for request, blocks in grown.items():
            self._grow(s.requests[request], blocks)
        self._add(c.plain, k)
        self._add(c.growth, len(grown))
        self._tick(e, self.streams, ())
        if not quiet:
            return self._end(e, (), (), certain=True)
        self._add(c.grants, k)
        self._add(c.entered, k)
        self._add(c.step, 1)
        self.books.settle(e, len(grown))
        s.stall = s.ticked = 0
        return []

    def _may_grow(self, grown: Growth) -> bool:
        """Every block is free and given once, to a member of the cohort."""
        requests, m = self.s.requests, self.s.memory[0]
        fresh = [b for blocks in grown.values() for b in blocks]
        if len(set(fresh)) < len(fresh) or min(fresh) < m.reserved or max(fresh) >= m.total or m.pins or m.fences:
            return False
        refs = m.refs
        for b in fresh:
            if refs[b]:
                return False
        for request in grown:
            r = requests.get(request)
            if r is None or not r.steady:
                return False
        return True

    def _grow(self, r: Req, blocks: Sequence[int]) -> None:
        """A steady request's table grows by blocks that `_may_grow` looked at."""
        s, m = self.s, self.s.memory[0]
        if (due := s.calendar.get(r.due)) is not None:
            due.discard(r.id)
        s.settle(r)
        refs, owner = m.refs, m.owner
        for b in blocks:
            refs[b] = 1
            owner[b] = r
        m.nfree -= len(blocks)
        r.tables[0].extend(blocks)
        s.schedule_growth(r)

    def _tick(self, e: wire.Step, streams: Sequence[list[int]], loose: Sequence[str]) -> None:
        """The frame leaves: every steady request is one token further."""
        s = self.s
        s.calendar.pop(s.clock, None)
        s.clock += 1
        s.ticked = 1
        if e.requests:
            s.frames[e.frame] = Flight(e.requests, None, streams, loose, s.epoch)

    # -- preemptions, admissions, chunks -----------------------------------------------------------------------------

    def _mixed(self, e: wire.Step, rows: list[Req], start: list[int], grown: Growth) -> list[Violation]:
        """Plain grants by columns; acts, chunks and admissions through the clauses, in order."""
        s, k, rough, streams = self.s, len(rows), self.rough, self.streams
        s.last_frame = e.frame
        plan = s.plan = Plan(e.frame, [*s.running])
        granted = plan.granted
        granted.ids, granted.tokens, granted.start = e.requests, e.tokens, start
        at = {r: e.requests.index(r) for r in grown if r in e.requests}
        hits = {h.request: h.tokens for h in e.hits} if e.hits else {}
        acts = iter(e.acts)
        act = next(acts, None)
        for i in (*range(k, len(e.requests)), None):
            while act is not None and (i is None or act.after <= i):
                broken = self._running(rows, rough, min(act.after, k), at, grown, e, start) or self._do(_micro(act))
                if broken:
                    return broken
                act = next(acts, None)
            if broken := self._running(rows, rough, k, at, grown, e, start):
                return broken
            if i is not None:
                r = e.requests[i]
                grant = mi.Grant(
                    r, e.tokens[i], None if e.start is None else e.start[i], (grown.pop(r, ()),), hits.get(r)
                )
                if broken := self._do(grant):
                    return broken
        return self._dispatch(e, rows, streams, tuple(grown))

    def _running(
        self,
        rows: list[Req],
        rough: list[int],
        upto: int,
        at: Mapping[str, int],
        grown: Growth,
        e: wire.Step,
        start: list[int],
    ) -> list[Violation]:
        """The grants of running requests before position `upto`, as far as they are not made yet."""
        plan = self.s.plan
        done = plan.granted.upto
        if upto <= done:
            return []
        part = {r: grown[r] for r, i in at.items() if done <= i < upto and r in grown} if grown else {}
        one_by_one = [i for i in rough if done <= i < upto]
        if part and (one_by_one or not self._may_grow(part)):
            one_by_one = sorted({*one_by_one, *(at[r] for r in part)})
            part = {}
        for i in one_by_one:
            self._plain(i, 0)
            if broken := self._one(rows[i], e.tokens[i], start[i], grown.pop(rows[i].id, ())):
                return broken
            plan.granted.upto = i + 1
        for request, blocks in part.items():
            self._grow(self.s.requests[request], blocks)
            del grown[request]
        self._plain(upto, len(part))
        return []

    def _plain(self, upto: int, grew: int) -> None:
        """The plain grants before position `upto` are made; `grew` of them with more blocks."""
        plan = self.s.plan
        n = upto - plan.granted.upto
        if n > 0:
            self._add(self.counts.plain, n)
            self._add(self.counts.growth, grew)
            plan.granted.upto = upto
            plan.spent += n
            plan.spent_running += n
            plan.served = ()

    def _one(self, r: Req, tokens: int, start: int, blocks: tuple[int, ...]) -> list[Violation]:
        """A running request's grant, through the clauses."""
        s, plan = self.s, self.s.plan
        if broken := self._judge(mi.Grant(r.id, tokens, start, (blocks,), None)):
            return broken
        s.melt(r)
        own(s, r, (blocks,))
        plan.served = ()
        plan.spent += tokens
        plan.spent_running += tokens
        return []

    def _dispatch(
        self, e: wire.Step, rows: list[Req], streams: list[list[int]], stray: tuple[str, ...]
    ) -> list[Violation]:
        """The frame leaves; the KV of those outside the cohort is written and looked at."""
        s, plan = self.s, self.s.plan
        granted = plan.granted
        # Rough ones, and members that an act or a hit took out of the cohort.
        touched = [r for r in rows if not r.steady]
        steady = len(rows) - len(touched)
        late = [s.requests[r] for r in e.requests[len(rows) :]]  # admitted, as a rule
        touched += late
        self._tick(e, [*streams, *(r.tokens for r in late)], tuple(r.id for r in touched))
        ends: dict[str, bool] | None = None
        doubtful = []
        for r in touched:
            start, tokens = granted[r.id]
            if start != r.base or start + tokens > len(r.tables[0]) * s.pages[0]:
                doubtful.append(r)  # it passes slots over, writes some anew, or has no slot for all of it
            s.write(r, start, start + tokens)
            r.base = start + tokens
            if r.base != len(r.tokens):
                ends = ends or dict.fromkeys(e.requests, True)
                ends[r.id] = False
            if start and r.id in plan.admitted and r not in doubtful:
                doubtful.append(r)  # it attends what others wrote; the rest was looked at before, or is its own
        if ends is not None:
            s.frames[e.frame].ends = ends
        # A write into a shared block has made its other holders suspect.
        doubtful += [r for r in rows if r.suspect] + [r for r in touched if r.suspect and r not in doubtful]
        sound = not s.tracks or all(s.covered(r.id, r.computed) == r.computed for r in doubtful)
        certain = sound and (steady > 0 or any(r.base > r.peak for r in touched))
        return self._end(e, stray, touched, certain)

    def _end(self, e: wire.Step, stray: tuple[str, ...], touched: Iterable[Req], certain: bool) -> list[Violation]:
        """Close the step. `certain`: the heavy clauses hold, and are only counted."""
        s, plan, c = self.s, self.s.plan, self.counts
        broken: list[Violation] = []
        # A wire step has the fields of a spec step (a test keeps them alike), and clauses only read them.
        close = mi.Close(cast(ev.Step, e), stray)
        if certain and not stray and self.books.agree(e):
            self._add(c.grants, len(plan.granted))
            self._add(c.entered, len(plan.entered))
            self._add(c.step, 1)
            self.books.count_agreed(e)
        else:
            admissible(s, close)
            if certain:
                broken = judge(s, close, c.light, self.count)
                self._add(c.grants, len(plan.granted))
                self._add(c.entered, len(plan.entered))
                self._add(c.moves, 1)
            else:
                broken = judge(s, close, self.active, self.count)
        if not broken:
            self._close(e, touched)
        return broken

    def _close(self, e: wire.Step, touched: Iterable[Req]) -> None:
        """What `change` does at Close, without going over the cohort."""
        s, plan = self.s, self.s.plan
        s.ticked = 0
        for x in e.sent:
            table = s.requests[x.request].sent[x.group]
            if x.full:
                table.clear()
            table.extend(x.blocks)
        moved = len(plan.granted) > sum(1 for _ in touched)
        for r in touched:
            moved = moved or r.base > r.peak
            r.set_peak(r.base)
        for request in plan.admitted:
            s.requests[request].preempted = False
        s.stall = 0 if moved or not s.requests else s.stall + 1
        s.aborted.clear()
        s.plan = Plan(plan.frame, ())

    # -- a delivery --------------------------------------------------------------------------------------------------

    def deliver(self, e: wire.Deliver) -> list[Violation] | None:
        """Exactly the requests that are due get exactly one token each, and the engine appends just that."""
        s = self.s
        flight = s.frames.get(e.frame)
        if flight is None or e.disposition is not None or not self.judges_streams:
            return None
        due = flight.ids
        if flight.ends is not None or flight.epoch != s.epoch or e.requests != due:
            return None
        if e.emitted is not None and e.emitted != e.tokens:
            return None
        try:
            tokens = [t for (t,) in e.tokens]
        except ValueError:
            return None  # somebody got more or fewer tokens than one
        if len(tokens) != len(flight.streams):
            return None
        # A loop in C: appending is most of what a delivery costs.
        deque(map(list.append, flight.streams, tokens), maxlen=0)
        del s.frames[e.frame]
        self.count["output/stream"] += len(due)
        s.stall = 0
        if flight.loose:
            rejoin(s, flight.loose)
        return []

    # -- one micro-event ---------------------------------------------------------------------------------------------

    def _do(self, m: mi.Micro) -> list[Violation]:
        broken = self._judge(m)
        if not broken:
            change(self.s, m)
        return broken

    def _judge(self, m: mi.Micro) -> list[Violation]:
        admissible(self.s, m)
        return judge(self.s, m, self.active, self.count)

    def _add(self, rules: tuple[str, ...], n: int) -> None:
        if n:
            for rule in rules:
                self.count[rule] += n


def _micro(act: wire.Act) -> ev.Act:
    spec = to_spec(act)
    assert isinstance(spec, ev.Act)
    return spec
