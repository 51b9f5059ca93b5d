"""Shortening: greedy, inside the contract, honest about how far it came."""

from __future__ import annotations

from random import Random

import pytest

from preempt_oracle.reduce import Weight, candidates, reduce, weight
from preempt_properties.scenario import Abort, Add, Scenario, Step, dumps, loads
from preempt_properties.workload import CAPABILITIES, EVERYTHING, workload
from preempt_spec.policies.policy import Phase
from preempt_spec.policies.profiles import PROFILES


def admissible(s: Scenario) -> bool:
    """What generated workloads promise, and engines may rely on."""
    c = s.config
    prefill_first = PROFILES[c.policy].contract.phase is Phase.PREFILL_FIRST
    room = (c.blocks - (c.watermark if prefill_first else 0)) * c.page_size
    alive: set[str] = set()
    leaving: set[str] = set()
    for command in s.script:
        match command:
            case Add(request):
                assert request not in alive
                alive.add(request)
                assert command.prompt
                assert command.max_tokens > 0
                assert len(command.prompt) + command.max_tokens <= c.max_length
            case Abort(request, "before"):
                alive.discard(request)
            case Abort(request):
                leaving.add(request)
            case Step():
                alive -= leaving
                leaving.clear()
    assert c.max_length <= room
    assert c.long_prefill <= c.max_length
    assert c.chunked or c.budget >= c.max_length
    assert not prefill_first or c.budget >= max(c.max_length, c.max_running)
    return True


@pytest.mark.profiles
@pytest.mark.parametrize("policy", PROFILES)
def test_every_candidate_is_admissible_and_can_be_written(policy):
    for seed in range(40):
        scenario = workload(Random(seed), policy, capabilities=EVERYTHING if seed % 2 else CAPABILITIES)
        for candidate in candidates(scenario):
            assert admissible(candidate)
            assert candidate != scenario
            assert loads(dumps(candidate)) == candidate


def size(s: Scenario) -> Weight:
    return weight(s, 0)


@pytest.mark.parametrize("policy", PROFILES)
def test_whatever_may_always_go_goes(policy):
    scenario = workload(Random(5), policy, capabilities=EVERYTHING)
    reduced = reduce(scenario, size(scenario), size, tries=5000)
    (add,) = reduced.scenario.script
    assert isinstance(add, Add)
    assert (len(add.prompt), add.max_tokens, add.arrival, add.priority) == (1, 1, 0, 0)
    config = reduced.scenario.config
    assert (config.frames, config.drafts, config.host_blocks, config.groups) == (1, 0, 0, "full")
    assert reduced.minimal
    assert reduced.note == f"locally minimal, {reduced.tries} tries"


def test_what_is_needed_stays():
    scenario = workload(Random(5), "vllm-fcfs", capabilities=CAPABILITIES)
    names = [c.request for c in scenario.script if isinstance(c, Add)]

    def breaks(s: Scenario) -> bool:
        here = [c for c in s.script if isinstance(c, Add)]
        return names[0] in [c.request for c in here] and sum(len(c.prompt) for c in here) >= 3

    reduced = reduce(scenario, size(scenario), lambda s: size(s) if breaks(s) else None, tries=5000)
    assert breaks(reduced.scenario)
    assert sum(len(c.prompt) for c in reduced.scenario.script if isinstance(c, Add)) == 3


def test_an_end_before_the_minimum_is_said():
    scenario = workload(Random(5), "vllm-fcfs", capabilities=CAPABILITIES)
    few = reduce(scenario, size(scenario), lambda s: None, tries=3)
    assert (few.scenario, few.tries, few.minimal) == (scenario, 3, False)
    assert "it may not be minimal" in few.note
    assert not reduce(scenario, size(scenario), size, deadline=0.0).minimal
    assert reduce(scenario, size(scenario), size, tries=0).note == "not shortened"
