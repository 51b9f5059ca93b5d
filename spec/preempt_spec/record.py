"""What the reference scheduler shows of itself: its own books, and the event of each step."""

from __future__ import annotations

from attrs import evolve

from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.policies.blocks import lazily_held
from preempt_spec.policies.policy import Policy, Release
from preempt_spec.state import State, initial
from preempt_spec.transition import apply_micro
from preempt_spec.view import HOLE

#: Everything can be observed of the reference.
OBSERVES = frozenset(ev.OBSERVABLE)


class Record:
    """The state of a scheduler, which changes by micro-events alone, and the record of the step being planned."""

    def __init__(self, header: ev.Header, policy: Policy) -> None:
        """An empty engine with the header's pools and limits."""
        self.header = header
        self.policy = policy
        self.state: State = initial(header, policy)
        self.acts: list[ev.Act] = []
        self.deltas: list[ev.Delta] = []
        self.hits: list[ev.Hit] = []
        self.owing: list[ev.Act] = []  # acts since the last step, to be told with the next
        self.merged: set[str] = set()  # whose tables changed otherwise than by growth since the worker was told of them
        self.backups: dict[str, tuple[tuple[int, int, int], ...]] = {}  # swapped request: (group, page, host block)
        self.prepare()

    def prepare(self) -> None:
        """Memory of its own, for relatives of the reference that need some."""

    def observe(self) -> ev.Observed:
        """This engine's own books, for comparison."""
        s = self.state
        groups = range(len(s.memory))
        return ev.Observed(
            free=self.free_counts(),
            free_ids=tuple(tuple(sorted(s.free_ids(g))) for g in groups),
            running=s.running,
            waiting=s.waiting,
            swapped=s.swapped,
            held=tuple(
                ev.Held(w, sum(map(len, s.request(w).tables)), s.request(w).computed)
                for w in s.waiting
                if s.request(w).computed or any(s.request(w).tables)
            ),
            host_free=tuple(s.host_free(g) for g in groups) if any(m.total for m in s.host) else None,
            preemptions=s.preemptions,
            cached=tuple(ev.Cached(r, s.plan.granted[r][0]) for r in s.plan.admitted if r in s.plan.granted),
            refs=tuple(ev.Refs(g, b, n) for g in groups for b, n in sorted(s.shared(g).items())),
        )

    def tell(self) -> tuple[ev.Sent, ...]:
        """What the worker is told of tables: an admitted request in full, others what was added."""
        s, told = self.state, []
        for r in s.plan.granted:
            for g in range(len(s.memory)):
                if r in s.plan.admitted or r in self.merged:
                    told.append(ev.Sent(r, g, s.request(r).tables[g], True))
                else:
                    new = tuple(b for d in self.deltas if d.request == r and d.group == g for b in d.blocks)
                    if new:
                        told.append(ev.Sent(r, g, new))
        self.merged.difference_update(s.plan.granted)
        return tuple(told)

    def tell_resumed(self) -> tuple[ev.Resumed, ...]:
        """Who resumes, and towards how many tokens."""
        s = self.state
        back = [r for r in s.plan.admitted if s.request(r).preempted]
        return tuple(ev.Resumed(r, len(s.request(r).tokens)) for r in back)

    def dispatch(self) -> ev.Step:
        """The step is decided: its event, and the frame leaves."""
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
            drafts=tuple(ev.Hit(r, n) for r, n in plan.drafts.items()),
            acts=tuple(self.acts),
            reason="" if plan.granted else "nothing could be granted",
            observed=self.observe(),
        )
        self._do(mi.Dispatch(plan.frame))
        self._do(mi.Close(step, ()))
        return step

    def begin(self) -> None:
        """A step starts, with what the engine owes the record since the last."""
        self.acts, self.deltas, self.hits = [], [], []
        self._do(mi.Begin(self.state.last_frame + 1))
        for act in self.owing:
            self._act(act)
        self.owing = []

    def owned(self, request: str) -> tuple[tuple[int, ...], ...]:
        """The blocks in a request's tables."""
        return tuple(tuple(b for b in table if b != HOLE) for table in self.state.request(request).tables)

    def drop_backup(self, request: str) -> None:
        """The host blocks that keep a request's KV, if any do, are free; outside a step, that is told with the next."""
        backup = self.backups.pop(request, ())
        for g in range(len(self.state.host)):
            blocks = tuple(b for of, _, b in backup if of == g)
            if blocks and request in self.state.plan.granted:
                self._act(ev.Evict(blocks, len(self.state.plan.granted), g))
            elif blocks:
                self.owing.append(ev.Evict(blocks, 0, g))

    def free_counts(self) -> tuple[int, ...]:
        """Free blocks per group, as this engine counts them."""
        return tuple(self.free(g) for g in range(len(self.state.memory)))

    def holders(self) -> list[str]:
        """Under a lazy release, who waits and was left blocks, in queue order."""
        if self.policy.release is Release.AT_ONCE:
            return []
        return [w for w in self.state.waiting if any(self.state.request(w).tables)]

    def spare(self, group: int, request: str) -> set[int]:
        """Blocks that others than `request` were left, and would give back to admit it."""
        return lazily_held(self.state, group, request)

    def free(self, group: int) -> int:
        """Free blocks."""
        return self.state.free(group)

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
            plan=evolve(
                plan,
                granted=standing,
                pending={**plan.pending, victim: (start, tokens)},
                drafts={r: n for r, n in plan.drafts.items() if r != victim},
            ),
        )
