"""The prediction is a scheduler that keeps every rule but those vLLM breaks: F1 and F2, which it must have as well."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from attrs import evolve

from preempt_oracle import vectors
from preempt_oracle.lockstep.modes import POLICIES, Mode, generated, select
from preempt_oracle.lockstep.predicted import VERSIONS, Predicted
from preempt_properties.play import header, play
from preempt_properties.scenario import Add, Config, Scenario, Step, loads
from preempt_spec import events as ev
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import OBSERVES
from preempt_spec.rules import Violation
from preempt_spec.state import initial
from preempt_spec.system import clauses, run

CLAUSES = clauses(OBSERVES)
F1, F2 = "resume/publish", {"live/no-thrash", "live/progress"}


def predicted(version: str, mode: Mode, config: Config) -> Predicted:
    policy, _ = PROFILES[mode.policy].as_built("vllm", version)
    told = evolve(header(config, reserved=1), engine="vllm", version=version)
    return Predicted(told, policy, mode.build(version, config.drafts))


def judged(version: str, mode: Mode, scenario: Scenario) -> tuple[list[ev.Event], tuple[Violation, ...]]:
    engine = predicted(version, mode, scenario.config)
    state, seen = initial(engine.header, engine.policy), list[ev.Event]()
    for event in play(scenario, engine):
        seen.append(event)
        out = run(state, event, CLAUSES)
        if out.violations:
            return seen, out.violations
        state = out.state
    return seen, ()


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("version", VERSIONS)
def test_it_keeps_all_rules_but_those_that_vllm_breaks(version: str, policy: str):
    modes, broken = select((policy,), ""), Counter[str]()
    for seed in range(20):
        mode = modes[13 * seed % len(modes)]  # all over the list, which has like beside like
        scenario = generated(seed, mode)
        _, violations = judged(version, mode, scenario)
        broken.update(v.rule for v in violations[:1])
        if F2 & {v.rule for v in violations}:
            ranks = Counter((a.priority, a.arrival) for a in scenario.script if isinstance(a, Add))
            assert not mode.whole_fit
            assert max(ranks.values()) > 1, "F2 is about ties"
    assert set(broken) <= ({F1, *F2} if policy == "vllm-priority" else set()), broken


def mode(words: str, policy: str = "vllm-fcfs") -> Mode:
    return select((policy,), words)[0]


def steps(version: str, mode: Mode, scenario: Scenario) -> list[ev.Step]:
    seen, violations = judged(version, mode, scenario)
    assert not violations
    return [e for e in seen if isinstance(e, ev.Step)]


PLAIN = mode("sync,no-drafts,no-watermark,chunked,whole-fit,no-long-prefill,caching")


def test_blocks_come_from_the_front_and_go_back_by_what_they_hold():
    # Five pages of two: the first request fills two pages and half of the third.
    scenario = Scenario(
        Config("vllm-fcfs", 5, 2, 2, 16, 8, caching=True),
        (Add("a", (1, 2, 3, 4, 5), 1), Step(), Add("b", (1, 2, 9), 1), Step()),
    )
    first, second = steps("0.33.0", PLAIN, scenario)[:2]
    assert first.blocks == (ev.Delta("a", 0, (1, 2, 3)),)
    # Its half page went to the front, the full ones, last page first, to the end; of those the first is hit.
    assert second.blocks == (ev.Delta("b", 0, (1, 3)),)
    assert second.hits == (ev.Hit("b", 2),)
    assert second.observed.free_ids == ((4, 5, 2),)


@pytest.mark.parametrize("name", ["fault-unwritten-pages", "fault-unwritten-decode"])
def test_pages_stay_published_when_their_grant_is_taken_back(name: str):
    scenario = loads((Path(vectors.__file__).parent / "scenarios" / f"{name}.toml").read_text())
    c = scenario.config
    words = ["sync", "no-drafts", "caching", "chunked", "whole-fit" if c.whole_fit else "part-fit"]
    words.append("long-prefill" if c.long_prefill else "no-long-prefill")
    _, violations = judged("0.33.0", mode(",".join(words), "vllm-priority"), scenario)
    assert [v.rule for v in violations[:1]] == [F1]


@pytest.mark.parametrize(("version", "goes_on"), [("0.31.0", False), ("0.33.0", True)])
def test_versions_differ_behind_a_self_preemption(version: str, goes_on: bool):
    # `a` is the worst and first in running; it cannot grow and preempts itself. `b` fits where it is.
    scenario = Scenario(
        Config("vllm-priority", 4, 2, 2, 16, 8),
        (Add("a", (1, 2, 3), 4, priority=1), Step(), Add("b", (4, 5, 6), 4), Step(4)),
    )
    it = mode("sync,no-drafts,no-watermark,chunked,whole-fit,no-long-prefill,no-caching", "vllm-priority")
    alone = [
        s.requests
        for s in steps(version, it, scenario)
        if any(isinstance(a, ev.Demote) and a.request in a.beneficiaries for a in s.acts)
    ]
    assert alone
    assert all((r == ("b",)) is goes_on for r in alone)


def test_it_is_a_pure_function_of_what_it_hears():
    it = mode("async,frames=4,drafts,caching", "vllm-priority")
    scenario = generated(5, it)
    assert judged("0.33.0", it, scenario) == judged("0.33.0", it, scenario)
