"""An exported file says what the theorem says, in standard SMT-LIB and without division."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import pytest
import z3

from preempt_properties.theorems.theorem import BLOCK, TOKENS, Kind, Parameter, Theorem, equal, positive
from preempt_properties.z3.smtlib import export

X = positive("s")


def theorem(claim, names="xy", **more):
    parameters = more.pop("parameters", dict.fromkeys(names, X))
    return Theorem(id="test/one", sentence="It is so.", parameters=parameters, claim=claim, **more)


def check(text: str) -> str:
    solver = z3.Solver()
    solver.from_string(text)
    return str(solver.check())


HALVES = {"halves": lambda n, m: 2 * math.ceil(n / (2 * m)) <= math.ceil(n / m) + 1}
WHOLE = {"n": TOKENS, "m": BLOCK}


@pytest.mark.parametrize(
    ("made", "answer"),
    [
        (theorem(lambda x, y: x / y < x / y + 1 / x), "unsat"),
        (theorem(lambda x, y: x / y < x), "sat"),
        (theorem(lambda x, y: max(x, y) / min(x, y) >= 1), "unsat"),
        (theorem(lambda x, y: x / y > 1, hypotheses={"longer": lambda x, y: x / y > 1 or x - y > 0}), "unsat"),
        (theorem(lambda x, y: 1 / (x - y) > 0, hypotheses={"longer": lambda x, y: x > y}), "unsat"),
        (theorem(lambda x, y: equal(x / (x - y) * (x - y), x)), "sat"),  # not where x is y: nothing is there
        (theorem(lambda x, y: x / y < 1, parameters={"x": Parameter(unit=""), "y": Parameter(unit="")}), "sat"),
        (theorem(lambda n, m: math.ceil(n / m) < n / m + 1, parameters=WHOLE), "unsat"),
        (theorem(lambda n, m: math.ceil(n / m) <= n / m, parameters=WHOLE), "sat"),
        (theorem(HALVES["halves"], parameters=WHOLE, lemmas=HALVES), "unsat"),
        (theorem(lambda x, y: equal(x * y / y, x)), "unsat"),  # plain to our own solver, and yet written down
        (theorem(lambda x, y: x > 0 or y > 0), "unsat"),  # on no path does it fail
        (theorem(lambda x, y: x > 0, lemmas={"wrong": lambda x, y: x < y}), "sat"),
    ],
)
def test_unsatisfiable_is_proved(made, answer):
    text = export(made, {})
    assert check(text) == answer
    assert "(set-info :status unsat)" in text
    assert text.startswith("; test/one (proved): It is so.\n; unsat proves it\n")
    # The only divisions left are numerals, such as (/ 1.0 2.0).
    assert re.sub(r"\(/ [0-9.]+ [0-9.]+\)", "", text).count("(/ ") == 0
    assert ("QF_NIRA" in text) is (made.parameters is WHOLE)


@pytest.mark.parametrize(("kind", "answers"), [(Kind.FALSE, ("sat", "unsat")), (Kind.WITNESS, ("unsat", "sat"))])
def test_satisfiable_confirms_a_point(kind, answers):
    made = theorem(lambda x, y: x / y < x, kind=kind)
    points = ({"x": Fraction(1), "y": Fraction(1, 3)}, {"x": Fraction(1), "y": Fraction(3)})
    assert tuple(check(export(made, point)) for point in points) == answers


def test_quotients_are_defined_and_their_divisors_not_zero():
    text = export(theorem(lambda x, y: x / y + x / y < 3 * x / y), {})
    assert text.count("(declare-fun q") == 2
    assert "(distinct y 0.0)" in text
