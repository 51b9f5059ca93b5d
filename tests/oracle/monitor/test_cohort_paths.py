"""The cohort's short cuts with many running requests: the monitor equals the pure system, also where one event lies.

Small pools with few requests hardly leave the clauses. Here 8 to 20 requests decode for long, so that whole columns,
growing tables, victims, admissions, hits and chunks meet in one step; then single events are changed at random, and
both judges go on from there. The pure states are kept, so that only the changed part is judged twice.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random
from typing import Any, cast

import msgspec
import pytest
from attrs import evolve, frozen

from preempt_oracle.monitor import Monitor
from preempt_oracle.monitor.cohort import Cohort
from preempt_oracle.monitor.mixed import Mixed
from preempt_oracle.monitor.plain import Plain
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_wire
from preempt_oracle.trace.errors import Fault
from preempt_oracle.trace.structure import Structure
from preempt_properties.corruption import corrupt
from preempt_properties.play import header, play
from preempt_properties.scenario import Abort, Add, Config, Scenario, Step
from preempt_spec import events as ev
from preempt_spec.micro import Malformed
from preempt_spec.policies.functions import passes_over
from preempt_spec.policies.policy import Memory, Phase
from preempt_spec.policies.profiles import PROFILES
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


def scenario(random: Random, policy: str) -> Scenario:
    """Many requests that outgrow the pool together, none of them alone."""
    page, running = random.choice((1, 2, 3, 4)), random.randint(8, 20)
    first = PROFILES[policy].contract.phase is Phase.PREFILL_FIRST
    swaps = PROFILES[policy].contract.memory is Memory.SWAP
    length = random.randint(20, 32)
    chunked = not first and random.random() < 0.7
    config = Config(
        policy=policy,
        blocks=running * length // page // 3,
        page_size=page,
        max_running=running,
        budget=running + random.randint(4, 12) if chunked else running * length,
        max_length=length,
        chunked=chunked,
        caching=random.random() < 0.5,
        frames=1 if first else random.choice((1, 2, 3)),
        host_blocks=running * length // page // 6 if swaps else 0,
    )
    chunk = tuple(random.randrange(5) for _ in range(8))
    script: list[Any] = []
    for n in range(running + 4):
        own = tuple(random.randrange(5) for _ in range(random.randint(1, 6)))
        prompt = chunk + own if random.random() < 0.5 else own
        script.append(Add(f"r{n}", prompt, random.randint(6, length - len(prompt)), random.randrange(3), n // 2))
        if n > running // 2:
            script.append(Step(random.randint(1, 3)))
    for n in random.sample(range(running), 2):
        script += [Step(random.randint(1, 4)), Abort(f"r{n}")]
    return Scenario(config, tuple(script))


@cache
def crowd(policy: str, seed: int) -> Crowd:
    s = scenario(Random(seed), policy)
    head, contract = header(s.config), PROFILES[policy].contract
    state, active = initial(head, contract), clauses(head.observes)
    events, states = tuple(thinned(e) for e in play(s, Reference(head, contract))), []
    for event in events:
        states.append(state)
        outcome = run(state, event, active)
        assert not outcome.violations, (policy, seed, event, outcome.violations)
        state = outcome.state
    return Crowd(head, events, tuple(states))


def thinned(e: ev.Event) -> ev.Event:
    """Without what no engine shows: the free list, which would send every step to the clauses."""
    if not isinstance(e, ev.Step):
        return e
    return evolve(e, observed=evolve(e.observed, free_ids=None))


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
    paths = ["_decode", "deliver", "finish", "step"]
    if PROFILES[policy].contract.memory is Memory.RECOMPUTE:
        paths.append("preemption")  # who is swapped out is for the clauses
    if PROFILES[policy].contract.phase is Phase.MIXED:
        paths.append("admission")  # elsewhere the running requests wait, which is for the clauses
    assert min(taken[path] for path in paths) >= 4, taken


@pytest.mark.parametrize("policy", PROFILES)
@pytest.mark.parametrize("seed", SEEDS)
def test_crowds_with_a_lie(policy: str, seed: int):
    c = crowd(policy, seed)
    random, active, structure = Random(seed), clauses(c.header.observes), Structure(to_wire(c.header))

    def readable(event: ev.Event) -> bool:
        try:
            line = wire.DECODER.decode(wire.ENCODER.encode(to_wire(event)))
            structure.check(cast(wire.Event, line))
        except (Fault, msgspec.MsgspecError, TypeError, ValueError, OverflowError):
            return False
        return True

    ends: Counter[str] = Counter()
    for _ in range(LIES):
        lying = corrupt(random, c.events, readable)
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
