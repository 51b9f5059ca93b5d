"""What kills a mutant: a theorem that no longer stands, or a test that fails.

In the order of what is quick: theorems at points where they apply (and the prover must agree), then tests, then the
prover for every theorem that calls the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from preempt_properties.cost_mutants.apply import COST
from preempt_properties.cost_mutants.points import Point, points, stands_at
from preempt_properties.mutants.apply import Function, near
from preempt_properties.mutants.children import run, time_left
from preempt_properties.mutants.operators import Mutant
from preempt_properties.mutants.session import NotReady, Timed, by_tests, timed
from preempt_properties.mutants.stages import Killer, Stage, staged
from preempt_properties.theorems import THEOREMS
from preempt_properties.theorems.theorem import Theorem, holds
from preempt_properties.z3.examine import examine
from preempt_properties.z3.verdict import Outcome

if TYPE_CHECKING:
    import pytest

#: Processor seconds for one theorem.
THEOREM_FOR = 3.0


@attrs.frozen(eq=False)
class Hunt:
    """Theorems and tests, with what each calls of the cost package."""

    theorems: list[tuple[Theorem, list[Point], set[Function]]]
    tests: list[Timed]

    def all(self, mutants: Sequence[Mutant], tell: Callable[[Mutant, Killer], None]) -> None:
        """Hunt every mutant, and tell what killed it."""
        stages = (
            Stage("theorem", self._by_points),
            Stage("test", self._by_tests, endless=True),
            Stage("theorem", self._by_prover),
        )
        run(staged(mutant, stages, tell) for mutant in mutants)

    def _near(self, mutant: Mutant) -> list[tuple[Theorem, list[Point]]]:
        """Theorems that call the function, those first that call little else."""
        return near((((t, at), called) for t, at, called in self.theorems), (mutant.module, mutant.function))

    def _by_points(self, mutant: Mutant) -> str:
        COST.put(mutant)
        for theorem, at in self._near(mutant):
            time_left(THEOREM_FOR)
            if not _passes(theorem, at) and (end := _end(theorem)):
                return end
        return ""

    def _by_tests(self, mutant: Mutant) -> str:
        COST.put(mutant)
        return by_tests(self.tests, (mutant.module, mutant.function))

    def _by_prover(self, mutant: Mutant) -> str:
        COST.put(mutant)
        for theorem, _ in self._near(mutant):
            time_left(THEOREM_FOR)
            if end := _end(theorem):
                return end
        return ""


def _passes(theorem: Theorem, at: Sequence[Point]) -> bool:
    try:
        return all(stands_at(theorem, point) for point in at)
    except Exception:  # a mutant may raise anything
        return False


def _end(theorem: Theorem) -> str:
    """How a theorem comes to an end under a mutant; empty: it stands. That the solver does not know kills nothing."""
    # Whether hypotheses are still necessary takes longest and is left out: that the claim still holds decides.
    verdict = examine(theorem, necessity=False)
    return "" if verdict.stands or verdict.outcome is Outcome.UNKNOWN else f"{theorem.id} ({verdict.outcome.value})"


def prepare(items: Sequence[pytest.Item]) -> Hunt:
    """See what theorems and tests call. Raises NotReady if one fails on the code as it is: it would kill all."""
    theorems = []
    with COST.recorded() as called:
        for theorem in THEOREMS.values():
            called.clear()
            at = points(theorem)
            if not all(stands_at(theorem, point) for point in at):
                raise NotReady(f"{theorem.id} does not stand on the code as it is")
            for point in at or [_anywhere(theorem)]:
                holds(theorem.claim, point)
            theorems.append((theorem, at, set(called)))
        return Hunt(theorems, timed(items, called))


def _anywhere(theorem: Theorem) -> Point:
    """A point of which nothing is known, to see what is called."""
    from fractions import Fraction

    return {name: Fraction(p.least or 1) for name, p in theorem.parameters.items()}
