"""Advisory rules: judged like the others, kept apart, ending nothing; by the pure system and the monitor alike.

No rule need be advisory today: rules of today are said to have come in with a version that only these tests have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import pytest
from attrs import evolve

import preempt_spec
from preempt_oracle.adapters.inprocess import InProcess
from preempt_oracle.adapters.protocol import Refused, Session
from preempt_oracle.adapters.reference import ReferenceEngine
from preempt_oracle.check import check
from preempt_oracle.drive import drive
from preempt_oracle.equality import drawn
from preempt_oracle.monitor import Monitor
from preempt_oracle.monitor import counts as short_cuts
from preempt_oracle.trace.convert import to_wire
from preempt_oracle.vectors.catalogue import FOLDER
from preempt_oracle.verdict import Standing, Verdict
from preempt_properties.known_bad import ZOO
from preempt_properties.play import header, play
from preempt_properties.scenario import Add, Config, Scenario
from preempt_properties.strategies import Stream
from preempt_properties.workload import CAPABILITIES, workload
from preempt_spec import HISTORY, SPEC_VERSION, Release
from preempt_spec import micro as mi
from preempt_spec.micro import Malformed
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.policies.visits import passes_over
from preempt_spec.rules import RULES, Kind
from preempt_spec.rules.rule import advisory, on, rule
from preempt_spec.state import initial
from preempt_spec.system import clauses, run
from preempt_spec.view import View

NEXT = "98.1"  # a minor version to come

#: Rules without which the transitions go on as they always did: what they forbid can be followed. Of the others (a
#: request in two places, a block that nobody owns given back …) the state after a violation is not defined, and no rule
#: like them could come in as advisory.
FOLLOWED = ("victim/choice", "victim/necessity", "victim/minimal", "queue/front", "queue/order", "queue/admission")


@pytest.fixture
def upcoming(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minor version in which FOLLOWED came in."""
    monkeypatch.setattr(preempt_spec, "HISTORY", (*HISTORY, Release(NEXT)))
    for id in FOLLOWED:
        monkeypatch.setitem(RULES, id, evolve(RULES[id], since=NEXT))


def either(judge: Callable[[], Any]) -> tuple[str, Any]:
    """What a judge says, or why the event makes no sense to it."""
    try:
        return "", judge()
    except Malformed as e:
        return str(e), None


def lockstep(s: Stream, spec: str) -> tuple[str, Counter[str]]:
    """Both judge the stream. Returns how it ended, and how often each advisory rule spoke."""
    state, monitor = initial(s.header, s.policy), Monitor(s.header, s.policy, spec)
    active, advice = clauses(s.header.observes, spec), advisory(spec)
    told: Counter[str] = Counter()
    for n, event in enumerate(s.events):
        before = Counter(monitor.exercised)
        malformed, outcome = either(partial(run, state, event, active, advice))
        fault, broken = either(partial(monitor.feed, to_wire(event)))
        assert fault == malformed, (n, event)
        if malformed:
            return "malformed", told
        assert sorted(map(str, broken)) == sorted(map(str, outcome.violations)), (n, event)
        assert sorted(map(str, monitor.advised)) == sorted(map(str, outcome.advised)), (n, event)
        assert monitor.exercised - before == Counter(outcome.exercised), (n, event)
        told.update(v.rule for v in outcome.advised)
        if broken:
            return broken[0].rule, told
        state = outcome.state
    return "conforms", told


def breaking(policy: str, seeds: range) -> Iterator[Stream]:
    """Schedulers that break one of FOLLOWED again and again."""
    for variant in ZOO:
        if variant.rule in FOLLOWED and policy in variant.policies:
            for seed in seeds:
                scenario = workload(Random(seed), policy, capabilities=CAPABILITIES | variant.needs)
                head, contract = header(scenario.config), variant.contract(PROFILES[policy].contract)
                events = tuple(play(scenario, variant(head, contract)))
                yield Stream(scenario, head, contract, events, variant.__name__, 0)


#: Few known-bad schedulers make room behind a whole pass: too few rules are followed there.
SEVERAL = [p for p, profile in PROFILES.items() if not passes_over(profile.contract)]


@pytest.mark.profiles
@pytest.mark.parametrize("policy", SEVERAL)
def test_monitor_and_pure_system_agree_on_advice_and_go_on_behind_it(policy, upcoming):
    ends: Counter[str] = Counter()
    told: Counter[str] = Counter()
    often = 0
    for s in (*drawn(policy, range(6)), *breaking(policy, range(2))):
        end, spoke = lockstep(s, NEXT)
        ends[end] += 1
        told.update(spoke)
        often += spoke.total() > 1
        # By the version before, the run is the same, and nobody speaks.
        assert lockstep(s, SPEC_VERSION) == (end, Counter())
    assert ends.keys().isdisjoint(FOLLOWED)
    assert ends["conforms"] >= 10, ends
    assert told.keys() <= set(FOLLOWED)
    assert len(told) >= 3, told
    assert often >= 3  # it went on, and spoke again


@pytest.mark.long
def test_by_every_version_both_agree():
    """Leaving rules out must leave transitions that can be followed: a newer rule is nobody's precondition."""
    for release in HISTORY[:-1]:
        for policy in PROFILES:
            for s in drawn(policy, range(15)):
                lockstep(s, release.version)


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A rule that exists in these tests only, and speaks at the end of every third step."""
    monkeypatch.setattr(preempt_spec, "HISTORY", (*HISTORY, Release(NEXT)))
    kept = dict(RULES)
    new = rule("live/every-third", Kind.POLICY, "No third step.", since=NEXT)

    @on(new, mi.Close, "counts")
    def no_third_step(s: View, e: Any) -> Iterator[str | None]:
        """Every third."""
        yield "the third" if e.step.frame % 3 == 2 else None

    monkeypatch.setattr(short_cuts, "_SILENT", (*short_cuts._SILENT, "no_third_step"))
    short_cuts._same_clauses.cache_clear()
    try:
        yield new.id
    finally:
        RULES.clear()
        RULES.update(kept)
        short_cuts._same_clauses.cache_clear()


GOOD = FOLDER / "traces" / "fcfs-cached.vllm-0.33.0.jsonl"


@pytest.mark.as_written
def test_a_verdict_does_not_depend_on_advice_and_tells_of_it(third):
    before = check(GOOD, spec=SPEC_VERSION)
    assert before.verdict is Verdict.CONFORMS
    assert third not in before.standings
    tally = check(GOOD, spec=NEXT)
    assert tally.verdict is Verdict.CONFORMS
    assert tally.standings[third] is Standing.ADVISED
    assert dict(tally.advised) == {third: 1}
    assert (tally.steps, tally.exercised - before.exercised) == (before.steps, Counter({third: before.steps}))
    (failure,) = tally.failures
    assert failure.advisory
    assert failure.violation.rule == third
    assert failure.frame == 2


@pytest.mark.as_written
def test_an_advisory_rule_that_held_or_was_not_exercised_is_no_part_of_the_core_either(third, monkeypatch):
    name = "vllm-fcfs"
    profile = evolve(PROFILES[name], core=(*PROFILES[name].core, third))
    monkeypatch.setitem(PROFILES, name, profile)
    assert third not in check(GOOD, spec=NEXT).core
    assert check(GOOD, spec=NEXT).verdict is Verdict.CONFORMS
    # One minor version later it binds.
    monkeypatch.setattr(preempt_spec, "HISTORY", (*HISTORY, Release(NEXT), Release("98.2")))
    later = check(GOOD, spec="98.2")
    assert third in later.core
    assert later.verdict is Verdict.VIOLATES
    assert dict(later.times) == {third: 1}


@pytest.mark.as_written
def test_a_driven_run_goes_on_behind_advice(third):
    config = Config("vllm-fcfs", 4, 2, 3, 16, 8)
    scenario = Scenario(config, (Add("a", (1, 2, 3), 5), Add("b", (4, 5), 5)))
    session = Session(InProcess(ReferenceEngine(), "reference", ReferenceEngine.package), {})
    found = drive(session, scenario, spec=NEXT)
    session.close()
    assert not isinstance(found, Refused)
    assert not found.violations
    assert [v.rule for v in found.advised] == [third]  # the first of each rule
    assert found.monitor.steps > 5


def test_without_advisory_rules_nothing_is_wrapped():
    head = header(Config("vllm-fcfs", 4, 2, 3, 16, 8))
    monitor = Monitor(head, PROFILES["vllm-fcfs"].contract)
    assert advisory(SPEC_VERSION) or monitor._judging is monitor.active
