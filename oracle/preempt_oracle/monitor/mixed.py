"""A step in which more happens than steady decoding: preemptions, admissions, chunks of a prefill.

The cohort's grants are still judged as columns, stretch by stretch between the acts; acts and everybody else's grants
go through the clauses of the specification, in the order in which they happened.
"""

from __future__ import annotations

from collections import Counter
from itertools import compress
from typing import cast

from preempt_oracle.monitor.books import Books
from preempt_oracle.monitor.change import change, own
from preempt_oracle.monitor.counts import Active, Counts, Ledger
from preempt_oracle.monitor.ends import settle_step, tell
from preempt_oracle.monitor.flight import Flight
from preempt_oracle.monitor.flying import advance, promise
from preempt_oracle.monitor.growth import Grown, all_grow, grow, growing, growing_as_told, paired
from preempt_oracle.monitor.labels import commute, labels, make, publishing
from preempt_oracle.monitor.plain import Plain
from preempt_oracle.monitor.plan import Granted, Plan
from preempt_oracle.monitor.request import Req
from preempt_oracle.monitor.shadow import Shadow
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.rules import Violation
from preempt_spec.system import admissible, judge
from preempt_spec.view import Due, Place

#: What moves between tiers, or out of a table, is for the clauses alone.
_APART = (wire.Shed, wire.Exchange, wire.Swap, wire.Load, wire.Evict)


class Mixed:
    """Mixed steps over a shadow. Holds the step in hand; not reentrant."""

    def __init__(
        self, shadow: Shadow, active: Active, count: Counter[str], counts: Counts, ledger: Ledger, books: Books
    ) -> None:
        self.s, self.active, self.count, self.counts, self.n, self.books = shadow, active, count, counts, ledger, books
        self.plain = Plain(shadow, ledger)
        self._e: wire.Step
        self._kept: tuple[str, ...] = ()  # the part of the cohort that is granted tokens, first of all
        self._bases: tuple[int, ...] = ()
        self._start: tuple[int, ...] = ()
        self._grown: dict[str, tuple[int, ...]] = {}  # blocks that have not joined their table yet
        self._hits: dict[str, int] = {}
        self._victims: set[str] = set()
        self._melted = 0
        self._sure = False  # all acts are about pages that are findable, and hold
        self._at = 0  # the grant that is judged, if it goes through the clauses
        self._full: set[str] | None = None  # of whom the worker was told in full; None: not just of what was given
        self._told: list[tuple[Req, int]] = []  # who was told so already, and how many blocks it had before

    def step(self, e: wire.Step) -> list[Violation] | None:
        """Judge and apply a step; None if its grants do not begin with the cohort as it stands."""
        s, c = self.s, self.s.columns
        kept, bases, requests = c.ids, c.bases, e.requests
        k = len(kept)
        victims: set[str] = set()
        if e.acts:
            for a in e.acts:
                if type(a) is wire.Demote:
                    if a.cause == "admission":
                        return None  # who makes way, for whom, and whether that one came in: for the clauses
                    victims.add(a.request)
                elif type(a) in _APART or (type(a) is wire.Requeue and a.request not in victims):
                    return None  # somebody is requeued who was not preempted here: not in the columns' terms
            k -= len(victims)
            if victims == {*kept[k:]}:  # the last ones, as a rule
                kept, bases = kept[:k], bases[:k]
            else:
                stays = [r not in victims for r in kept]
                kept, bases = tuple(compress(kept, stays)), tuple(compress(bases, stays))
                k = len(kept)
        clock = s.clock
        start = tuple([clock + base for base in bases])
        if requests[:k] != kept or e.tokens[:k] != c.ones[:k] or (e.start is not None and e.start[:k] != start):
            return None
        others = s.running[len(c.ids) :]
        if s.resting:
            others = [r.id for r in s.rows if not r.steady and not r.resting]
        if others and requests[k : k + len(others)] != tuple(others):
            others = [r for r in others if r not in victims]
            if requests[k : k + len(others)] != tuple(others):
                return None  # somebody is passed over: why, is for the clauses to say
        # What a victim gives back may be handed out at once: with acts, blocks are looked at when their turn comes.
        full: set[str] | None
        self._sure = bool(e.acts) and not victims and self._labelled(e)
        told = growing_as_told(s, e) if not e.acts or self._sure else None
        if told is not None:
            grown, full = told.full, {*told.full}
            due = all_grow(s, told.grown)
        else:
            grown = {d.request: d.blocks for d in e.blocks if d.blocks and not d.group}
            full = {x.request for x in e.sent if x.full} if paired(e) else None
            if len(grown) < len(e.blocks):
                return None
            due = s.clock not in s.calendar or all_grow(s, [s.requests.get(r) for r in (*grown, *victims)])
        if not due or sum(e.tokens) > s.limits.budget:
            return None
        self._e, self._kept, self._bases, self._start = e, kept, bases, start
        self._grown, self._melted = grown, s.melted
        self._hits = {h.request: h.tokens for h in e.hits} if e.hits else {}
        self._full, self._told, self._victims = full, [], victims
        if told is not None and told.grown:
            self._grow(told.grown)
        return self._walk(e, k)

    def _labelled(self, e: wire.Step) -> bool:
        """Whether all acts are about pages that are findable, and hold."""
        return commute(self.s, e, e.acts, {d.request: d.blocks for d in e.blocks})

    def _walk(self, e: wire.Step, k: int) -> list[Violation]:
        s = self.s
        s.last_frame = e.frame
        granted = Granted()
        granted.ids, granted.tokens, granted.start = e.requests, e.tokens, self._start
        s.plan = Plan(e.frame, [*s.running], granted, s.plan.published)
        done = at = 0
        acts = e.acts
        while at < len(acts):
            act = acts[at]
            run = acts if self._sure else labels(acts, at)
            if run and (self._sure or commute(s, e, run, self._grown)):
                if broken := self._grants(done, run[-1].after, k):
                    self.n.publishes += publishing(a for a in run if a.after <= self._at)
                    return broken
                done = max(done, run[-1].after)
                make(s, run)
                self.n.publishes += publishing(run)
                at += len(run)
                continue
            if act.after > done:
                if broken := self._grants(done, act.after, k):
                    return broken
                done = act.after
            if self._preempted(acts[at : at + 3]):
                at += 3
            elif broken := self._act(act):
                return broken
            else:
                at += 1
        if broken := self._grants(done, len(e.requests), k):
            return broken
        return self._dispatch(e, k)

    def _grants(self, done: int, upto: int, k: int) -> list[Violation]:
        """The grants at positions [done, upto): those before k are the cohort's."""
        if done < k and (broken := self._column(done, min(upto, k))):
            return broken
        s, e, start = self.s, self._e, self._e.start
        for i in range(max(done, k), min(upto, len(e.requests))):
            r = e.requests[i]
            at, hit = None if start is None else start[i], self._hits.get(r)
            blocks = self._grown.pop(r, ())
            if (at is None or at == (hit or 0)) and blocks and self.plain.admission(r, e.tokens[i], blocks, hit or 0):
                if self._full is not None and r in self._full:
                    s.requests[r].apart = None
                    self._told.append((s.requests[r], 0))
                continue
            self._at = i
            grant = mi.Grant(r, e.tokens[i], at, (blocks,), hit)
            if broken := self._judge(grant):
                return broken
            change(s, grant)
        return []

    # -- the cohort's part -------------------------------------------------------------------------------------------

    def _column(self, done: int, upto: int) -> list[Violation]:
        s, kept = self.s, self._kept
        slow: set[int] = set()
        if s.melted != self._melted:
            slow.update(i for i in range(done, upto) if not s.requests[kept[i]].steady)
        if s.plan.spent + upto - done > s.limits.budget:
            slow.update(range(done, upto))
        if self._grown:
            part = self._part(kept[done:upto] if upto < len(kept) else None)
            grown = None if slow else growing(s, part.items())
            if grown is None:
                slow.update(kept.index(r) for r in part)
            elif grown:
                self._grow(grown)
        for i in sorted(slow):
            self._plain(i)
            if broken := self._one(i):
                return broken
            s.plan.granted.upto = i + 1
        self._plain(upto)
        return []

    def _part(self, here: tuple[str, ...] | None) -> dict[str, tuple[int, ...]]:
        """Growth of members at these positions; None: at all that are left."""
        requests, victims, part = self.s.requests, self._victims, {}
        for request, blocks in self._grown.items():
            r = requests.get(request)
            # A steady one is a member, and a member that stays is granted tokens.
            if r is not None and r.steady and request not in victims and (here is None or request in here):
                part[request] = blocks
        return part

    def _grow(self, grown: Grown) -> None:
        full, told = self._full, self._told
        for r in grown:
            self._grown.pop(r.id, None)
            if r.apart is None and full is not None and r.id not in full:
                told.append((r, len(r.tables[0])))
            else:
                r.split()
        grow(self.s, grown)
        self.n.growth += len(grown)

    def _plain(self, upto: int) -> None:
        """The plain grants before position `upto` are made."""
        plan = self.s.plan
        n = upto - plan.granted.upto
        if n > 0:
            self.n.plain += n
            self.n.continued += 0 if self._e.start is None else n
            plan.granted.upto = upto
            self.s.ahead = self.s.ahead or bool(self.s.frames)  # the latest frame brings each of them a token
            plan.spent += n
            plan.spent_running += n
            plan.served = ()

    def _one(self, i: int) -> list[Violation]:
        """A grant of the column that something speaks against, through the clauses."""
        s, plan, r = self.s, self.s.plan, self.s.requests[self._kept[i]]
        blocks = (self._grown.pop(r.id, ()),)
        self._at = i
        start = None if self._e.start is None else self._start[i]
        if broken := self._judge(mi.Grant(r.id, 1, start, blocks, self._hits.get(r.id))):
            return broken
        s.ahead = s.ahead or r.computed >= len(r.tokens)
        s.melt(r)
        own(s, r, blocks)
        plan.served = ()
        plan.spent += 1
        plan.spent_running += 1
        return []

    # -- acts --------------------------------------------------------------------------------------------------------

    def _preempted(self, acts: tuple[wire.Act, ...]) -> bool:
        """Whether these are a preemption that is just as the policy has it, with no grant in between."""
        if len(acts) < 3:
            return False
        out, back, again = acts
        if type(out) is not wire.Demote or type(back) is not wire.Release or type(again) is not wire.Requeue:
            return False
        return out.after == again.after and self.plain.preemption(out, back, again)

    def _act(self, act: wire.Act) -> list[Violation]:
        spec = to_spec(act)
        assert isinstance(spec, ev.Act)
        if broken := self._judge(spec):
            return broken
        change(self.s, spec)
        return []

    def _judge(self, m: mi.Micro) -> list[Violation]:
        admissible(self.s, m)
        return judge(self.s, m, self.active, self.count)

    # -- the end of the step -----------------------------------------------------------------------------------------

    def _dispatch(self, e: wire.Step, k: int) -> list[Violation]:
        """The frame leaves; the KV of those outside the cohort is written and looked at."""
        s, plan = self.s, self.s.plan
        granted, requests = plan.granted, s.requests
        touched: list[Req] = []
        if s.melted != self._melted:  # an act or a hit took members out of the cohort
            touched = [r for r in map(requests.__getitem__, self._kept) if not r.steady]
        steady = k - len(touched)
        late = [requests[r] for r in e.requests[k:]]
        touched += late
        streams: list[list[int]] = s.columns.streams
        if s.stale or len(streams) != k:
            streams = [requests[r].tokens for r in e.requests]
        elif late:
            streams = [*streams, *[r.tokens for r in late]]
        latest = next(reversed(s.frames), None)
        own: dict[str, Due] = {}
        for r in touched:
            start, tokens = granted[r.id]
            own[r.id] = promise(s, r, start + tokens, tokens, 0)
        loose = [r for r in touched if own[r.id].outputs]
        flight = Flight(e.requests, own, streams, loose, s.clock + 1, self._bases, latest)
        s.tick(e.frame, flight if e.requests else None)
        s.ticked = 1
        melted, doubtful = s.melted, []
        for r in touched:
            start, tokens = granted[r.id]
            end = start + tokens
            if start != r.base or end > len(r.tables[0]) * s.pages[0] or r.place is not Place.RUNNING:
                doubtful.append(r)  # it passes slots over, writes some anew, has no slot for all of it, or lost its own
            advance(s, r, start, end, own[r.id])
            if start and r.id in plan.admitted and r not in doubtful:
                doubtful.append(r)  # it attends what others wrote; the rest was looked at before, or is its own
        # A write into a shared block has made its other holders suspect.
        touched += [r for r in self._disturbed(e, melted) if r not in touched]
        doubtful += [r for r in touched if r.suspect and r not in doubtful]
        sound = not s.tracks or all(s.covered(r.id, r.computed, r.computed) == r.computed for r in doubtful)
        if sound:
            for r in doubtful:
                r.suspect = False  # all it attends was just looked at
        certain = sound and (steady > 0 or any(r.base > r.peak for r in touched))
        return self._close(e, touched, steady, certain)

    def _untell(self) -> None:
        """Not everything that was sent is what was given: the clauses will look at what was sent before this step."""
        for r, before in self._told:
            r.apart = [r.tables[0][:before]]

    def _disturbed(self, e: wire.Step, melted: int) -> list[Req]:
        s = self.s
        return [] if s.melted == melted else [r for r in map(s.requests.__getitem__, e.requests) if r.suspect]

    def _close(self, e: wire.Step, touched: list[Req], steady: int, certain: bool) -> list[Violation]:
        """Close the step. `certain`: the heavy clauses hold, and are only counted."""
        s, plan, n = self.s, self.s.plan, self.n
        told = len(self._told) == len(e.sent) == len(e.blocks) and self._full == {*plan.admitted}
        # An act may have changed a table behind what was told of it.
        told = told and all(r.apart is None for r, _ in self._told)
        if not told:
            self._untell()
        if certain and not self._grown and self.books.agree(e, told):
            n.grants += len(plan.granted)
            n.entered += len(plan.entered)
            n.moves += 1
            n.step += 1
            self.books.count_agreed(e)
        else:
            if told:
                self._untell()
                told = False
            # A wire step has the fields of a spec step (a test keeps them alike), and clauses only read them.
            close = mi.Close(cast(ev.Step, e), tuple(self._grown))
            admissible(s, close)
            broken = judge(s, close, self.counts.closing if certain else self.active, self.count)
            if certain:
                n.grants += len(plan.granted)
                n.entered += len(plan.entered)
                n.moves += 1
            if broken:
                return broken
        s.ticked = 0
        if not told:
            tell(s, e.sent)
        moved = steady > 0
        for r in touched:
            moved = moved or r.base > r.peak
            r.set_peak(r.base)
        settle_step(s, moved)
        s.settle_in(touched)
        return []
