"""Versions of the specification: what came in when, what was reworded, and what is advisory."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from attrs import evolve

import preempt_spec
from preempt_spec import HISTORY, SPEC_VERSION, Release, UnknownVersion, release
from preempt_spec.reference import OBSERVES
from preempt_spec.rules import RULES, Kind
from preempt_spec.rules import rule as registry
from preempt_spec.rules.rule import EVIDENCE, advisory, edition, rule
from preempt_spec.system import clauses, observable

#: Version -> rule -> sentence, as it was published. Written once, when the version is released, and never changed.
PUBLISHED = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))


def test_versions_count_upwards_and_the_last_one_is_current():
    numbers = [r.number for r in HISTORY]
    assert numbers == sorted(set(numbers))
    assert HISTORY[-1].version == SPEC_VERSION
    assert Release("1.10").number > Release("1.9").number


def test_every_rule_says_when_it_came_in_and_every_change_of_wording_is_listed():
    """A new rule without `since`, or a new sentence without a line in HISTORY, fails here."""
    sentences: dict[str, str] = {}
    for known in HISTORY:
        published = PUBLISHED.get(known.version)
        if published is None:
            assert known is HISTORY[-1], f"{known.version} is not published, and something came after it"
            published = {r.id: r.sentence for r in edition(known.version)}
        came_in = published.keys() - sentences.keys()
        assert came_in == {r.id for r in RULES.values() if r.since == known.version}, known.version
        changed = {id for id in sentences if published[id] != sentences[id]}  # KeyError: ids are never taken away
        assert changed <= known.reworded.keys(), known.version
        assert known.reworded.keys() <= sentences.keys(), "only a rule that was there can be reworded"
        assert all(known.reworded.values())
        sentences = dict(published)
    assert sentences == {r.id: r.sentence for r in edition(SPEC_VERSION)}
    assert {r.id for r in edition(SPEC_VERSION)} == RULES.keys()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three more versions, and a rule that came in with each."""
    versions = ("7.0", "7.1", "7.2")
    monkeypatch.setattr(preempt_spec, "HISTORY", (*HISTORY, *map(Release, versions)))
    monkeypatch.setattr(registry, "RULES", dict(RULES))
    for version in versions:
        added = rule(f"test/since-{version}", Kind.POLICY, "Something.", since=version)
        assert added.since == version


NEW = {f"test/since-7.{minor}" for minor in (0, 1, 2)}


@pytest.mark.parametrize(
    ("version", "there", "advised"),
    [
        (HISTORY[0].version, set(), set()),  # nobody could have been without these
        ("7.0", {"test/since-7.0"}, set()),  # at a major version everything is binding
        ("7.1", {"test/since-7.0", "test/since-7.1"}, {"test/since-7.1"}),
        ("7.2", NEW, {"test/since-7.2"}),  # what was advisory a minor version ago is binding
    ],
)
def test_a_rule_is_advisory_in_the_minor_version_it_came_in_with(later, version, there, advised):
    ids = {r.id for r in edition(version)}
    assert ids & NEW == there
    assert advisory(version) == advised
    assert ids - NEW == {r.id for r in edition(HISTORY[0].version if not there else SPEC_VERSION)}


def test_clauses_and_observability_are_those_of_the_version(monkeypatch):
    monkeypatch.setattr(preempt_spec, "HISTORY", (*HISTORY, Release("7.0")))
    monkeypatch.setattr(registry, "RULES", {**RULES, "queue/front": evolve(RULES["queue/front"], since="7.0")})

    def of(version: str) -> set[str]:
        return {id for rows in clauses(OBSERVES, version).values() for id, _ in rows}

    assert of("7.0") - of(SPEC_VERSION) == {"queue/front"}
    assert observable(OBSERVES, "7.0") - observable(OBSERVES, SPEC_VERSION) == {"queue/front"}


def test_an_unknown_version_names_those_there_are():
    for asked in ("9.9", "", "0", "0.1 ", "v0.1"):
        with pytest.raises(UnknownVersion, match=rf"it has {HISTORY[0].version}"):
            release(asked)
    with pytest.raises(UnknownVersion):
        clauses(OBSERVES, "9.9")
    with pytest.raises(UnknownVersion):
        rule("test/never", Kind.MUST, "Never.", since="9.9")


def test_what_a_rule_lacks_is_evidence():
    with pytest.raises(ValueError, match="'nothing' is none of property, known-bad, alone, vector"):
        rule("test/never", Kind.MUST, "Never.", lacks={"nothing": "because"})
    assert "test/never" not in RULES
    assert all(r.lacks.keys() <= set(EVIDENCE) for r in RULES.values())
