"""The shortest counterexample: within its bounds nothing shorter is overlooked, and nothing more is claimed."""

from __future__ import annotations

import pytest

from preempt_oracle.adapters.inprocess import InProcess
from preempt_oracle.adapters.protocol import Refused, Session
from preempt_oracle.adapters.reference import ReferenceEngine
from preempt_oracle.drive import Run, actions, drive
from preempt_oracle.fuzz.search import Search
from preempt_oracle.reduce import Weight, reduce, weight
from preempt_oracle.shortest import shortest
from preempt_properties.known_bad.base import KnownBad
from preempt_properties.known_bad.queues import RequeuesAtTheBack
from preempt_properties.known_bad.reset import KeepsComputedTokens
from preempt_properties.known_bad.victims import PreemptsTheOldest, TakesOneMore
from preempt_properties.scenario import Add, Scenario, Step, loads
from preempt_properties.workload import CAPABILITIES

#: The true minimum of each, by thought: arrivals, steps until it shows.
MINIMA = {
    PreemptsTheOldest: 4,  # two arrive, both are prefilled, the first grows
    TakesOneMore: 4,  # likewise
    RequeuesAtTheBack: 5,  # and one more waits
    KeepsComputedTokens: 4,  # its release already says so
}


def session(variant: type[KnownBad]) -> Session:
    class Bad(ReferenceEngine):
        scheduler = variant

    return Session(InProcess(Bad(), variant.__name__, "preempt_spec"))


class Failing:
    """A known-bad scheduler, and a workload that shows it."""

    def __init__(self, variant: type[KnownBad], seed: int) -> None:
        self.session, self.rule, self.runs = session(variant), variant.rule, 0
        search = Search(seed, "vllm-fcfs", CAPABILITIES)
        for _ in range(100):
            self.scenario = search.scenario()
            run = drive(self.session, self.scenario, watch=search.watch)
            assert isinstance(run, Run)
            search.ran(run)
            if any(v.rule == self.rule for v in run.violations):
                self.start = weight(self.scenario, actions(run))
                return
        raise AssertionError(variant)

    def weigh(self, candidate: Scenario) -> Weight | None:
        self.runs += 1
        run = drive(self.session, candidate)
        if isinstance(run, Refused) or all(v.rule != self.rule for v in run.violations):
            return None
        return weight(candidate, actions(run))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("variant", MINIMA, ids=lambda v: v.__name__)
def test_the_true_minimum_is_found_from_any_seed(variant: type[KnownBad], seed: int):
    failing = Failing(variant, seed)
    found = shortest(failing.scenario, failing.start, failing.weigh)
    assert found.actions == MINIMA[variant]
    assert found.bounds.startswith("this configuration, ")
    assert f"{found.actions} actions, shortest in these bounds: " in found.note
    assert found.tries == failing.runs
    assert failing.weigh(found.scenario) is not None


LONG = '''
policy = "vllm-fcfs"
blocks = 4
page_size = 1
max_running = 4
budget = 8
max_length = 4
script = """
add a prompt=0 max=3
step
add b prompt=0 max=3
step
add c prompt=0 max=3
"""
'''


def test_what_delta_debugging_cannot_reach_the_search_does():
    """A failure that needs two requests in the same step, or three one after the other: nothing in between fails."""
    scenario = loads(LONG)

    def weigh(s: Scenario) -> Weight | None:
        adds = [c for c in s.script if isinstance(c, Add)]
        steps = sum(isinstance(c, Step) for c in s.script)
        together = len(adds) == 2 and not steps
        return weight(s, len(adds) + 2) if together or (len(adds) == 3 and steps == 2) else None

    start = weight(scenario, 7)
    assert reduce(scenario, start, weigh).actions == 5
    found = shortest(scenario, start, weigh)
    assert found.actions == 4
    assert found.bounds


def test_nothing_is_claimed_of_more_than_can_be_tried():
    scenario = loads(LONG)

    def weigh(s: Scenario) -> Weight | None:
        return weight(s, 20) if len(s.script) >= 5 else None

    found = shortest(scenario, weight(scenario, 20), weigh)
    assert found.minimal
    assert not found.bounds
    assert "locally minimal" in found.note


def test_an_end_before_the_minimum_claims_nothing():
    failing = Failing(RequeuesAtTheBack, 0)
    for found in (
        shortest(failing.scenario, failing.start, failing.weigh, tries=3),
        shortest(failing.scenario, failing.start, failing.weigh, deadline=0.0),
    ):
        assert not found.minimal
        assert not found.bounds
    assert failing.runs == 3
