"""What a scheduler did, and which policies it leaves possible."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest
from attrs import evolve

from preempt_properties.inference import KNOBS, Case, Explained, Unexplained, explain, values_of
from preempt_properties.play import header, play
from preempt_properties.scenario import Add
from preempt_properties.telling import WIDER, Ran, narrowed
from preempt_properties.workload import EVERYTHING, workload
from preempt_spec import events as ev
from preempt_spec.micro import Malformed
from preempt_spec.policies.policy import (
    AfterPreemption,
    AfterSelf,
    Memory,
    Need,
    Policy,
    Release,
    Slots,
    Victim,
)
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import Reference
from preempt_spec.state import initial
from preempt_spec.system import clauses, run

pytestmark = pytest.mark.long  # seconds each; what the commands make of it is in tests/oracle/cli/test_infer.py

#: Of an engine that prefills first, and of one that passes over, nothing more can be told than what these leave.
RARELY = {"phase", "after_preemption", "fence", "gate", "hits", "oversize", "progress", "reads", "stale", "twins"}
BATCHES = {"after_preemption", "after_self", "publish", "fence", "gate", "oversize", "stale", "twins"}
#: What no run of the reference can tell, as long as the other knobs are as they are.
LEFT_OPEN: dict[str, set[str]] = {
    "vllm-fcfs": {"victim", "after_self", "fence", "gate", "hits", "memory", "oversize", "reads", "twins"},
    "vllm-priority": {"fence", "gate", "hits", "memory", "oversize", "twins"},
    "nano-vllm": RARELY | {"victim", "requeue", "after_self", "memory"},
    "vidur-vllm": RARELY | {"after_self", "memory"},
    "vllm-v0-swap": RARELY - {"after_preemption"} | {"victim", "after_self"},
    "lmdeploy": RARELY | {"victim", "idle"},
    "sglang-retract": RARELY | {"memory", "publish"},
    "sglang-priority": RARELY | {"memory", "publish"},
    "hf-cb": BATCHES | {"memory"},
    "hf-cb-prefill-first": BATCHES | {"memory"},
    "hf-cb-offload": BATCHES,
}


def ran(policy: str, seeds: range, followed: Policy | None = None) -> list[Ran]:
    """Runs of the reference, under the contract or another policy."""
    contract, runs = PROFILES[policy].contract, []
    for seed in seeds:
        random = Random(seed)
        scenario = workload(random, policy, capabilities=EVERYTHING - {"offload"})
        if not any(getattr(c, "priority", 0) for c in scenario.script):
            script = (evolve(c, priority=random.randrange(3)) if isinstance(c, Add) else c for c in scenario.script)
            scenario = evolve(scenario, script=tuple(script))
        head = header(scenario.config)
        events = tuple(play(scenario, Reference(head, followed or contract)))
        runs.append(Ran(scenario, Case(f"seed {seed}", head, events, contract)))
    return runs


def explained(runs: list[Ran], policy: str) -> Explained:
    found = explain([r.case for r in runs], PROFILES[policy].contract)
    assert isinstance(found, Explained)
    return found


@pytest.mark.parametrize("policy", PROFILES)
def test_the_reference_is_taken_for_what_it_is(policy: str):
    runs, contract = ran(policy, range(100)), PROFILES[policy].contract
    knobs = narrowed(explained(runs, policy), runs, contract)
    assert {k.name for k in knobs} == set(KNOBS)
    assert {k.name: k.possible for k in knobs if getattr(contract, k.name) not in k.possible} == {}
    assert {k.name for k in knobs if k.value is None} == LEFT_OPEN[policy]


@pytest.mark.parametrize(
    ("policy", "knob", "value"),
    [
        ("vllm-fcfs", "after_preemption", AfterPreemption.OPEN),
        ("vllm-fcfs", "victim", Victim.WORST_PRIORITY),
        ("vllm-priority", "after_self", AfterSelf.STOP),
        ("nano-vllm", "slots", Slots.RUNNING),
        ("vidur-vllm", "need", Need.ONE_FREE),
        ("vllm-v0-swap", "memory", Memory.RECOMPUTE),
    ],
)
def test_a_neighbour_of_a_profile_is_told_from_it(policy: str, knob: str, value: Any):
    contract = PROFILES[policy].contract
    runs = ran(policy, range(40), evolve(contract, **{knob: value}))
    found = {k.name: k for k in narrowed(explained(runs, policy), runs, contract)}
    assert found[knob].value is value
    own = getattr(contract, knob)
    evidence = next((x for x in found[knob].refuted if x.value is own), None)
    # Either something broke under the profile's own value, or that only allows what was never done.
    if evidence is None:
        assert own in [wide for wide, _ in found[knob].unused]
    elif evidence.conflict is not None:
        assert (knob, own) in evidence.conflict.nogood


@pytest.mark.parametrize("policy", PROFILES)
def test_conflicts_are_what_judging_by_that_policy_finds(policy: str):
    random, contract = Random(policy), PROFILES[policy].contract
    agreed = {True: 0, False: 0}
    for one in ran(policy, range(12)):
        for _ in range(8):
            some = random.sample(sorted(KNOBS), random.randrange(6))
            changed: dict[str, Any] = {k: random.choice(KNOBS[k]) for k in some}
            conflicts = one.case.conflicts({**values_of(contract), **changed})
            assert bool(conflicts) is broken(one.case, evolve(contract, **changed)), (one.case.name, changed)
            agreed[bool(conflicts)] += 1
            for c in conflicts:
                # The knobs that it does not name have no say in it.
                others: dict[str, Any] = {k: random.choice(KNOBS[k]) for k in KNOBS if k not in dict(c.nogood)}
                assert broken(one.case, evolve(contract, **{**changed, **others}))
    assert min(agreed.values()) >= 5, agreed


def broken(case: Case, policy: Policy) -> bool:
    """Whether the pure system, under that policy, finds anything in it."""
    state, active = initial(case.header, policy), clauses(case.header.observes)
    for event in case.events:
        try:
            outcome = run(state, event, active)
        except Malformed:
            return True
        if outcome.violations:
            return True
        state = outcome.state
    return False


@pytest.mark.parametrize("policy", PROFILES)
def test_a_wider_value_refutes_nothing_that_a_narrower_one_explains(policy: str):
    values = values_of(PROFILES[policy].contract)
    for knob, orders in WIDER.items():
        for narrow, wide in (pair for order in orders for pair in pairwise(order)):
            only: dict[str, Any] = {knob: narrow}
            told = evolve(PROFILES[policy].contract, **only)
            for one in ran(policy, range(10), told):
                if one.scenario.config.host_blocks and knob == "memory":
                    continue  # with a host tier, who swaps must
                if knob == "memory" and values["release"] is Release.LAZY:
                    continue  # who leaves its blocks to its victims copies nothing
                if wide is Need.AHEAD and values["victim"] is Victim.LAST_STARVED:
                    continue  # who starves goes unless it fits behind the pass: who fits by less may be left
                if not one.case.conflicts({**values, knob: narrow}):
                    assert one.case.conflicts({**values, knob: wide}) == [], (knob, wide, one.case.name)


def test_what_no_policy_explains_is_said_to_be_so():
    # Two schedulers cannot be one.
    contract = PROFILES["vllm-fcfs"].contract
    runs = ran("vllm-fcfs", range(40)) + ran("vllm-fcfs", range(40), evolve(contract, need=Need.ONE_FREE))
    found = explain([r.case for r in runs], contract)
    assert isinstance(found, Unexplained)
    assert {c.rule for _, c in found.conflicts} == {"victim/necessity"}


def test_what_no_policy_explains_of_one_run_is_left_out_and_told():
    # Another policy than the one that is thought of first, and a lie late in one run: what came before it still tells.
    contract = PROFILES["vllm-fcfs"].contract
    runs = ran("vllm-fcfs", range(30), evolve(contract, victim=Victim.WORST_PRIORITY))
    one = max((r.case for r in runs if r.case.conflicts(values_of(contract))), key=lambda c: len(c.events))
    at, step = [(n, e) for n, e in enumerate(one.events) if isinstance(e, ev.Step) and e.start][-1]
    lie = evolve(step, start=tuple(n + 1 for n in step.start or ()))
    case = Case("lie", one.header, (*one.events[:at], lie, *one.events[at + 1 :]), one.policy)
    found = explain([case], contract)
    assert isinstance(found, Explained)
    [(where, conflict)] = found.cut
    assert where is case
    assert conflict.event == at
    assert Victim.LAST_RUNNING not in next(k for k in found.knobs if k.knob == "victim").possible


def test_a_run_that_breaks_at_once_tells_nothing_and_is_told():
    one = ran("vllm-fcfs", range(1))[0].case
    case = Case("crash", one.header, (ev.EngineError("engine", "KeyError", "", ""), *one.events), one.policy)
    found = explain([case], one.policy)
    assert isinstance(found, Explained)
    assert [(c.rule, c.event) for _, c in found.cut] == [("live/survives", 0)]
    assert {k.possible for k in found.knobs} == set(KNOBS.values())
