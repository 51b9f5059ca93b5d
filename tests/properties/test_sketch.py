"""The sketch is the reference, wherever it says that it is; and what is decoded from bytes is a workload."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preempt_properties.drawn import Bytes
from preempt_properties.play import header, play
from preempt_properties.scenario import Scenario
from preempt_properties.sketch import Shown, Sketch, exact
from preempt_properties.workload import CAPABILITIES, EVERYTHING, workload
from preempt_spec import events as ev
from preempt_spec.policies.displacing import displaces
from preempt_spec.policies.policy import Release
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.policies.visits import passes_over
from preempt_spec.reference import Reference

#: The sketch makes room for one requester at a time, none of them waiting; under the others it only aims, and is held
#: to nothing.
SKETCHED = [
    n
    for n, p in PROFILES.items()
    if p.contract.release is Release.AT_ONCE and not passes_over(p.contract) and not displaces(p.contract)
]


def reference(scenario: Scenario) -> list[Shown]:
    """What the reference shows of the same, step by step."""
    shown: list[Shown] = []
    contract = PROFILES[scenario.config.policy].contract
    for e in play(scenario, Reference(header(scenario.config), contract)):
        if isinstance(e, ev.Step):
            victims = [a.request for a in e.acts if isinstance(a, ev.Demote)]
            o = e.observed
            assert o.running is not None
            assert o.waiting is not None
            assert o.free is not None
            grants = [*zip(e.requests, e.tokens, strict=True)]
            shown.append((grants, victims, [*o.running], [*o.waiting], o.free[0]))
    return shown


@pytest.mark.profiles
@pytest.mark.parametrize("policy", SKETCHED)
@given(data=st.binary(max_size=240))
def test_the_sketch_is_the_reference_step_by_step(policy: str, data: bytes):
    # Ties livelock under some policies, and then the two give up at different lengths: they are compared up to there.
    scenario = workload(Bytes(data), policy, capabilities=CAPABILITIES - {"caching"} | {"ties"})
    assert exact(scenario)
    mine: list[Shown] = []
    steps, states = Sketch(PROFILES[policy].contract).run(scenario, mine.append)
    assert len(mine) == steps
    assert 0 < len(states) <= steps
    theirs = reference(scenario)
    both = min(len(mine), len(theirs))
    assert mine[:both] == theirs[:both]
    assert len(mine) == len(theirs) or both > 30


@pytest.mark.parametrize("policy", SKETCHED)
@given(data=st.binary(max_size=240))
def test_it_ends_on_any_workload(policy: str, data: bytes):
    scenario = workload(Bytes(data), policy, capabilities=EVERYTHING | {"ties"})
    steps, _ = Sketch(PROFILES[policy].contract).run(scenario)
    assert 0 < steps <= 2000


def test_what_it_takes_for_plainer_is_not_exact():
    caching = workload(Bytes(bytes(range(200))), "nano-vllm")
    assert caching.config.caching
    assert not exact(caching)


@given(data=st.binary(max_size=60), n=st.integers(1, 3000))
def test_choices_read_off_bytes_are_in_range(data: bytes, n: int):
    random = Bytes(data)
    for _ in range(40):
        assert random.randrange(n) in range(n)
        assert random.randint(-n, n) in range(-n, n + 1)
        assert random.choice(range(n)) < n
        assert 0 <= random.random() < 1
    assert random.randrange(n) == 0  # used up
    items = [*range(7)]
    Bytes(data).shuffle(items)
    assert sorted(items) == [*range(7)]


def test_one_byte_is_one_choice():
    """So that a change of it changes one choice, and nothing that follows."""
    one, other = Bytes(bytes((3, 5, 7, 9))), Bytes(bytes((4, 5, 7, 9)))
    assert one.choice("abcde") != other.choice("abcde")
    assert [one.randint(1, 200) for _ in range(3)] == [other.randint(1, 200) for _ in range(3)]


def test_nothing_to_choose_from():
    for draw in (lambda r: r.randrange(0), lambda r: r.randint(1, 0)):
        with pytest.raises(ValueError, match="empty range"):
            draw(Bytes(b""))
    with pytest.raises(IndexError):
        Bytes(b"").choice(())
