"""What the end of a step changes in the mutable shadow."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from preempt_oracle.monitor.plan import Plan
from preempt_oracle.monitor.shadow import Shadow
from preempt_oracle.trace import wire
from preempt_spec import events as ev
from preempt_spec.policies.progress import waits
from preempt_spec.view import Cycle, with_holes


def close(s: Shadow, sent: Sequence[ev.Sent]) -> None:
    """The step is over: the worker's tables, the high-water marks, the stall counter."""
    tell(s, sent)
    moved = False
    for request, (start, tokens) in s.plan.granted.items():
        r = s.requests[request]
        moved = moved or start + tokens > r.peak
        r.set_peak(start + tokens)
        if s.looks:
            r.suspect = False  # all it attends was just looked at
    settle_step(s, moved)
    s.settle_in(s.rows)


def tell(s: Shadow, sent: Sequence[ev.Sent | wire.Sent]) -> None:
    """The worker is told of tables."""
    for x in sent:
        r = s.requests[x.request]
        table = r.split()[x.group]
        if x.full:
            table.clear()
        table.extend(with_holes(s.groups[x.group], s.reserved(x.group), x.blocks))
        r.rejoin()


def settle_step(s: Shadow, moved: bool) -> None:
    """What lasted for one step ends with it."""
    plan = s.plan
    for request in plan.admitted:
        s.requests[request].preempted = False
    # An empty step is no idleness of the engine's while it waits for somebody else.
    idle = not plan.granted and waits(s)
    if moved or not s.requests:
        s.stall = 0
    elif not idle:
        s.stall += 1
    if not s.stall:
        s.cycle = None
    elif not idle:
        s.cycle = _aged(s)
    s.aborted.clear()
    s.plan = Plan(plan.frame, ())


def _aged(s: Shadow) -> Cycle:
    if s.cycle is None:
        return Cycle(s.fingerprint(), s.preemptions)
    if s.cycle.age + 1 == s.cycle.until:
        return Cycle(s.fingerprint(), s.preemptions, until=2 * s.cycle.until)
    return evolve(s.cycle, age=s.cycle.age + 1)
