"""Paths: all of them, each once; those that assumptions exclude are not taken."""

from __future__ import annotations

from typing import Any

import pytest
import z3

from preempt_properties.z3.explore import Answer, TooManyPaths, explore, fold
from preempt_properties.z3.real import real
from preempt_properties.z3.solver import in_earnest, in_passing, relax

X, Y = real("x"), real("y")


def nothing_known(_):
    return Answer(impossible=False)


def three_ways():
    return "below" if X < Y else "above" if X > Y else "same"


def test_every_path_once():
    assert [p.value for p in explore(three_ways)] == ["below", "above", "same"]


@pytest.mark.parametrize(
    ("assumption", "ways"),
    [(X.term < Y.term, ["below"]), (X.term >= Y.term, ["above", "same"]), (X.term == Y.term, ["same"])],
)
def test_an_excluded_way_is_not_taken(assumption, ways):
    paths = list(explore(three_ways, assumptions=[assumption], ask=in_passing))
    assert sorted(p.value for p in paths) == ways
    for path in paths:
        assert path.model is not None
        assert z3.is_true(path.model.eval(z3.And(assumption, *path.conditions), model_completion=True))


def test_a_solver_that_never_knows_excludes_nothing():
    assert len(list(explore(three_ways, ask=nothing_known))) == 3


def test_what_was_excluded_is_learnt():
    facts: list[Any] = []
    list(explore(three_ways, assumptions=[X.term < Y.term], ask=in_passing, facts=facts))
    assert facts
    assert in_earnest([X.term < Y.term, z3.Not(z3.And(facts))]).impossible


def test_a_refusal_ends_its_path_only():
    def refuses():
        if X < 0:
            raise ValueError("x: below 0")
        return True

    refused, fine = (p.value for p in explore(refuses))
    assert str(refused) == "x: below 0"
    assert fine is True


def test_a_fault_of_the_function_is_not_hidden():
    with pytest.raises(KeyError):
        list(explore(lambda: dict[str, int]()["x"]))


def test_paths_without_measure_are_refused():
    def sieve():
        return sum(1 for k in range(12) if X - k * Y > 0)

    with pytest.raises(TooManyPaths, match="more than 100 paths"):
        list(explore(sieve, limit=100))


def test_folding_raises_what_a_path_raises():
    with pytest.raises(ZeroDivisionError):
        fold(lambda: 1 / X)


def test_relaxing_makes_whole_numbers_real():
    n = z3.Int("n")
    between = [n > 0, n < 1]
    assert in_earnest(between).impossible
    assert not in_earnest([relax(c, {}) for c in between]).impossible
    mixed = z3.ToReal(n) * X.term - 2 < z3.ToReal(n + 1)
    assert z3.simplify(relax(mixed, {})).eq(z3.simplify(z3.Real("n") * X.term - 2 < z3.Real("n") + 1))
