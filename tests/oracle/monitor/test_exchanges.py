"""Blocks that give way to others: the monitor and the pure system see the same, right or wrong."""

from __future__ import annotations

from random import Random

import pytest
from attrs import evolve

from preempt_oracle.monitor import Monitor
from preempt_oracle.trace.convert import to_wire
from preempt_properties.play import header, play
from preempt_properties.workload import workload
from preempt_spec import events as ev
from preempt_spec.micro import Malformed
from preempt_spec.offload import reference
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import OBSERVES
from preempt_spec.state import initial
from preempt_spec.system import clauses, run

ACTIVE = clauses(OBSERVES)


def merged(random, state, step):
    """The step with some block of somebody's table exchanged for another, before or behind its grants."""
    tables = {r: q.tables[0] for r, q in state.requests.items() if q.tables[0]}
    if not tables:
        return step
    r = random.choice(sorted(tables))
    given, taken = random.choice(tables[r]), random.randrange(state.extent(0))
    act = ev.Exchange(r, (given,), (taken,), random.choice((0, len(step.requests))))
    acts = (act, *step.acts) if act.after == 0 else (*step.acts, act)
    return evolve(step, acts=acts)


@pytest.mark.profiles
@pytest.mark.parametrize("policy", ["vllm-fcfs", "nano-vllm", "lmdeploy"])
def test_the_monitor_sees_what_the_pure_system_sees(policy):
    ends = {"broken": 0, "held": 0}
    for seed in range(60):
        random = Random(seed)
        scenario = workload(random, policy)
        head, contract = header(scenario.config), PROFILES[policy].contract
        state, monitor = initial(head, contract), Monitor(head, contract)
        at = random.randrange(3, 12)
        for n, event in enumerate(play(scenario, reference(head, contract))):
            if n >= at and isinstance(event, ev.Step) and n < at + 4:
                event = merged(random, state, event)
            try:
                outcome = run(state, event, ACTIVE)
            except Malformed:
                with pytest.raises(Malformed):
                    monitor.feed(to_wire(event))
                break
            told = {v.rule for v in monitor.feed(to_wire(event))}
            assert told == {v.rule for v in outcome.violations}, (seed, event)
            if outcome.violations:
                ends["broken"] += 1
                break
            state = outcome.state
        else:
            ends["held"] += 1
    assert ends["broken"] > 20


def test_pairs_are_pairs():
    scenario = workload(Random(1), "nano-vllm")
    head, contract = header(scenario.config), PROFILES["nano-vllm"].contract
    arrived = run(initial(head, contract), ev.Arrive("a", (1,), 1), ACTIVE).state
    with pytest.raises(Malformed, match="instead"):
        run(arrived, ev.Step(0, acts=(ev.Exchange("a", (1, 2), (3,)),)), ACTIVE)
