"""The file of evidence is what would be computed today: all of the counts, samples of the rest; everything, slowly."""

from __future__ import annotations

import pytest

from preempt_properties import evidence
from preempt_properties.evidence import Evidence, Heard, dumps, exercised, heard, load, others, renewed
from preempt_properties.known_bad import ZOO, KnownBad
from preempt_properties.known_bad.queues import RequeuesAtTheBack
from preempt_properties.known_bad.victims import LetsItStarve
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.rules import RULES

KEPT = load()
BY_NAME = {v.__name__: v for v in ZOO}
#: One scheduler per rule that nobody else is said to catch.
ALONE: dict[str, type[KnownBad]] = {}
for _variant in ZOO:
    if KEPT.alone(_variant):
        ALONE.setdefault(_variant.rule, _variant)
CAUGHT = {name: found for name, found in KEPT.known_bad.items() if found is not None}


@pytest.mark.long
@pytest.mark.parametrize("policy", PROFILES)
def test_the_counts_are_those_of_today(policy):
    assert dict(exercised(policy)) == KEPT.exercised[policy]


def test_every_scheduler_is_there():
    assert list(KEPT.known_bad) == [v.__name__ for v in ZOO]
    assert not evidence.load().alone(type("Unknown", (RequeuesAtTheBack,), {}))  # not known: not said to be alone


@pytest.mark.long
@pytest.mark.parametrize("rule", ALONE)
def test_nobody_else_catches_it_in_a_few_workloads(rule):
    variant = ALONE[rule]
    assert others(variant, 3) is None


@pytest.mark.parametrize("name", CAUGHT)
def test_who_else_catches_it_still_does(name):
    found = CAUGHT[name]
    assert found.rule != BY_NAME[name].rule
    assert heard(BY_NAME[name], found.policy, found.seed) == found.rule


def test_it_is_noticed_if_somebody_else_catches_it():
    assert others(RequeuesAtTheBack, 2) is None
    found = others(LetsItStarve, 8)
    assert found is not None
    assert found.rule in RULES.keys() - {LetsItStarve.rule}


def test_the_file_is_what_would_be_written_and_what_is_new_is_added(monkeypatch):
    assert dumps(KEPT) == evidence.FILE.read_text(encoding="utf-8")
    monkeypatch.setattr(evidence, "exercised", lambda policy: {"pool/conserve": 1})
    monkeypatch.setattr(evidence, "others", lambda variant: Heard("live/progress", "vllm-fcfs", 9))
    first, second = ZOO[:2]
    old = Evidence({}, {first.__name__: None, "Gone": None})
    new = renewed(old, (first, second))
    assert new.exercised == {policy: {"pool/conserve": 1} for policy in PROFILES}
    assert new.known_bad == {first.__name__: None, second.__name__: Heard("live/progress", "vllm-fcfs", 9)}


def test_usage(capsys):
    assert evidence.main(["--what"]) == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("variant", ZOO, ids=lambda v: v.__name__)
def test_everything_is_as_it_would_be_found_today(variant):
    assert others(variant) == KEPT.known_bad[variant.__name__]
