"""All that is asked of a theorem, in this process. Whoever needs a bound on time starts it in another (`pool`).

Proved: something meets the hypotheses, and there the claim holds when the shipped functions run on fractions (so the
flipped claim fails); no point refutes it; and without any one of the hypotheses some point does. Every point that the
solver names is checked again by plain arithmetic: solver and functions must agree.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import attrs

from preempt_properties.theorems.theorem import Kind, Theorem, call, holds
from preempt_properties.z3.explore import TooManyPaths
from preempt_properties.z3.nice import rounded
from preempt_properties.z3.solver import in_earnest, in_passing
from preempt_properties.z3.statement import Statement, state
from preempt_properties.z3.verdict import Outcome, Verdict


class Fails(Exception):
    """A theorem does not stand."""

    def __init__(self, outcome: Outcome, reason: str, point: Mapping[str, Fraction] | None = None) -> None:
        """`point`: where the claim fails."""
        super().__init__(reason)
        self.outcome, self.reason, self.point = outcome, reason, point


def examine(theorem: Theorem, necessity: bool = True) -> Verdict:
    """Ask everything that there is to ask (`necessity`: also of each hypothesis). Never raises for a wrong theorem."""
    began = time.process_time()
    stands, reason = False, ""
    point: Mapping[str, Fraction] | None = None
    try:
        point = _examine(state(theorem), necessity)
        outcome, stands = Outcome(theorem.kind.value), True
    except Fails as e:
        outcome, reason, point = e.outcome, e.reason, e.point
    except TooManyPaths as e:
        outcome, reason = Outcome.UNKNOWN, f"{e}: fewer maxima, a hypothesis that decides one, or a shorter claim"
    except Exception as e:  # a fault of the theorem or of the functions: it must not hide the other theorems
        outcome, reason = Outcome.BROKEN, f"{type(e).__name__}: {e}"
    return Verdict(
        id=theorem.id,
        outcome=outcome,
        stands=stands,
        reason=reason,
        ms=(time.process_time() - began) * 1000,
        point={} if point is None else {name: str(x) for name, x in point.items()},
        shows={} if point is None else _shows(theorem, point),
    )


def _shows(theorem: Theorem, point: Mapping[str, Fraction]) -> dict[str, str]:
    shown = {}
    for name, (function, _) in theorem.shows.items():
        try:
            shown[name] = str(call(function, point))
        except (ValueError, ArithmeticError) as e:
            shown[name] = str(e)
    return shown


def _examine(made: Statement, necessity: bool) -> Mapping[str, Fraction] | None:
    """Return the point to show, if any. Raises Fails."""
    theorem = made.theorem
    at = {name: Fraction(x) for name, x in theorem.at.items()} or None
    if at is not None and (condition := theorem.unmet(at)) is not None:
        raise Fails(Outcome.NOT_AS_STATED, f"the given point does not meet a condition: {condition}", at)
    _satisfiable(made, at)
    if theorem.kind is Kind.PROVED:
        _proved(made, necessity)
        return None
    return _both_ways(made, at, shown=theorem.kind is Kind.WITNESS)


def _satisfiable(made: Statement, at: Mapping[str, Fraction] | None) -> None:
    point = at
    if point is None:
        answer = in_earnest(made.assumptions())
        if answer.impossible:
            raise Fails(Outcome.VACUOUS, "nothing meets the hypotheses")
        if answer.model is None:
            raise Fails(Outcome.UNKNOWN, "no point found that meets the hypotheses: give one with 'at'")
        point = made.point(answer.model)
        if (condition := made.theorem.unmet(point)) is not None:
            raise Fails(Outcome.BROKEN, f"the solver's point does not meet: {condition}; give one with 'at'")
    if made.theorem.kind is Kind.PROVED and not holds(made.theorem.claim, point):
        raise Fails(Outcome.REFUTED, "the claim fails", point)


@attrs.frozen
class Search:
    """What a search for points came to: at most one of a point and an open question."""

    point: Mapping[str, Fraction] | None = None
    unknown: str = ""


def search(made: Statement, wanted: bool, assumptions: Sequence[Any], without: str = "", nice: bool = False) -> Search:
    """Return a point at which the claim holds, or does not, under the assumptions; checked by plain arithmetic.

    `without`: a hypothesis that the point need not meet. Nothing in the answer: there is none, it is proved.
    """
    unknown = ""
    for path in made.paths(made.theorem.claim, assumptions, ask=in_passing):
        if (path.value is True) is not wanted:
            continue
        conditions = [*assumptions, *path.conditions]
        model = path.model
        if nice:
            model = in_passing([*conditions, *made.usual()]).model or model
        if model is None:
            answer = in_earnest(conditions)
            if answer.impossible:
                continue
            model = answer.model
        if model is None:
            unknown = "the solver does not know"
            continue
        point = made.point(model)
        if _is(made.theorem, point, wanted, without):
            return Search(rounded(point, lambda p: _is(made.theorem, p, wanted, without)) if nice else point)
        shown = ", ".join(f"{name} = {x}" for name, x in point.items())
        unknown = f"the solver's point is none by plain arithmetic (irrational?): {shown}"
    return Search(unknown=unknown)


def _is(theorem: Theorem, point: Mapping[str, Fraction], wanted: bool, without: str) -> bool:
    return theorem.unmet(point, but=without) is None and holds(theorem.claim, point) is wanted


def _proved(made: Statement, necessity: bool) -> None:
    theorem = made.theorem
    facts: list[Any] = []
    for name in theorem.lemmas:
        _lemma(made, name, facts)
    found = search(made, False, [*made.assumptions(), *facts])
    if found.point is not None:
        raise Fails(Outcome.REFUTED, "the claim fails", found.point)
    if found.unknown:
        raise Fails(Outcome.UNKNOWN, found.unknown)
    if necessity:
        _necessary(made)


def _necessary(made: Statement) -> None:
    theorem = made.theorem
    for name in theorem.hypotheses:
        found = search(made, False, made.assumptions(but=name), without=name)
        if name in theorem.assumed and found.point is not None:
            raise Fails(Outcome.HYPOTHESES, f"declared not necessary, and it is: {name}", found.point)
        if name in theorem.assumed or found.point is not None:
            continue
        if found.unknown:
            raise Fails(Outcome.UNKNOWN, f"whether this hypothesis is necessary: {name}: {found.unknown}")
        raise Fails(Outcome.HYPOTHESES, f"not necessary: {name}")


def _lemma(made: Statement, name: str, facts: list[Any]) -> None:
    """Prove a lemma from the hypotheses and the facts so far, and add to those whatever was found impossible."""
    assumptions = [*made.assumptions(), *facts]
    learnt: list[Any] = []
    for path in made.paths(made.theorem.lemmas[name], assumptions, ask=in_passing, facts=learnt):
        if path.value is True:
            continue
        answer = in_earnest([*assumptions, *path.conditions])
        if answer.model is not None:
            raise Fails(Outcome.REFUTED, f"the lemma fails: {name}", made.point(answer.model))
        if not answer.impossible:
            raise Fails(Outcome.UNKNOWN, f"the lemma: {name}")
        learnt.append(path.excluded())
    facts += learnt


def _both_ways(made: Statement, at: Mapping[str, Fraction] | None, *, shown: bool) -> Mapping[str, Fraction]:
    """A point where the claim is as `shown`; there must be one of the other kind too, or it is a theorem."""
    theorem, words = made.theorem, {True: "holds", False: "fails"}
    if at is not None and holds(theorem.claim, at) is not shown:
        raise Fails(Outcome.NOT_AS_STATED, f"at the given point the claim {words[not shown]}", at)

    def somewhere(wanted: bool) -> Mapping[str, Fraction]:
        found = search(made, wanted, made.assumptions(), nice=wanted is shown)
        if found.point is not None:
            return found.point
        if found.unknown:
            raise Fails(Outcome.UNKNOWN, f"whether the claim {words[wanted]} anywhere: {found.unknown}")
        raise Fails(Outcome.NOT_AS_STATED, f"the claim {words[not wanted]} everywhere")

    point = at or somewhere(shown)
    somewhere(not shown)
    return point
