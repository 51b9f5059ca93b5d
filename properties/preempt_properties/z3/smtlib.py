"""A theorem as an SMT-LIB file, so that another solver can be asked the same.

The file states what is written in the shipped functions, not the polynomials that our own solver gets, and every way
through them, none excluded by our own solver beforehand. Each division n/d is a fresh quotient q with q·d = n and d ≠ 0
(solvers are weak at division), a ceiling is `(- (to_int (- x)))`. Unsatisfiable: the theorem is proved. For a false
theorem or a witness the file holds the point, and satisfiable confirms it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import attrs
import z3

from preempt_properties.theorems.theorem import Kind, Proposition, Theorem
from preempt_properties.z3.explore import Path
from preempt_properties.z3.statement import Statement, number, state

#: Most ways through a proposition: there are more of them than our own solver has to look at.
PATHS = 2_048


def export(theorem: Theorem, point: Mapping[str, Fraction]) -> str:
    """The file's text. `point`: of a false theorem or a witness, where it fails or holds; else empty."""
    made = state(theorem)
    quotients = _Quotients()
    asserted = [z3.simplify(condition) for condition in made.domain]
    for hypothesis in theorem.hypotheses.values():
        asserted += quotients.any_of([p for p in _paths(made, hypothesis) if p.value is True])
    if theorem.kind is Kind.PROVED:
        asserted += _open_cases(made, quotients)
    else:
        asserted += quotients.any_of(_ways(made, theorem.claim, theorem.kind is Kind.WITNESS))
        asserted += [made.symbols[name].num == number(x) for name, x in point.items()]
    solver = z3.Solver()
    solver.add(*{condition.get_id(): condition for condition in asserted}.values())
    whole = any(p.integer for p in theorem.parameters.values()) or "to_int" in solver.sexpr()
    status = "unsat" if theorem.kind is Kind.PROVED else "sat"
    meaning = {"unsat": "unsat proves it", "sat": "sat confirms the point"}[status]
    return (
        f"; {theorem.id} ({theorem.kind.value}): {theorem.sentence}\n; {meaning}\n"
        f"(set-info :status {status})\n(set-logic {'QF_NIRA' if whole else 'QF_NRA'})\n"
        f"{solver.sexpr().strip()}\n(check-sat)\n"
    )


def _paths(made: Statement, proposition: Proposition) -> list[Path]:
    return list(made.paths(proposition, (), limit=PATHS, literal=True))


def _ways(made: Statement, proposition: Proposition, wanted: bool) -> list[Path]:
    """The paths on which a proposition holds, or on which it does not (because it raises, too)."""
    return [path for path in _paths(made, proposition) if (path.value is True) is wanted]


def _open_cases(made: Statement, quotients: _Quotients) -> list[Any]:
    """That the claim fails; or a lemma does, the ones before it being granted."""
    theorem = made.theorem
    fails = z3.And(quotients.any_of(_ways(made, theorem.claim, False)))
    for lemma in reversed([*theorem.lemmas.values()]):
        broken = z3.And(quotients.any_of(_ways(made, lemma, False)))
        granted = z3.And(quotients.any_of(_ways(made, lemma, True)))
        fails = z3.Or(broken, z3.And(granted, fails))
    return list(fails.children()) if z3.is_and(fails) else [fails]


@attrs.define(eq=False)
class _Quotients:
    """Replaces divisions."""

    #: Quotient -> what defines it, in the order made.
    made: dict[str, tuple[Any, ...]] = attrs.Factory(dict)
    #: Id of a term -> the term (which keeps the id its own), the term without division, the quotients in that.
    seen: dict[int, tuple[Any, Any, tuple[str, ...]]] = attrs.Factory(dict)

    def any_of(self, paths: Sequence[Path]) -> list[Any]:
        """Conditions: that one of the paths is taken. A quotient is defined on its path; on all, where all have it."""
        ways, uses = [], []
        for path in paths:
            clean, used = [], dict[str, None]()
            for condition in path.written:
                term, names = self.without_division(condition)
                clean.append(term)
                used.update(dict.fromkeys(names))
            ways.append(clean)
            uses.append(used)
        shared = [name for name in uses[0] if all(name in used for used in uses)] if uses else []
        found = [definition for name in shared for definition in self.made[name]]
        own = [
            z3.And(*(d for name in used if name not in shared for d in self.made[name]), *way)
            for way, used in zip(ways, uses, strict=True)
        ]
        if len(own) == 1:
            return found + list(own[0].children())
        return [*found, z3.Or(*own) if own else z3.BoolVal(False)]

    def without_division(self, term: Any) -> tuple[Any, tuple[str, ...]]:
        """The same term over quotients, and the names of those."""
        id = term.get_id()
        if id not in self.seen:
            self.seen[id] = (term, *self._without_division(term))
        return self.seen[id][1:]

    def _without_division(self, term: Any) -> tuple[Any, tuple[str, ...]]:
        if term.num_args() == 0:
            return term, ()
        parts = [self.without_division(child) for child in term.children()]
        used = tuple(dict.fromkeys(name for _, names in parts for name in names))
        children = [child for child, _ in parts]
        if term.decl().kind() != z3.Z3_OP_DIV:
            return z3.substitute(term, *zip(term.children(), children, strict=True)), used
        above, below = children
        if z3.is_rational_value(below):  # a number divides like it multiplies
            exact = below.as_fraction()
            return above * number(1 / exact), used
        name = f"q{len(self.made)}"
        quotient = z3.Real(name)
        self.made[name] = (quotient * below == above, below != 0)
        return quotient, (*used, name)
