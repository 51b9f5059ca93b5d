"""The search: the same for the same seed, inside the contract, and further than chance in as many workloads."""

from __future__ import annotations

import pytest

from preempt_oracle.adapters.inprocess import InProcess
from preempt_oracle.adapters.protocol import Session
from preempt_oracle.adapters.reference import ReferenceEngine
from preempt_oracle.drive import Run, drive
from preempt_oracle.fuzz.search import CANDIDATES, CORPUS, FRESH, Search
from preempt_oracle.fuzz.states import PARTS
from preempt_properties.scenario import Scenario
from preempt_properties.workload import CAPABILITIES, EVERYTHING
from preempt_spec.policies.profiles import PROFILES


def searched(search: Search, policy: str, workloads: int) -> list[Scenario]:
    """Drive the reference through so many workloads."""
    session = Session(InProcess(ReferenceEngine(), "reference", "preempt_spec"))
    out = []
    for _ in range(workloads):
        out.append(search.scenario())
        run = drive(session, out[-1], policy=policy, watch=search.watch)
        if isinstance(run, Run):
            assert not run.violations
            search.ran(run)
    return out


@pytest.mark.long
@pytest.mark.parametrize("policy", PROFILES)
def test_the_same_seed_searches_alike(policy):
    can = EVERYTHING - {"offload"}
    one, other = Search(3, policy, can), Search(3, policy, can)
    assert searched(one, policy, 15) == searched(other, policy, 15)
    assert one.states == other.states
    assert one.sketched == other.sketched > 0
    assert searched(Search(4, policy, can), policy, 15) != searched(Search(3, policy, can), policy, 15)


@pytest.mark.long
def test_it_comes_further_than_chance_in_as_many_workloads():
    reached = {}
    for what, candidates, fresh in (("searched", CANDIDATES, FRESH), ("by chance", 1, 100)):
        states = 0
        for seed in range(2):
            search = Search(seed, "vllm-fcfs", CAPABILITIES, candidates=candidates, fresh=fresh)
            searched(search, "vllm-fcfs", 60)
            states += len(search.states)
        reached[what] = states
    assert reached["searched"] > 1.4 * reached["by chance"], reached


@pytest.mark.long
def test_what_reached_something_new_is_kept_and_the_common_goes():
    search = Search(0, "vllm-fcfs", CAPABILITIES)
    searched(search, "vllm-fcfs", 20)
    assert 0 < len(search.corpus) <= 20
    assert all(len(state) == len(PARTS) for state in search.states)
    assert all(0 <= n <= most for state in search.states for n, most in zip(state, PARTS.values(), strict=True))
    for i in range(2 * CORPUS):
        search.scenario()
        search._saw([(i,) * len(PARTS)], {})
    assert len(search.corpus) == CORPUS


def test_where_a_workload_came_from_is_told():
    search = Search(9, "vllm-fcfs", CAPABILITIES)
    search.scenario()
    search.scenario()
    assert (search.origin().words, search.origin().tag) == ("workload 2 of fuzz seed 9", "9-2")
