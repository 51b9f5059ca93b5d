"""The cohort's short cuts with many running requests: the monitor equals the pure system, also where one event lies.

Small pools with few requests hardly leave the clauses. Here 8 to 20 requests decode for long, so that whole columns,
growing tables, victims, admissions, hits and chunks meet in one step; then single events are changed at random, and
both judges go on from there. The pure states are kept, so that only the changed part is judged twice.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random
from typing import Any

import pytest
from attrs import frozen

from preempt_oracle.equality import readable, unlisted
from preempt_oracle.monitor import Monitor
from preempt_oracle.monitor.cohort import Cohort
from preempt_oracle.monitor.mixed import Mixed
from preempt_oracle.monitor.plain import Plain
from preempt_oracle.trace.convert import to_wire
from preempt_properties.corruption import corrupt
from preempt_properties.crowd import crowded
from preempt_properties.play import header, play
from preempt_spec import events as ev
from preempt_spec.micro import Malformed
from preempt_spec.policies.policy import Memory, Need, Phase, Release
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.policies.visits import passes_over
from preempt_spec.reference import Reference
from preempt_spec.state import State, initial
from preempt_spec.system import clauses, run

SEEDS = range(3)
LIES = 100  # changed streams per valid one
AFTER = 5  # events judged behind a lie


@frozen
class Crowd:
    """A valid stream, and the pure state before each of its events."""

    header: ev.Header
    events: tuple[ev.Event, ...]
    states: tuple[State, ...]


@cache
def crowd(policy: str, seed: int) -> Crowd:
    s = crowded(Random(seed), policy)
    head, contract = header(s.config), PROFILES[policy].contract
    state, active = initial(head, contract), clauses(head.observes)
    events, states = tuple(unlisted(e) for e in play(s, Reference(head, contract))), []
    for event in events:
        states.append(state)
        outcome = run(state, event, active)
        assert not outcome.violations, (policy, seed, event, outcome.violations)
        state = outcome.state
    return Crowd(head, events, tuple(states))


def agree(monitor: Monitor, state: State, event: ev.Event, active: Any) -> State | None:
    """Both judge one event alike. The next state; None if the run ends here."""
    before = Counter(monitor.exercised)
    try:
        outcome, malformed = run(state, event, active), ""
    except Malformed as e:
        outcome, malformed = None, str(e)
    try:
        broken, fault = monitor.feed(to_wire(event)), ""
    except Malformed as e:
        broken, fault = [], str(e)
    assert fault == malformed, event
    if outcome is None:
        return None
    assert sorted(map(str, broken)) == sorted(map(str, outcome.violations)), event
    assert monitor.exercised - before == Counter(outcome.exercised), event
    return None if broken else outcome.state


#: Under the others, which make room behind a whole pass, all goes through the clauses.
SHORT = [p for p, profile in PROFILES.items() if not passes_over(profile.contract)]


@pytest.mark.as_written
@pytest.mark.profiles
@pytest.mark.parametrize("policy", SHORT)
def test_valid_crowds(policy: str, monkeypatch: pytest.MonkeyPatch):
    taken: Counter[str] = Counter()

    def count(owner: Any, name: str, yes: Any) -> None:
        method = getattr(owner, name)

        def counted(self: Any, *args: Any) -> Any:
            result = method(self, *args)
            taken[name] += bool(yes(result))
            return result

        monkeypatch.setattr(owner, name, counted)

    for name in ("_decode", "deliver", "finish"):
        count(Cohort, name, lambda result: result is not None)
    for name in ("preemption", "admission"):
        count(Plain, name, bool)
    count(Mixed, "step", lambda result: result is not None)
    for seed in SEEDS:
        c = crowd(policy, seed)
        active, monitor = clauses(c.header.observes), Monitor(c.header, PROFILES[policy].contract)
        for state, event in zip(c.states, c.events, strict=True):
            assert agree(monitor, state, event, active) is not None
    paths, contract = ["_decode", "deliver", "finish"], PROFILES[policy].contract
    lazy = contract.release is Release.LAZY
    if not lazy:  # a release for somebody else's sake, and grants from the last to the first, are for the clauses
        paths.append("step")
    if contract.memory is Memory.RECOMPUTE and contract.need is not Need.TOGETHER and not lazy:
        paths.append("preemption")  # who is swapped out, or goes for all of the others, is for the clauses
    if contract.phase is Phase.MIXED:
        paths.append("admission")  # elsewhere the running requests wait, which is for the clauses
    assert min(taken[path] for path in paths) >= 4, taken


@pytest.mark.profiles
@pytest.mark.parametrize("policy", PROFILES)
@pytest.mark.parametrize("seed", [SEEDS[0], *(pytest.param(s, marks=pytest.mark.long) for s in SEEDS[1:])])
def test_crowds_with_a_lie(policy: str, seed: int):
    c = crowd(policy, seed)
    random, active, form = Random(seed), clauses(c.header.observes), readable(c.header)
    ends: Counter[str] = Counter()
    for _ in range(LIES):
        lying = corrupt(random, c.events, form)
        first = next((i for i, (a, b) in enumerate(zip(lying, c.events, strict=False)) if a is not b), None)
        if first is None:
            continue
        monitor, state = Monitor(c.header, PROFILES[policy].contract), c.states[first]
        for event in c.events[:first]:
            assert not monitor.feed(to_wire(event))
        for event in lying[first : first + AFTER]:
            now = agree(monitor, state, event, active)
            if now is None:
                break
            state = now
        ends[monitor.violations[0].rule if monitor.violations else "no violation"] += 1
    assert len(ends) >= 8, ends
