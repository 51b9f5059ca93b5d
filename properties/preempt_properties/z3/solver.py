"""Asking the solver, with bounds that are the same on every machine.

Effort is counted in the solver's own resource units, not in seconds: a proof that is found on one machine is found on
all. Time is bounded by whoever runs this process (`pool`), the solver's own clock being one more stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import z3

from preempt_properties.z3.explore import Answer

#: Resource units: about 20 ms and 600 ms on a machine of today.
PASSING, EARNEST = 150_000, 4_000_000
#: The solver's own clock, in milliseconds.
CLOCK = 4_000


def in_passing(conditions: Sequence[Any]) -> Answer:
    """Whether conditions can hold together, at little effort."""
    return _check(conditions, PASSING)


def in_earnest(conditions: Sequence[Any]) -> Answer:
    """The same, at all the effort there is; what is impossible in reals is impossible in whole numbers too."""
    answer = _check(conditions, PASSING)
    if answer.impossible or answer.model is not None:
        return answer
    relaxed: dict[int, Any] = {}
    loose = [relax(c, relaxed) for c in conditions]
    if not all(new.eq(old) for new, old in zip(loose, conditions, strict=True)) and _check(loose, EARNEST).impossible:
        return Answer(impossible=True)
    return _check(conditions, EARNEST)


def _check(conditions: Sequence[Any], effort: int) -> Answer:
    solver = z3.Solver()
    solver.set("rlimit", effort)
    solver.set("timeout", CLOCK)
    solver.add(*conditions)
    result = solver.check()
    return Answer(result == z3.unsat, solver.model() if result == z3.sat else None)


def relax(term: Any, seen: dict[int, Any]) -> Any:
    """The term with every whole constant a real one. `seen` is shared among terms that are alive together."""
    id = term.get_id()
    if id not in seen:
        seen[id] = _relax(term, seen)
    return seen[id]


def _relax(term: Any, seen: dict[int, Any]) -> Any:
    if z3.is_int_value(term):
        return z3.RealVal(term.as_long())
    if term.num_args() == 0:
        return z3.Real(term.decl().name()) if z3.is_int(term) else term
    children = [relax(child, seen) for child in term.children()]
    kind = term.decl().kind()
    if kind == z3.Z3_OP_TO_REAL:
        return children[0]
    if all(new.eq(old) for new, old in zip(children, term.children(), strict=True)):
        return term
    if kind == z3.Z3_OP_ADD:
        return z3.Sum(children)
    if kind == z3.Z3_OP_MUL:
        return z3.Product(children)
    match kind, children:
        case (z3.Z3_OP_SUB, [left, right]):
            return left - right
        case (z3.Z3_OP_UMINUS, [only]):
            return -only
        case (z3.Z3_OP_LT, [left, right]):
            return left < right
        case (z3.Z3_OP_LE, [left, right]):
            return left <= right
        case (z3.Z3_OP_GT, [left, right]):
            return left > right
        case (z3.Z3_OP_GE, [left, right]):
            return left >= right
    return term.decl()(*children)


def value(model: Any, constant: Any) -> Fraction:
    """What a model gives a constant. An irrational number is rounded: what holds there must be asked again."""
    found = model.eval(constant, model_completion=True)
    if z3.is_algebraic_value(found):
        found = found.approx(30)
    if z3.is_int_value(found):
        return Fraction(found.as_long())
    return Fraction(found.numerator_as_long(), found.denominator_as_long())
