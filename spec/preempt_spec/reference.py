"""The reference scheduler: preemption, step by step, as a reader should learn it.

It has no books and no transitions of its own. Its state is the specification's `State`; whatever it decides is a
micro-event that goes through the same `apply`, and each choice is the arg-max of the policy's function that the rules
test for membership. Each hook below is one decision; a known-bad scheduler (`preempt_properties.known_bad`) is this
class with one hook wrong.

Sources of the behaviour: vLLM 0.31.0 and 0.33.0 v1/core/sched/scheduler.py (`MIXED`), Vidur 0.0.26
vllm_replica_scheduler.py and nano-vllm's scheduler.py (`PREFILL_FIRST`), LMDeploy 0.18.0 pytorch/paging (`TURNS`), as
profiles say.
"""

from __future__ import annotations

from attrs import evolve

from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.delivery import appended
from preempt_spec.displacing import Displacing
from preempt_spec.policies.admission import adopts, gate_closed, kept_back, oversize, slot_free
from preempt_spec.policies.blocks import blocks_at_once, room
from preempt_spec.policies.outputs import room_for_outputs
from preempt_spec.policies.policy import Idle, Need, Oversize, Phase, Release
from preempt_spec.policies.pressure import beneficiaries, entries, pressure, want
from preempt_spec.policies.queues import next_admitted, taking_turns
from preempt_spec.policies.victims import fenced, held_back, skip_guard, victim
from preempt_spec.policies.visits import admits_first, passes_over, readable, starved, visiting
from preempt_spec.record import OBSERVES
from preempt_spec.view import Fate, Place

__all__ = ["OBSERVES", "Reference"]


class Reference(Displacing):
    """A scheduler for any policy. Feed it arrivals, ask it for steps, deliver what its frames sampled."""

    # -- what the world asks -----------------------------------------------------------------------------------------

    def arrive(self, e: ev.Arrive) -> tuple[ev.Event, ...]:
        """Queue a request, or refuse it alone if it can never fit and refusing is this scheduler's business."""
        self._do(e)
        if self.policy.oversize is Oversize.SCHEDULER and self.refuses(e.request):
            reject = ev.Reject(e.request, "longer than the pool or the longest sequence allowed")
            self._do(reject)
            return (e, reject)
        return (e,)

    def abort(self, request: str) -> ev.Abort:
        """Forget a request at once, wherever it is; its blocks too, unless something unordered could fill them."""
        until = self.fences(request)
        tables = self.owned(request)
        self._do(ev.Abort(request, until=until))
        self.drop_backup(request)
        return ev.Abort(request, "user", tables, ev.Observed(free=self.free_counts()), until)

    def control(self, kind: str) -> ev.Control:
        """The operator acts between steps: reset (of all KV, with everybody who runs preempted), pause or resume."""
        self.acts = []
        if kind == "reset":
            for r in reversed(self.state.running):
                self._act(ev.Demote(r, cause="reset"))
                self._act(ev.Release(r, 0, self.owned(r), self.fences(r), 0, 0))
                self.requeue(r)
            self.clear(0, self.state.extent(0) + 1, (), "")  # nor does anybody come back with KV of before
            for g, m in enumerate(self.state.memory):
                self.withdraw(g, tuple(m.blocks))
        acts, self.acts = tuple(self.acts), []
        self._do(mi.ControlDone(kind))
        return ev.Control(kind, acts)

    def step(self) -> ev.Step:
        """One scheduling decision. Up to `limits.frames` may be made before the first of them is delivered."""
        self.begin()
        if passes_over(self.policy):
            self.serve_together()
        elif self.policy.phase is Phase.MIXED:
            self.serve_running()
            self.admit()
        else:
            # Who is swapped comes back before anybody is prefilled, and behind those who run.
            if not self.state.swapped and admits_first(self.state):
                self.admit()
            if not self.state.plan.admitted:
                self.serve_running()
                if self.state.swapped:
                    self.admit()
        self.publish_full_pages()
        return self.dispatch()

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """A frame is back: append what it sampled, unless that is stale and to be dropped; end who is done."""
        due = self.state.frames.get(e.frame, {})
        fates = [self.disposes(due[r].fate) if r in due else "delivered" for r in e.requests]
        # Everybody sees the same, sampled tokens; what the engine appends of them is its own.
        emitted = tuple(
            self.emits(r, appended(self.state, e, i)) if fates[i] == "delivered" else ()
            for i, r in enumerate(e.requests)
        )
        stale = tuple(fates) if any(f != "delivered" for f in fates) else None
        told = ev.Deliver(e.frame, e.requests, e.tokens, e.accepted, stale, emitted, e.proposed)
        self._do(ev.Deliver(e.frame, e.requests, emitted, e.accepted, stale, proposed=e.proposed))
        out: list[ev.Event] = [evolve(told, acts=(*self.unfence(e.frame), *self.commit(due)))]
        for r in e.requests:
            if r in self.state.requests and self.is_finished(r):
                out.append(self.finish(r))
        return tuple(out)

    def unfence(self, frame: int) -> tuple[ev.Act, ...]:
        """Blocks whose fence waited for this frame are free."""
        self.acts = []
        for g, m in enumerate(self.state.memory):
            blocks = tuple(b for b, x in sorted(m.blocks.items()) if x.fence is not None and x.fence <= frame)
            if blocks:
                self._act(ev.Unfence(blocks, 0, g))
        return tuple(self.acts)

    def disposes(self, fate: Fate) -> str:
        """What becomes of an output: stale ones of a reset, and those of requests that are over, are dropped."""
        return "delivered" if fate in (Fate.LIVE, Fate.DELIVER) else "dropped"

    # -- decisions, running requests ---------------------------------------------------------------------------------

    def serve_running(self) -> None:
        """Give each running request its tokens, in order, preempting when one cannot grow."""
        if self.policy.need is Need.TOGETHER:  # before anybody is granted tokens
            for r in self.state.running:
                self.make_room(r)
        for r in self.visits():
            if self.state.request(r).place is not Place.RUNNING or r in self.state.plan.granted:
                continue  # preempted for somebody before it
            if skip_guard(self.state, r) is not None:
                continue
            tokens = want(self.state, r)
            self.shed(r)
            # Room is made first; only then may tokens be granted. The requester itself can be the victim.
            self.make_room(r)
            if self.state.request(r).place is Place.RUNNING and self.fits(r):
                self.grant(r, tokens)
            elif self.state.request(r).place is Place.RUNNING and held_back(self.state):
                return

    def visits(self) -> tuple[str, ...]:
        """Whom to look at, in which order."""
        return visiting(self.state)

    def fits(self, request: str) -> bool:
        """Whether a running request may be granted tokens now."""
        need, supply = self.pressure(request)
        return need <= supply

    def make_room(self, request: str) -> None:
        """Preempt, one victim at a time, until `request` fits or was itself the victim."""
        while self.state.request(request).place is Place.RUNNING and not self.fits(request):
            victim = self.choose_victim(request)
            if victim is None or self.holds_back(victim):
                return
            self.preempt(victim, request)

    def choose_victim(self, request: str) -> str | None:
        """The policy's arg-max."""
        return victim(self.state, request)

    def holds_back(self, victim: str) -> bool:
        """Whether a victim would give nothing yet, so that it is better to wait."""
        return fenced(self.state, victim)

    def serve_together(self) -> None:
        """Serve and admit whom there is room for, and only then make room for those who starved, all together."""
        while True:
            for r in self.visits():
                if skip_guard(self.state, r) is None and r not in self.state.plan.granted:
                    tokens = want(self.state, r)
                    self.shed(r)
                    if self.fits(r):
                        self.grant(r, tokens)
            self.admit()
            hungry = () if self.state.paused else starved(self.state)
            # If nobody could be served, those who are left are looked at anew.
            swept = self.sweep() if hungry or self.shut_out() else False
            if not (self.relieve(hungry) or swept) or self.state.plan.granted:
                return

    def shut_out(self) -> bool:
        """Whether nobody was served, and somebody waits who may come in."""
        s = self.state
        return not s.plan.granted and bool(s.waiting or s.swapped) and not s.paused and not gate_closed(s)

    def sweep(self) -> bool:
        """Under some policies findable pages that nobody holds take no room from who starves: now they go."""
        before = self.state.plan.swept
        if self.policy.idle is Idle.STARVED:
            for g in range(len(self.state.memory)):
                self.withdraw(g, tuple(sorted(self.state.free_ids(g))))
        return self.state.plan.swept and not before

    def relieve(self, hungry: tuple[str, ...]) -> bool:
        """Preempt, one victim at a time, until the starved ones fit together. They are requeued the oldest first."""
        victims: list[str] = []
        while hungry and not self.content(hungry):
            victim = self.choose_victim(hungry[0])
            if victim is None:
                break
            after, left = len(self.state.plan.granted), self.left(hungry)
            self._act(ev.Demote(victim, after, "growth", hungry, "blocks", *pressure(self.state, left)))
            self.release(victim)
            victims.append(victim)
        for victim in reversed(victims):
            self.requeue(victim)
        return bool(victims)

    def content(self, hungry: tuple[str, ...]) -> bool:
        """Whether those who starved and still run fit together."""
        left = self.left(hungry)
        need, supply = pressure(self.state, left) if left else (0, 0)
        return need <= supply

    def left(self, hungry: tuple[str, ...]) -> tuple[str, ...]:
        """Those of them who still run."""
        return tuple(r for r in hungry if self.state.request(r).place is Place.RUNNING)

    def preempt(self, victim: str, requester: str) -> None:
        """Demote, release, requeue, and take back what this very step had granted the victim."""
        planned = self.state.plan.granted.get(victim)
        if planned:
            self.take_back(victim)
        after = len(self.state.plan.granted)
        who = beneficiaries(self.state, requester)
        self._act(ev.Demote(victim, after, "growth", who, "blocks", *self.pressure(requester)))
        if self.policy.release is Release.AT_ONCE:
            self.release(victim)
        self.requeue(victim)
        if planned:
            self._act(ev.Unplan(victim, after, planned[1]))

    # -- decisions, waiting requests ---------------------------------------------------------------------------------

    def admit(self) -> None:
        """Admit from the head of the queue while every gate is open; the head that does not fit blocks the rest."""
        if passes_over(self.policy):
            self.admit_who_fits()
            return
        while (r := self.next_waiting()) is not None and not self.state.paused:
            self.make_way(r)
            blocks, hit = self.find_prefix(r)
            tokens = self.first_tokens(r, hit)
            if tokens < 1 or not self.may_admit(r, tokens, hit, blocks):
                return
            self.grant(r, tokens, hit, blocks)

    def admit_who_fits(self) -> None:
        """Look at everybody who waits, once, and admit those for whom every gate is open."""
        for r in taking_turns(self.state):
            if self.state.paused:
                return
            blocks, hit = self.find_prefix(r)
            tokens = self.first_tokens(r, hit)
            if tokens > 0 and self.may_admit(r, tokens, hit, blocks):
                self.grant(r, tokens, hit, blocks)
            elif hit and adopts(self.state, r) and not gate_closed(self.state):
                self.adopt(r, hit, blocks)

    def adopt(self, request: str, hit: int, blocks: tuple[tuple[int, ...], ...]) -> None:
        """Who waits runs on what it hits, and gets no tokens in this pass."""
        self._act(ev.Load(request, hit, blocks, len(self.state.plan.granted), hit, True))
        self.merged.add(request)

    def next_waiting(self) -> str | None:
        """Nobody older and ready is passed over."""
        return next_admitted(self.state)

    def first_tokens(self, request: str, hit: int) -> int:
        """How much of an admission's prefill fits in this step; 0 if it may not be split and does not."""
        s = self.state
        r = s.request(request)
        lack, left = len(r.tokens) - max(hit, r.computed), s.limits.budget - s.plan.spent
        if not s.limits.chunked:
            return lack if lack <= left else 0
        cap = s.limits.long_prefill if s.limits.long_prefill and len(s.live()) > 1 else lack
        return min(lack, left, cap)

    def may_enter(self, request: str) -> bool:
        """Whether it can be admitted as things stand."""
        blocks, hit = self.find_prefix(request)
        tokens = self.first_tokens(request, hit)
        return tokens > 0 and self.may_admit(request, tokens, hit, blocks)

    def may_admit(self, request: str, tokens: int, hit: int, blocks: tuple[tuple[int, ...], ...]) -> bool:
        """The gates: none after a preemption, slots, whole-sequence fit, watermark."""
        s = self.state
        if gate_closed(s) or request in s.plan.demoted or not slot_free(s):
            return False
        if not readable(s, request, max(hit, s.request(request).computed)):
            return False
        first = max(hit, s.request(request).computed) + tokens
        end = len(s.request(request).tokens) if s.limits.whole_fit else first
        mark = (s.limits.watermark if s.running else 0) + kept_back(s)
        had = s.request(request).tables
        for g, group in enumerate(s.groups):
            spare = self.spare(g, request)
            apart = self.policy.idle is Idle.STARVED  # then what is findable is no room
            idle = 0 if apart else sum(s.is_free(g, b) or b in spare for b in blocks[g])
            need = max(blocks_at_once(group, end), entries(s, request, first, g))
            free = room(s, g) if apart else self.free(g)
            if need - len(had[g]) - len(blocks[g]) + idle + mark > free + len(spare):
                return False
        return True

    # -- decisions, the end ------------------------------------------------------------------------------------------

    def refuses(self, request: str) -> bool:
        """What can never fit is refused, and only that."""
        return oversize(self.state, self.state.request(request))

    def emits(self, request: str, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """What the user is shown of a delivery: all of it, once."""
        return tokens

    def is_finished(self, request: str) -> bool:
        """It has emitted all it may."""
        return room_for_outputs(self.state, self.state.request(request)) <= 0

    def finish(self, request: str) -> ev.Finish:
        """End a request and take its blocks back."""
        until = self.fences(request)
        tables = self.owned(request)
        self._do(ev.Finish(request, until=until))
        self.drop_backup(request)
        return ev.Finish(request, "length", tables, until)
