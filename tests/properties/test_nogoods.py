"""A choice for every name that no known set of choices forbids."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preempt_properties.inference import KNOBS, Case, values_of
from preempt_properties.nogoods import Nogoods
from preempt_properties.play import header, play
from preempt_properties.workload import workload
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import Reference

DOMAINS = {"a": (0, 1), "b": (0, 1, 2), "c": (0, 1), "d": (0, 1, 2, 3)}
CHOICES = [(name, value) for name, domain in DOMAINS.items() for value in domain]
ALL = [dict(zip(DOMAINS, values, strict=True)) for values in product(*DOMAINS.values())]

sets = st.frozensets(st.sampled_from(CHOICES), min_size=1, max_size=4)


@settings(derandomize=True, deadline=None)
@given(
    st.lists(sets, max_size=24),
    st.sampled_from(ALL),
    st.lists(st.dictionaries(st.just("b"), st.sampled_from((0, 1, 2))), max_size=4),
)
def test_what_is_found_is_allowed_and_what_is_not_found_is_not_there(known, preferred, questions):
    search = Nogoods(DOMAINS)
    for nogood in known:
        search.add(nogood)

    def right(values, fixed):
        return fixed.items() <= values.items() and not any(n <= values.items() for n in known)

    for fixed in [{}, *questions, *({"d": v} for v in DOMAINS["d"])]:  # what is learned on the way stays true
        found = search.allowed(preferred, fixed)
        if found is None:
            assert not any(right(values, fixed) for values in ALL)
        else:
            assert right(found, fixed)
    if right(preferred, {}):
        assert search.allowed(preferred, {}) == preferred


def test_a_contradiction_without_a_choice_leaves_nothing():
    search = Nogoods(DOMAINS)
    search.add(frozenset())
    assert search.allowed(ALL[0], {}) is None


@pytest.mark.long
@pytest.mark.parametrize("policy", ["vllm-priority", "sglang-priority", "hf-cb"])
def test_what_does_not_go_together_does_not_whatever_the_others_are(policy: str):
    """A nogood names the knobs that a break is blamed on: every policy that has them breaks something in that run."""
    random, contract, tried = Random(7), PROFILES[policy].contract, 0
    for seed in range(8):
        scenario = workload(Random(seed), policy)
        head = header(scenario.config)
        case = Case(str(seed), head, tuple(play(scenario, Reference(head, contract))), contract)
        assert case.conflicts(values_of(contract)) == []
        for _ in range(20):
            some = {**values_of(contract), **{k: random.choice(KNOBS[k]) for k in random.sample([*KNOBS], 3)}}
            for conflict in case.conflicts(some)[:3]:
                others = {k: random.choice(domain) for k, domain in KNOBS.items()}
                assert case.conflicts({**others, **dict(conflict.nogood)}), conflict
                tried += 1
    assert tried > 30
