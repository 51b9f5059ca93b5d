"""The registry: every rule can be named, quoted and looked up, and every clause says what it checks."""

from __future__ import annotations

import re

import pytest

from preempt_spec import micro
from preempt_spec.events import OBSERVABLE
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.rules import RULES, Kind, edge, frame, live, output, pool, queue, resume, swap, victim
from preempt_spec.rules.rule import rule

FAMILIES = {m.__name__.rsplit(".", 1)[1]: m for m in (pool, victim, queue, resume, swap, frame, output, live, edge)}


@pytest.mark.parametrize("id", RULES)
def test_rule_is_quotable(id: str):
    r = RULES[id]
    assert r.id == id
    assert re.fullmatch(r"[a-z]+/[a-z]+(-[a-z]+)*", id)
    assert r.family in FAMILIES
    assert r.sentence
    assert r.sentence[0].isupper()
    assert r.sentence.endswith(".")
    assert r.kind in Kind


@pytest.mark.parametrize("id", RULES)
def test_rule_has_clauses_that_say_what_they_check(id: str):
    assert RULES[id].clauses
    for event, needs, clause in RULES[id].clauses:
        assert clause.__doc__, clause.__name__
        assert clause.__doc__.endswith("."), clause.__name__
        assert needs <= OBSERVABLE.keys(), clause.__name__
        assert event in micro.Micro.__args__, clause.__name__
        assert clause.__module__ == FAMILIES[RULES[id].family].__name__  # found by its id, in the module of its family


def test_clause_names_are_unique():
    names = {clause.__name__: clause for r in RULES.values() for _, _, clause in r.clauses}
    clauses = {clause for r in RULES.values() for _, _, clause in r.clauses}
    assert len(names) == len(clauses)


def test_an_id_is_defined_once():
    with pytest.raises(ValueError, match="defined twice"):
        rule("pool/conserve", Kind.MUST, "Again.")


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_name_rules_and_sources(name: str):
    profile = PROFILES[name]
    assert profile.name == profile.contract.name == name
    assert set(profile.core) <= RULES.keys()
    knobs = {k for k in profile.contract.__attrs_attrs__ if k.name != "name"}
    assert {k.name for k in knobs} <= profile.sources.keys()
    assert all(profile.sources.values())
    for d in profile.deviations:
        assert getattr(profile.contract, d.knob) != d.value
        built, applied = profile.as_built(d.engine, d.versions[0])
        assert getattr(built, d.knob) == d.value
        assert d in applied
    assert profile.as_built("some engine", "0") == (profile.contract, ())
