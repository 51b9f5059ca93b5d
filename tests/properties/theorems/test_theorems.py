"""Every theorem, examined by the prover once; and what a reader may expect of each of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import pytest

from preempt_properties.theorems import THEOREMS, Kind, Parameter
from preempt_properties.theorems.numbers import FIRST, LEFT_OUT, missing, number_of
from preempt_properties.theorems.theorem import Theorem, holds
from preempt_properties.z3.pool import examine_all
from preempt_properties.z3.verdict import Verdict

#: Seconds of processor time that all theorems may take: ten seconds on two processors.
BUDGET = 20.0


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    return examine_all(THEOREMS)


@pytest.mark.long
def test_every_theorem_stands(verdicts):
    assert [(v.id, v.outcome.value, v.reason) for v in verdicts if not v.stands] == []
    assert [v.id for v in verdicts] == list(THEOREMS)


@pytest.mark.slow
def test_all_theorems_together_keep_to_ten_seconds_on_two_processors(verdicts):
    spent = sum(v.ms for v in verdicts)
    if spent > BUDGET * 1000:  # a machine that is busy otherwise takes more processor time for the same
        spent = min(spent, sum(v.ms for v in examine_all(THEOREMS)))
    assert spent < BUDGET * 1000


def test_no_statement_of_the_first_collection_is_lost():
    assert missing(THEOREMS) == ()
    assert LEFT_OUT.keys() <= set(FIRST)
    assert not LEFT_OUT.keys() & {number_of(id) for id in THEOREMS}


def test_added_theorems_have_numbers_of_their_own():
    added = Counter(number for id in THEOREMS if (number := number_of(id)).startswith("n"))
    assert [number for number, times in added.items() if times > 1] == []
    assert set(added) == {f"n{n:02}" for n in range(1, len(added) + 1)}


@pytest.mark.long
@pytest.mark.parametrize("id", [t.id for t in THEOREMS.values() if t.kind is not Kind.PROVED])
def test_a_counterexample_is_shown_in_units(id, verdicts):
    theorem = THEOREMS[id]
    verdict = next(v for v in verdicts if v.id == id)
    assert {name: Fraction(x) for name, x in verdict.point.items()} == {n: Fraction(x) for n, x in theorem.at.items()}
    assert verdict.shows.keys() == theorem.shows.keys()
    assert len(verdict.shows) >= 1
    assert all(unit for _, unit in theorem.shows.values())


@pytest.mark.parametrize("id", list(THEOREMS))
def test_sentences_are_sentences(id):
    sentence = THEOREMS[id].sentence
    assert sentence[0].isupper()
    assert 20 < len(sentence) < 240
    assert "  " not in sentence


def _value(parameter: Parameter, chance: random.Random) -> Fraction:
    low, high = parameter.usual or (0.0, 1.0)
    if parameter.integer:
        return Fraction(chance.randint(int(low), int(min(high, low + 200))))
    # Few digits: products of many long fractions are slow, and say no more.
    return Fraction(f"{low * (high / low) ** chance.random() if low > 0 else high * chance.random():.4g}")


def _points(theorem: Theorem, count: int) -> Iterator[dict[str, Fraction]]:
    """Points of hardware's order of magnitude that meet the hypotheses, out of `count` tries."""
    chance = random.Random(theorem.id)
    for _ in range(count):
        point = {name: _value(parameter, chance) for name, parameter in theorem.parameters.items()}
        if theorem.unmet(point) is None:
            yield point


@pytest.mark.parametrize("id", [t.id for t in THEOREMS.values() if t.kind is Kind.PROVED])
def test_what_is_proved_holds_by_plain_arithmetic_too(id):
    """The prover evaluates symbols, this evaluates numbers: they share the functions, and nothing else."""
    theorem = THEOREMS[id]
    for point in _points(theorem, 20):
        assert holds(theorem.claim, point), point


def test_most_theorems_meet_their_hypotheses_at_some_point_drawn():
    """Or the test before would look at nothing."""
    proved = [t for t in THEOREMS.values() if t.kind is Kind.PROVED]
    met = [t for t in proved if next(_points(t, 20), None) is not None]
    assert len(met) > 0.9 * len(proved)
