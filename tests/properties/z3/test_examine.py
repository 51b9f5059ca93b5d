"""A theorem stands only if everything about it does."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from preempt_properties.theorems.theorem import (
    BANDWIDTH,
    BLOCK,
    KV,
    LENGTH,
    TOKENS,
    Kind,
    Parameter,
    Registry,
    Theorem,
    equal,
    holds,
    positive,
    share,
    whole,
)
from preempt_properties.z3 import examine as module
from preempt_properties.z3.examine import examine
from preempt_properties.z3.explore import Answer
from preempt_properties.z3.nice import rounded, significant
from preempt_properties.z3.solver import in_earnest
from preempt_properties.z3.verdict import Outcome, Verdict

X = positive("s")


def theorem(claim: Any, **more: Any) -> Theorem:
    more.setdefault("parameters", {"x": X, "y": X})
    return Theorem(id="test/one", sentence="It is so.", claim=claim, **more)


def outcome(made: Theorem) -> tuple[Outcome, bool, str]:
    found = examine(made)
    return found.outcome, found.stands, found.reason


def test_a_true_claim_is_proved():
    assert outcome(theorem(lambda x, y: x < x + y)) == (Outcome.PROVED, True, "")


def test_a_wrong_claim_is_refuted_at_a_point_that_plain_arithmetic_confirms():
    made = theorem(lambda x, y: x / y < x * y)
    found = examine(made)
    assert (found.outcome, found.stands) == (Outcome.REFUTED, False)
    assert not holds(made.claim, {name: Fraction(x) for name, x in found.point.items()})


def test_the_flipped_claim_is_refuted():
    assert outcome(theorem(lambda x, y: x > x + y))[:2] == (Outcome.REFUTED, False)


def test_a_claim_that_divides_by_zero_somewhere_is_refuted():
    assert outcome(theorem(lambda x, y: equal(x / (x - y), 1 / (1 - y / x))))[:2] == (Outcome.REFUTED, False)


def test_a_claim_that_a_function_refuses_somewhere_is_refuted():
    def claim(x, y):
        if x > y:
            raise ValueError("x: above y")
        return True

    assert outcome(theorem(claim))[:2] == (Outcome.REFUTED, False)


def test_what_the_solver_does_not_know_fails(monkeypatch):
    ask = in_earnest
    monkeypatch.setattr(module, "in_passing", lambda conditions: Answer(impossible=False))
    assert outcome(theorem(lambda x, y: x < x + y))[1]  # in earnest it is known
    asked = []

    def then_nothing(conditions):
        asked.append(conditions)
        return ask(conditions) if len(asked) == 1 else Answer(impossible=False)

    monkeypatch.setattr(module, "in_earnest", then_nothing)
    assert outcome(theorem(lambda x, y: x < x + y)) == (Outcome.UNKNOWN, False, "the solver does not know")


def test_too_many_paths_are_unknown():
    made = theorem(lambda x, y: sum(x > k * y for k in range(1, 300)) < 0)
    found = outcome(made)
    assert found[:2] in {(Outcome.UNKNOWN, False), (Outcome.REFUTED, False)}


def test_contradicting_hypotheses_are_vacuous():
    made = theorem(lambda x, y: x > 2 * y, hypotheses={"longer": lambda x, y: x > y, "shorter": lambda x, y: x < y})
    assert outcome(made)[:2] == (Outcome.VACUOUS, False)


def test_a_hypothesis_that_is_not_necessary_fails():
    granted = {"longer": lambda x, y: x > y, "above one": lambda y: y > 1}
    assert outcome(theorem(lambda x, y: 2 * x > x + y, hypotheses=granted)) == (
        Outcome.HYPOTHESES,
        False,
        "not necessary: above one",
    )
    declared = theorem(lambda x, y: 2 * x > x + y, hypotheses=granted, assumed={"above one": "as people say it"})
    assert outcome(declared)[1]


def test_a_hypothesis_declared_not_necessary_that_is_fails():
    made = theorem(lambda x, y: x > y, hypotheses={"longer": lambda x, y: x > y}, assumed={"longer": "for show"})
    assert outcome(made)[:2] == (Outcome.HYPOTHESES, False)


def test_false_and_witness_need_both_a_point_where_it_holds_and_one_where_it_fails():
    def mixed(x, y):
        return x * x < y

    assert outcome(theorem(mixed, kind=Kind.FALSE))[:2] == (Outcome.FALSE, True)
    assert outcome(theorem(mixed, kind=Kind.WITNESS))[:2] == (Outcome.WITNESS, True)
    for kind in (Kind.FALSE, Kind.WITNESS):
        for always in (lambda x, y: x + y > x, lambda x, y: x + y < x):
            assert outcome(theorem(always, kind=kind))[:2] == (Outcome.NOT_AS_STATED, False)


def test_a_given_point_must_be_what_it_is_said_to_be():
    def mixed(x, y):
        return x * x < y

    fine = theorem(mixed, kind=Kind.FALSE, at={"x": 2, "y": 4}, shows={"square": (lambda x: x * x, "s")})
    assert examine(fine).point == {"x": "2", "y": "4"}
    assert examine(fine).shows == {"square": "4"}
    assert outcome(theorem(mixed, kind=Kind.FALSE, at={"x": 1, "y": 4}))[:2] == (Outcome.NOT_AS_STATED, False)
    assert outcome(theorem(mixed, kind=Kind.FALSE, at={"x": -2, "y": 4}))[:2] == (Outcome.NOT_AS_STATED, False)
    proved = theorem(lambda x, y: x + y > x, at={"x": 1, "y": 0})
    assert outcome(proved)[1:] == (False, "the given point does not meet a condition: the domain of y")


@pytest.mark.parametrize(
    "claim", [lambda x, y: x, lambda x, y: x == y, lambda x, y: x + y > 0.0, lambda x, y: x.real, lambda x, y: None]
)
def test_what_is_no_proposition_is_broken(claim):
    assert outcome(theorem(claim))[:2] == (Outcome.BROKEN, False)


def test_a_point_of_the_solver_that_arithmetic_does_not_confirm_is_no_counterexample():
    """√2 is no fraction: rounded, it does not meet the hypothesis."""
    root = {"root": lambda x, y: equal(x * x, 2 * y * y)}
    assert outcome(theorem(lambda x, y: x < y, hypotheses=root))[:2] == (Outcome.BROKEN, False)


def test_integers_and_lemmas():
    def blocks(n, m):
        return math.ceil(n / m)

    made = theorem(
        lambda n, m, kv: 2 * m * blocks(n, 2 * m) * kv <= m * blocks(n, m) * kv + m * kv,
        parameters={"n": TOKENS, "m": BLOCK, "kv": KV},
        lemmas={"halves": lambda n, m: 2 * blocks(n, 2 * m) <= blocks(n, m) + 1},
    )
    assert outcome(made) == (Outcome.PROVED, True, "")
    wrong = theorem(
        lambda n, m: blocks(n, m) * m >= n,
        parameters={"n": TOKENS, "m": BLOCK},
        lemmas={"exact": lambda n, m: equal(blocks(n, m) * m, n)},
    )
    assert outcome(wrong) == (Outcome.REFUTED, False, "the lemma fails: exact")


def test_a_domain_is_part_of_the_statement():
    shares = {"h": share(), "n": whole("", least=0)}
    assert outcome(theorem(lambda h, n: h * n <= n, parameters=shares))[1]
    free = {"h": Parameter(unit=""), "n": whole("", least=0)}
    assert outcome(theorem(lambda h, n: h * n <= n, parameters=free))[0] is Outcome.REFUTED


def test_counterexamples_read_like_hardware():
    made = theorem(
        lambda length, bandwidth: length / bandwidth < 10,
        kind=Kind.FALSE,
        parameters={"length": positive("B", 1, 1e12), "bandwidth": BANDWIDTH},
    )
    point = examine(made).point
    assert all(1 <= int(x) <= 10**12 and len(x.rstrip("0")) <= 2 for x in point.values())


def test_rounding_keeps_what_makes_a_point_good():
    exact = {"x": Fraction(123_457, 1000), "y": Fraction(1, 3)}
    assert rounded(exact, lambda p: 123 < p["x"] < 124)["x"] == Fraction("123.5")
    assert rounded(exact, lambda p: p["x"] > 90)["x"] == 100
    assert rounded(exact, lambda p: p["y"] == Fraction(1, 3))["y"] == Fraction(1, 3)
    assert significant(Fraction(123_457, 1000), 2) == 120


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"id": "One"}, "family/name"),
        ({"sentence": "No stop"}, "full stop"),
        ({"claim": lambda z: True}, "claim asks for"),
        ({"hypotheses": {"a": lambda z: True}}, "a asks for"),
        ({"parameters": {"x": X, "y": X, "z": X}}, "nothing asks for"),
        ({"assumed": {"a": "b"}}, "no hypotheses"),
        ({"at": {"x": 1}}, "'at' must give"),
        ({"hypotheses": {"a": lambda x: x > 1}, "lemmas": {"a": lambda x: x > 0}}, "different names"),
        ({"kind": Kind.FALSE, "lemmas": {"a": lambda x: x > 0}}, "belong to proved"),
        ({"shows": {"s": (lambda z: z, "s")}}, "s asks for"),
    ],
)
def test_a_malformed_theorem_is_refused(changed, message):
    given = {"id": "a/b", "sentence": "So.", "parameters": {"x": X, "y": X}, "claim": lambda x, y: x + y > 0}
    with pytest.raises(ValueError, match=message):
        Theorem(**{**given, **changed})


def test_a_registry_keeps_order_and_finds_by_id_and_family():
    parts: dict[str, Any] = {"sentence": "So.", "parameters": {"x": LENGTH}, "claim": lambda x: x > 0}
    made = [Theorem(id=id, **parts) for id in ("b/t1-x", "a/t2", "b/t2-y")]
    registry = Registry(made)
    assert list(registry) == ["b/t1-x", "a/t2", "b/t2-y"]
    assert [t.id for t in registry.select("b")] == ["b/t1-x", "b/t2-y"]
    assert [t.id for t in registry.select("T2")] == ["a/t2", "b/t2-y"]
    assert registry.select("a/t2") == (made[1],)
    assert registry.select("a/") == ()
    with pytest.raises(ValueError, match="two theorems"):
        Registry([*made, made[0]])


def test_a_verdict_survives_the_way_through_json():
    verdict = examine(theorem(lambda x, y: x < y))
    assert Verdict.from_json(verdict.as_json()) == verdict
