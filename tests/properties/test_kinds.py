"""The table of public faults and the zoo are about the same schedulers, and what is kept of these is true."""

from __future__ import annotations

from collections import Counter

import pytest

from preempt_oracle.zoo_kept import breaks, kept_otherwise, stale
from preempt_properties.catch import finders
from preempt_properties.known_bad import ZOO
from preempt_properties.known_bad.kept import (
    FOUND,
    KILLS,
    SCENES,
    dump_found,
    dump_kills,
    dump_scenes,
    found,
    kills,
    scenes,
)
from preempt_properties.known_bad.kinds import load

KINDS = load()
BAD = {v.__name__: v for v in ZOO}


def test_every_kind_is_shown_or_says_why_not():
    for kind in KINDS.kinds:
        assert bool(kind.shown_by) != bool(kind.why.strip()), kind.id
        assert kind.reports, kind.id
        assert kind.fault.endswith("."), kind.id
        assert kind.id[0] in KINDS.groups
        assert set(kind.shown_by) <= BAD.keys(), kind.id
    assert max(Counter(kind.id for kind in KINDS.kinds).values()) == 1


def test_every_scheduler_has_its_place():
    unreported = [name for names in KINDS.unreported.values() for name in names]
    assert len(unreported) == len(set(unreported))
    for name, variant in BAD.items():
        kinds = KINDS.of(name)
        assert bool(kinds) == bool(variant.bug), name
        assert (name in unreported) != bool(kinds), name
        if variant.bug:
            assert any(variant.bug in kind.reports for kind in kinds), name
        assert KINDS.group(variant)
    assert set(unreported) <= BAD.keys()


def test_a_scheduler_that_stands_nowhere_is_noticed():
    with pytest.raises(KeyError):
        KINDS.letter("NobodyKnowsIt")


def test_every_scenario_shows_its_fault():
    assert list(stale(scenes())) == []


def test_each_clause_finds_what_it_found():
    kept, wholes = found(), scenes()
    assert {name: finders(BAD[name], wholes[name]) for name in BAD} == kept
    assert all(kept.values())


def test_a_scenario_that_shows_nothing_is_noticed():
    wholes = scenes()
    first, second = list(BAD)[:2]
    swapped = {**wholes, first: wholes["GrantsNothing"], "Gone": wholes[second]}
    del swapped[second]
    told = list(stale(swapped))
    assert [line.split(":")[0] for line in told] == ["Gone", first, second]
    assert not breaks(BAD[first], swapped[first])


def test_the_files_are_as_they_would_be_written():
    wholes = scenes()
    assert dump_found(found()) == FOUND.read_text(encoding="utf-8")
    assert dump_kills(kills()) == KILLS.read_text(encoding="utf-8")
    for letter in KINDS.groups:
        mine = {name: wholes[name] for name in BAD if KINDS.letter(name) == letter}
        assert dump_scenes(mine) == (SCENES / f"{letter}.toml").read_text(encoding="utf-8")
    assert {name: list(row) for name, row in kills().items()} == {v.__name__: list(v.policies) for v in ZOO}


def test_a_scenario_names_the_rule_of_its_scheduler():
    for name, scene in scenes().items():
        assert scene.rule == BAD[name].rule
        assert scene.config.policy in BAD[name].policies
    assert kept_otherwise(()) == []
