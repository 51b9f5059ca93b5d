"""The reference scheduler: preemption, step by step, as a reader should learn it.

It has no books and no transitions of its own. Its state is the specification's `State`; whatever it decides is a
micro-event that goes through the same `apply`, and each choice is the arg-max of the policy's function that the rules
test for membership. Each hook below is one decision; a known-bad scheduler (`preempt_properties.known_bad`) is this
class with one hook wrong.

Sources of the behaviour: vLLM 0.31.0 and 0.33.0 v1/core/sched/scheduler.py (`MIXED`), Vidur 0.0.26
vllm_replica_scheduler.py and nano-vllm's scheduler.py (`PREFILL_FIRST`), as profiles say.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.policies.functions import (
    blocks_for,
    hit_limit,
    need,
    next_admitted,
    oversize,
    requeue_at,
    skip_guard,
    slot_free,
    supply,
    victim,
    want,
)
from preempt_spec.policies.policy import AfterPreemption, Oversize, Phase, Policy
from preempt_spec.state import Prefix, Request, State, initial
from preempt_spec.transition import apply_micro
from preempt_spec.view import Place

#: Everything can be observed of the reference.
OBSERVES = frozenset(ev.OBSERVABLE)


class Reference:
    """A scheduler for any policy. Feed it arrivals, ask it for steps, deliver tokens."""

    def __init__(self, header: ev.Header, policy: Policy) -> None:
        """An empty engine with the header's pools and limits."""
        self.header = header
        self.policy = policy
        self.state: State = initial(header, policy)
        self.acts: list[ev.Act] = []
        self.deltas: list[ev.Delta] = []
        self.hits: list[ev.Hit] = []

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
        """Forget a request at once, wherever it is."""
        tables = self.state.request(request).tables
        self._do(ev.Abort(request))
        return ev.Abort(request, "user", tables, ev.Observed(free=self.free_counts()))

    def step(self) -> ev.Step:
        """One scheduling decision."""
        self.acts, self.deltas, self.hits = [], [], []
        self._do(mi.Begin(self.state.last_frame + 1))
        if self.policy.phase is Phase.MIXED:
            self.serve_running()
            self.admit_waiting()
        else:
            self.admit_waiting()
            if not self.state.plan.admitted:
                self.serve_running()
        self.publish_full_pages()
        return self._dispatch()

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """Append the sampled tokens; end who reached its length."""
        emitted = tuple(self.emits(r, tokens) for r, tokens in zip(e.requests, e.tokens, strict=True))
        told = ev.Deliver(e.frame, e.requests, e.tokens, emitted=emitted)
        self._do(ev.Deliver(e.frame, e.requests, emitted))
        out: list[ev.Event] = [told]
        for r in e.requests:
            if r in self.state.requests and self.is_finished(r):
                out.append(self.finish(r))
        return tuple(out)

    # -- decisions, running requests ---------------------------------------------------------------------------------

    def serve_running(self) -> None:
        """Give each running request its tokens, in order, preempting when one cannot grow."""
        for r in self.visits():
            if self.state.request(r).place is not Place.RUNNING or r in self.state.plan.granted:
                continue  # preempted for somebody before it
            if skip_guard(self.state, r) is not None:
                continue
            tokens = want(self.state, r)
            # Room is made first; only then may tokens be granted. The requester itself can be the victim.
            self.make_room(r)
            if self.state.request(r).place is Place.RUNNING and self.fits(r):
                self.grant(r, tokens)

    def visits(self) -> tuple[str, ...]:
        """Whom to look at, in which order."""
        return self.state.running

    def fits(self, request: str) -> bool:
        """Whether a running request may be granted tokens now."""
        return need(self.state, request) <= self.supply()

    def make_room(self, request: str) -> None:
        """Preempt, one victim at a time, until `request` fits or was itself the victim."""
        while self.state.request(request).place is Place.RUNNING and not self.fits(request):
            victim = self.choose_victim(request)
            if victim is None:
                return
            self.preempt(victim, request)

    def choose_victim(self, request: str) -> str | None:
        """The policy's arg-max."""
        return victim(self.state, request)

    def preempt(self, victim: str, requester: str) -> None:
        """Demote, release, requeue, and take back what this very step had granted the victim."""
        planned = self.state.plan.granted.get(victim)
        if planned:
            self.take_back(victim)
        after = len(self.state.plan.granted)
        self._act(
            ev.Demote(victim, after, "growth", (requester,), "blocks", need(self.state, requester), self.supply())
        )
        self.release(victim)
        self.requeue(victim)
        if planned:
            self._act(ev.Unplan(victim, after, planned[1]))

    def release(self, victim: str) -> None:
        """All blocks go back and nothing counts as computed any more."""
        tables = self.state.request(victim).tables
        self._act(ev.Release(victim, len(self.state.plan.granted), tables, None, 0, 0))

    def requeue(self, victim: str) -> None:
        """Back into the queue, where the policy says, with every token it has."""
        known = len(self.state.request(victim).tokens)
        at = requeue_at(self.state, victim)
        self._act(ev.Requeue(victim, len(self.state.plan.granted), "waiting", at, known))

    def take_back(self, victim: str) -> None:
        """Turn the victim's standing grant into one that was made and undone."""
        self._replan({r: g for r, g in self.state.plan.granted.items() if r != victim}, victim)

    def grant(self, request: str, tokens: int, hit: int = 0, blocks: tuple[tuple[int, ...], ...] = ()) -> None:
        """Tokens for a request, with the blocks they lack behind those it has or hit."""
        r = self.state.request(request)
        start = hit if r.place is Place.WAITING else r.computed
        new = []
        for g, page in enumerate(self.state.pages):
            had = blocks[g] if blocks else ()
            lack = blocks_for(start + tokens, page) - len(r.tables[g]) - len(had)
            fresh = self.pick_blocks(g, max(lack, 0), had)
            self.withdraw(g, fresh)
            new.append((*had, *fresh))
            if new[-1]:
                self.deltas.append(ev.Delta(request, g, new[-1]))
        admitted = r.place is Place.WAITING
        if admitted and hit:
            self.hits.append(ev.Hit(request, hit))
        self._do(mi.Grant(request, tokens, start, tuple(new), hit if admitted else None))

    # -- decisions, waiting requests ---------------------------------------------------------------------------------

    def admit_waiting(self) -> None:
        """Admit from the head of the queue while every gate is open; the head that does not fit blocks the rest."""
        while (r := self.next_waiting()) is not None:
            blocks, hit = self.find_prefix(r)
            tokens = self.first_tokens(r, hit)
            if tokens < 1 or not self.may_admit(r, tokens, hit, blocks):
                return
            self.grant(r, tokens, hit, blocks)

    def next_waiting(self) -> str | None:
        """Nobody older and ready is passed over."""
        return next_admitted(self.state)

    def first_tokens(self, request: str, hit: int) -> int:
        """How much of an admission's prefill fits in this step; 0 if it may not be split and does not."""
        s = self.state
        lack, left = len(s.request(request).tokens) - hit, s.limits.budget - s.plan.spent
        if not s.limits.chunked:
            return lack if lack <= left else 0
        cap = s.limits.long_prefill if s.limits.long_prefill and len(s.live()) > 1 else lack
        return min(lack, left, cap)

    def may_admit(self, request: str, tokens: int, hit: int, blocks: tuple[tuple[int, ...], ...]) -> bool:
        """The gates: none after a preemption, slots, whole-sequence fit, watermark."""
        s = self.state
        if s.plan.demoted and self.policy.after_preemption is AfterPreemption.CLOSED:
            return False
        if not slot_free(s):
            return False
        end = len(s.request(request).tokens) if s.limits.whole_fit else hit + tokens
        mark = s.limits.watermark if s.running else 0
        for g, page in enumerate(s.pages):
            idle = sum(s.is_free(g, b) for b in blocks[g])
            if blocks_for(end, page) - len(blocks[g]) + idle + mark > self.free(g):
                return False
        return True

    def find_prefix(self, request: str) -> tuple[tuple[tuple[int, ...], ...], int]:
        """Resident blocks that hold the longest usable prefix, and its length in tokens."""
        s, r = self.state, self.state.request(request)
        if not s.limits.caching:
            return ((),) * len(s.memory), 0
        # Freed blocks stay findable until they are handed out again: what is published decides, not ownership.
        index = [{b.published: i for i, b in sorted(m.blocks.items(), reverse=True)} for m in s.memory]
        limit = hit_limit(s, request)
        while limit and not all(self._found(r, m.page, limit, at) for m, at in zip(s.memory, index, strict=True)):
            limit -= 1
        found = [
            tuple(at[r.prefix(end)] for end in range(m.page, limit + 1, m.page))
            for m, at in zip(s.memory, index, strict=True)
        ]
        return tuple(found), limit

    @staticmethod
    def _found(r: Request, page: int, upto: int, at: Mapping[Prefix | None, int]) -> bool:
        return upto % page == 0 and all(r.prefix(end) in at for end in range(page, upto + 1, page))

    # -- decisions, memory -------------------------------------------------------------------------------------------

    def free(self, group: int) -> int:
        """Free blocks."""
        return self.state.free(group)

    def supply(self) -> int:
        """Free blocks in the group that has fewest."""
        return supply(self.state)

    def free_counts(self) -> tuple[int, ...]:
        """Free blocks per group, as this engine counts them."""
        return tuple(self.free(g) for g in range(len(self.state.memory)))

    def pick_blocks(self, group: int, count: int, keep: tuple[int, ...]) -> tuple[int, ...]:
        """Free blocks: those that hold no findable page first, so that a victim's prefix lives on for its resume."""
        m = self.state.memory[group]
        free = self.state.free_ids(group) - set(keep)
        return tuple(sorted(free, key=lambda b: (m.block(b).published is not None, b))[:count])

    def withdraw(self, group: int, blocks: tuple[int, ...]) -> None:
        """Blocks about to be written anew stop being findable."""
        old = tuple(b for b in blocks if self.state.memory[group].block(b).published is not None)
        if old:
            self._act(ev.Withdraw(old, len(self.state.plan.granted), group))

    def publish_full_pages(self) -> None:
        """Pages that this step fills become findable."""
        if not self.state.limits.caching:
            return
        after = len(self.state.plan.granted)
        for r, (start, tokens) in self.state.plan.granted.items():
            for g, page in enumerate(self.state.pages):
                full = self.state.request(r).tables[g][start // page : (start + tokens) // page]
                if full:
                    self._act(ev.Publish(r, full, after, g))

    # -- decisions, the end ------------------------------------------------------------------------------------------

    def refuses(self, request: str) -> bool:
        """What can never fit is refused, and only that."""
        return oversize(self.state, self.state.request(request))

    def emits(self, request: str, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """What the user is shown of a delivery: all of it, once."""
        return tokens

    def is_finished(self, request: str) -> bool:
        """It has emitted all it may."""
        r = self.state.request(request)
        return len(r.tokens) - r.prompt >= r.max_tokens

    def finish(self, request: str) -> ev.Finish:
        """End a request and take its blocks back."""
        tables = self.state.request(request).tables
        self._do(ev.Finish(request))
        return ev.Finish(request, "length", tables)

    # -- books -------------------------------------------------------------------------------------------------------

    def observe(self) -> ev.Observed:
        """This engine's own books, for comparison."""
        s = self.state
        groups = range(len(s.memory))
        return ev.Observed(
            free=self.free_counts(),
            free_ids=tuple(tuple(sorted(s.free_ids(g))) for g in groups),
            running=s.running,
            waiting=s.waiting,
            held=tuple(
                ev.Held(w, sum(map(len, s.request(w).tables)), s.request(w).computed)
                for w in s.waiting
                if s.request(w).computed or any(s.request(w).tables)
            ),
            refs=tuple(ev.Refs(g, b, n) for g in groups for b, n in sorted(s.shared(g).items())),
        )

    def tell(self) -> tuple[ev.Sent, ...]:
        """What the worker is told of tables: an admitted request in full, others what was added."""
        s, told = self.state, []
        for r in s.plan.granted:
            for g in range(len(s.memory)):
                if r in s.plan.admitted:
                    told.append(ev.Sent(r, g, s.request(r).tables[g], True))
                else:
                    new = tuple(b for d in self.deltas if d.request == r and d.group == g for b in d.blocks)
                    if new:
                        told.append(ev.Sent(r, g, new))
        return tuple(told)

    def tell_resumed(self) -> tuple[ev.Resumed, ...]:
        """Who resumes, and towards how many tokens."""
        s = self.state
        back = [r for r in s.plan.admitted if s.request(r).preempted]
        return tuple(ev.Resumed(r, len(s.request(r).tokens)) for r in back)

    def _dispatch(self) -> ev.Step:
        plan = self.state.plan
        step = ev.Step(
            frame=plan.frame,
            requests=tuple(plan.granted),
            tokens=tuple(n for _, n in plan.granted.values()),
            start=tuple(start for start, _ in plan.granted.values()),
            blocks=tuple(self.deltas),
            sent=self.tell(),
            resumed=self.tell_resumed(),
            hits=tuple(self.hits),
            acts=tuple(self.acts),
            reason="" if plan.granted else "nothing could be granted",
            observed=self.observe(),
        )
        self._do(mi.Dispatch(plan.frame))
        self._do(mi.Close(step, ()))
        return step

    def _do(self, m: mi.Micro) -> None:
        self.state = apply_micro(self.state, m)

    def _act(self, act: ev.Act) -> None:
        self.acts.append(act)
        self._do(act)

    def _replan(self, standing: dict[str, tuple[int, int]], victim: str) -> None:
        """Rewrite this step's record: the victim's grant becomes a `plan` act at the place where it was made."""
        plan = self.state.plan
        start, tokens = plan.granted[victim]
        at = list(plan.granted).index(victim)
        mine = [d for d in self.deltas if d.request == victim]
        blocks = tuple(tuple(b for d in mine if d.group == g for b in d.blocks) for g in range(len(self.state.memory)))
        self.deltas = [d for d in self.deltas if d.request != victim]
        where = next((i for i, a in enumerate(self.acts) if a.after > at), len(self.acts))
        self.acts = [evolve(a, after=a.after - 1) if a.after > at else a for a in self.acts]
        self.acts.insert(where, ev.Plan(victim, at, start, tokens, blocks))
        self.state = evolve(
            self.state,
            plan=evolve(plan, granted=standing, pending={**plan.pending, victim: (start, tokens)}),
        )
