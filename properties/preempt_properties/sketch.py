"""The reference scheduler as plain arithmetic: who is granted how much, who is preempted, who waits where.

A search must know cheaply where a workload leads before it spends a real engine's time on it. This twin of
`preempt_spec.reference` counts tokens and blocks where the reference keeps every block and every token, and is two
orders of magnitude faster. It says nothing about right and wrong: it aims, and never judges.

It is exact where `exact` says so: a property holds it to the reference there, step by step (grants, victims, queues,
free blocks). Elsewhere it takes a workload for a plainer one: no prefix hits, one frame at a time, one group, no resets
and no pauses.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable

from attrs import define

from preempt_properties.scenario import Abort, Add, Scenario, Step
from preempt_spec.policies.displacing import displaces
from preempt_spec.policies.policy import (
    AfterSelf,
    Gate,
    Lineup,
    Need,
    Order,
    Phase,
    Policy,
    Release,
    Requeue,
    Slots,
    Victim,
)
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.policies.queues import by_priority

MOST = 400  # steps of a workload, at most: one that livelocks by its policy has shown that by then
#: Behind a step: granted (request, tokens) in order, victims, running, waiting, free blocks.
Shown = tuple[list[tuple[str, int]], list[str], list[str], list[str], int]


def exact(scenario: Scenario) -> bool:
    """Whether the sketch is the reference, as far as it says anything."""
    c = scenario.config
    plain = c.frames == 1 and not c.drafts and c.groups == "full" and not c.caching and not c.host_blocks
    adds = [x for x in scenario.script if isinstance(x, Add)]
    fit = all(len(x.prompt) + x.max_tokens <= c.max_length for x in adds)
    # It has no victims that keep their blocks, no tables that grow ahead, no turns, and nobody makes way.
    policy = PROFILES[c.policy].contract
    known = policy.release is Release.AT_ONCE and not displaces(policy)
    return known and plain and fit and all(isinstance(x, Add | Step | Abort) for x in scenario.script)


class _Request:
    __slots__ = (
        *("arrival", "blocks", "computed", "end", "granted", "id", "key", "known", "preempted", "priority", "prompt"),
    )

    def __init__(self, add: Add, longest: int) -> None:
        self.id, self.priority, self.arrival = add.request, add.priority, add.arrival
        self.key = (add.priority, add.arrival, add.request)
        self.known = self.prompt = len(add.prompt)
        self.end = min(self.known + add.max_tokens, longest)
        self.computed = self.blocks = self.granted = 0
        self.preempted = False

    def __lt__(self, other: _Request) -> bool:
        return self.key < other.key

    def going(self) -> tuple[int, int]:
        """The greater, the sooner it goes, where the fewest outputs do."""
        return self.prompt - self.known, self.prompt


@define
class _Rules:
    """The knobs of a policy, as what a step asks."""

    last: bool  # the victim is the last in running
    worst: bool
    latest: bool
    fewest: bool
    sorted_arrivals: bool
    sorted_victims: bool
    at_the_back: bool
    one_free: bool
    together: bool
    mixed: bool
    stops: bool  # the pass ends once a request preempted itself
    batch: bool
    lines_up: bool
    kept_back: int


def _rules(policy: Policy) -> _Rules:
    return _Rules(
        policy.victim is Victim.LAST_RUNNING,
        policy.victim is Victim.WORST_PRIORITY,
        policy.victim is Victim.LATEST_UNPLANNED,
        policy.victim is Victim.FEWEST_OUTPUTS,
        by_priority(policy),
        policy.requeue is Requeue.PRIORITY or policy.order is Order.PRIORITY_EACH_STEP,
        policy.requeue is Requeue.BACK,
        policy.need is Need.ONE_FREE,
        policy.need is Need.TOGETHER,
        policy.phase is Phase.MIXED,
        policy.after_self is AfterSelf.STOP,
        policy.slots is Slots.BATCH,
        policy.lineup is Lineup.SORTED,
        1 if policy.gate is Gate.CONSERVATIVE else 0,
    )


class Sketch:
    """One workload, played to its end by `run`."""

    def __init__(self, policy: Policy) -> None:
        """Under this policy, for any number of workloads."""
        self.rules = _rules(policy)

    def run(self, scenario: Scenario, show: Callable[[Shown], None] | None = None) -> tuple[int, set[int]]:
        """Steps, and the abstract states they came through, as numbers. `show`: told of every step."""
        c = scenario.config
        self.page, self.free, self.budget, self.longest = c.page_size, c.blocks, c.budget, c.max_length
        self.cut, self.chunked, self.whole, self.slots = c.long_prefill, c.chunked, c.whole_fit, c.max_running
        self.mark = c.watermark
        self.running: list[_Request] = []
        self.waiting: list[_Request] = []
        self.steps, states, self.show = 0, set[int](), show
        doomed: list[str] = []
        for command in scenario.script:
            if type(command) is Add:
                self._arrive(command)
            elif type(command) is Step:
                for _ in range(min(command.count, MOST)):
                    states.add(self._step(doomed))
                    doomed = []
            elif type(command) is Abort:
                if command.when == "before":
                    self._abort(command.request)
                else:
                    doomed.append(command.request)
        still, before = 0, -1
        while (self.running or self.waiting) and self.steps < MOST and still < 30:
            states.add(self._step(doomed))
            doomed = []
            now = sum([r.known for r in self.running]) + sum([r.known for r in self.waiting])
            still, before = (still + 1 if now == before else 0), now
        return self.steps, states

    def _arrive(self, add: Add) -> None:
        if any(r.id == add.request for r in self.running) or any(r.id == add.request for r in self.waiting):
            return
        r = _Request(add, self.longest)
        if self.rules.sorted_arrivals:
            insort(self.waiting, r)
        else:
            self.waiting.append(r)

    def _abort(self, request: str) -> None:
        for queue in (self.running, self.waiting):
            for r in queue:
                if r.id == request:
                    queue.remove(r)
                    self.free += r.blocks
                    r.granted = 0
                    return

    def _step(self, doomed: list[str]) -> int:
        """One decision and its delivery. Returns the abstract state behind the decision."""
        self.steps += 1
        self.granted: list[_Request] = []
        self.victims: list[_Request] = []
        self.spent = self.resumed = self.undone = 0
        free = self.free
        if self.rules.mixed:
            self._serve()
            if not self.victims:
                self._admit()
        else:
            self._admit()
            if not self.granted:
                self._serve()
        full = partial = 0
        for r in self.granted:
            r.computed += r.granted
            if r.computed % self.page == 0:
                full += 1
            if r.computed < r.known:
                partial = 1
        running, waiting, victims = len(self.running), self.waiting, len(self.victims)
        back = sum([r.preempted for r in waiting])
        # One number, mixed radix: running, new, preempted, free, victims, taken back, resumed, prefilling, at the edge,
        # whether blocks came free or went.
        state = min(running, 3) * 3 + min(len(waiting) - back, 2)
        state = (state * 3 + min(back, 2)) * 3 + min(self.free, 2)
        state = ((state * 3 + min(victims, 2)) * 2 + self.undone) * 3 + min(self.resumed, 2)
        state = ((state * 2 + partial) * 3 + min(full, 2)) * 2 + (self.free < free)
        if self.show is not None:
            grants = [(r.id, r.granted) for r in self.granted]
            queues = [r.id for r in self.running], [r.id for r in waiting]
            self.show((grants, [r.id for r in self.victims], *queues, self.free))
        for request in doomed:
            self._abort(request)
        over = False
        for r in self.granted:
            if r.granted and r.computed == r.known:
                r.known += 1
                over = over or r.known >= r.end
            r.granted = 0
        if over:
            for r in self.running:
                if r.known >= r.end:
                    self.free += r.blocks
            self.running = [r for r in self.running if r.known < r.end]
        return state

    def _serve(self) -> None:
        stopped, rules, granted = False, self.rules, self.granted
        spent_running = 0
        if rules.together:
            while len(self.running) > 1 and sum(map(self._lack, self.running)) > self.free:
                self._preempt(self._victim(self.running[0]))
        for r in [*self.running]:
            if r.granted or (r.preempted and r not in self.running):
                continue
            if spent_running >= self.budget or stopped or (rules.batch and len(granted) >= self.slots):
                continue
            if r.computed >= min(r.known, self.longest - 1):
                continue
            tokens = self._want(r)
            while not self._fits(r):
                victim = self._victim(r)
                if victim.granted:
                    spent_running -= victim.granted
                self._preempt(victim)
                if victim is r:
                    stopped = rules.stops
                    break
            else:
                self._grant(r, tokens)
                spent_running += tokens

    def _want(self, r: _Request) -> int:
        room = min(r.known - r.computed, self.longest - 1 - r.computed, self.budget - self.spent)
        if self.cut:
            live = len(self.running) + len(self.waiting)
            if live > 1:
                room = min(room, max(self.cut, self.budget // live))
        return max(room, 0)

    def _fits(self, r: _Request) -> bool:
        if self.rules.one_free:
            return self.free >= 1
        return self._lack(r) <= self.free

    def _lack(self, r: _Request) -> int:
        return max(0, -(-(r.computed + self._want(r)) // self.page) - r.blocks)

    def _victim(self, requester: _Request) -> _Request:
        if self.rules.last:
            return self.running[-1]
        if self.rules.worst:
            worst = self.running[0]
            for r in self.running:
                if (r.priority, r.arrival) > (worst.priority, worst.arrival):
                    worst = r
            return worst
        if self.rules.fewest:
            return max(enumerate(self.running), key=lambda row: (*row[1].going(), row[0]))[1]
        rest = [r for r in self.running if r is not requester and not r.granted]
        if not rest:
            return requester
        if not self.rules.latest:
            return rest[-1]
        latest = rest[0]
        for r in rest:
            if r.arrival >= latest.arrival:
                latest = r
        return latest

    def _preempt(self, r: _Request) -> None:
        if r.granted:
            self.granted.remove(r)
            self.spent -= r.granted
            r.granted, self.undone = 0, 1
        self.running.remove(r)
        if self.rules.lines_up:
            self.running.sort(key=_Request.going)
        self.free += r.blocks
        r.blocks = r.computed = 0
        r.preempted = True
        self.victims.append(r)
        if self.rules.sorted_victims:
            insort(self.waiting, r)
        else:
            self.waiting.insert(len(self.waiting) if self.rules.at_the_back else 0, r)

    def _grant(self, r: _Request, tokens: int) -> None:
        pages = -(-(r.computed + tokens) // self.page)
        if pages > r.blocks:
            self.free -= pages - r.blocks
            r.blocks = pages
        r.granted = tokens
        self.spent += tokens
        self.granted.append(r)

    def _admit(self) -> None:
        while self.waiting:
            r = self.waiting[0]
            lack, left = r.known, self.budget - self.spent
            if not self.chunked:
                tokens = lack if lack <= left else 0
            else:
                tokens = min(lack, left)
                if self.cut and len(self.running) + len(self.waiting) > 1:
                    tokens = min(tokens, self.cut)
            if tokens < 1 or len(self.granted if self.rules.batch else self.running) >= self.slots:
                return
            need = -(-max(r.known if self.whole else tokens, tokens) // self.page)
            if need + (self.mark + self.rules.kept_back if self.running else 0) > self.free:
                return
            del self.waiting[0]
            self.running.append(r)
            self.resumed += r.preempted
            self._grant(r, tokens)
