"""What kills a mutant: a theorem that no longer stands, or a test that fails.

In the order of what is quick: theorems at points where they apply (and the prover must agree), then tests, then the
prover for every theorem that calls the function.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from preempt_properties.cost_mutants.apply import Function, put, recorded
from preempt_properties.cost_mutants.children import Work, run, time_left
from preempt_properties.cost_mutants.operators import Mutant
from preempt_properties.cost_mutants.points import Point, points, stands_at
from preempt_properties.theorems import THEOREMS
from preempt_properties.theorems.theorem import Theorem, holds
from preempt_properties.z3.examine import examine
from preempt_properties.z3.verdict import Outcome

if TYPE_CHECKING:
    import pytest

#: Processor seconds for one theorem.
THEOREM_FOR = 3.0
#: For one test: so many times what it takes on the code as it is, and some more seconds.
TEST_FACTOR, TEST_MORE = 4.0, 2.0


class NotReady(Exception):
    """The code as it is does not pass: what fails anyway kills nothing."""


@attrs.frozen
class Killer:
    """What killed a mutant; nothing did: both are empty."""

    #: "theorem" or "test".
    kind: str = ""
    #: The theorem's or the test's id, and how it ended.
    name: str = ""


@attrs.frozen(eq=False)
class Hunt:
    """Theorems and tests, with what each calls of the cost package."""

    theorems: list[tuple[Theorem, list[Point], set[Function]]]
    #: With the seconds that each takes.
    tests: list[tuple[pytest.Item, float, set[Function]]]

    def all(self, mutants: Sequence[Mutant], tell: Callable[[Mutant, Killer], None]) -> None:
        """Hunt every mutant, and tell what killed it."""
        run(self._work(mutant, tell) for mutant in mutants)

    def _work(self, mutant: Mutant, tell: Callable[[Mutant, Killer], None]) -> Work:
        stages = (("theorem", self._by_points), ("test", self._by_tests), ("theorem", self._by_prover))

        def stage(number: int) -> Work:
            kind, look = stages[number]

            def then(answer: str | None) -> Work | None:
                if answer is None and kind == "test":
                    answer = "does not end"
                if answer or number + 1 == len(stages):
                    tell(mutant, Killer(kind, answer) if answer else Killer())
                    return None
                return stage(number + 1)

            return (lambda: look(mutant)), then

        return stage(0)

    def _near(self, mutant: Mutant) -> list[tuple[Theorem, list[Point]]]:
        """Theorems that call the function, those first that call little else."""
        function = (mutant.module, mutant.function)
        near = [(len(called), t, at) for t, at, called in self.theorems if function in called]
        return [(t, at) for _, t, at in sorted(near, key=lambda found: found[0])]

    def _tests(self, mutant: Mutant) -> list[tuple[float, pytest.Item]]:
        """Tests that call the function, the quickest first."""
        function = (mutant.module, mutant.function)
        return sorted(((s, item) for item, s, called in self.tests if function in called), key=lambda pair: pair[0])

    def _by_points(self, mutant: Mutant) -> str:
        put(mutant)
        for theorem, at in self._near(mutant):
            time_left(THEOREM_FOR)
            if not _passes(theorem, at) and (end := _end(theorem)):
                return end
        return ""

    def _by_tests(self, mutant: Mutant) -> str:
        put(mutant)
        for seconds, item in self._tests(mutant):
            time_left(TEST_MORE + TEST_FACTOR * seconds)
            if failed(item):
                return item.nodeid
        return ""

    def _by_prover(self, mutant: Mutant) -> str:
        put(mutant)
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


def failed(item: pytest.Item) -> bool:
    """Run one test of the session in this process."""
    from _pytest.runner import runtestprotocol

    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def prepare(items: Sequence[pytest.Item]) -> Hunt:
    """See what theorems and tests call. Raises NotReady if one fails on the code as it is: it would kill all."""
    theorems, tests = [], []
    with recorded() as called:
        for theorem in THEOREMS.values():
            called.clear()
            at = points(theorem)
            if not all(stands_at(theorem, point) for point in at):
                raise NotReady(f"{theorem.id} does not stand on the code as it is")
            for point in at or [_anywhere(theorem)]:
                holds(theorem.claim, point)
            theorems.append((theorem, at, set(called)))
        for item in items:
            called.clear()
            began = time.process_time()
            if failed(item):
                raise NotReady(f"{item.nodeid} fails on the code as it is")
            if called:
                tests.append((item, time.process_time() - began, set(called)))
    return Hunt(theorems, tests)


def _anywhere(theorem: Theorem) -> Point:
    """A point of which nothing is known, to see what is called."""
    from fractions import Fraction

    return {name: Fraction(p.least or 1) for name, p in theorem.parameters.items()}


def collected(folder: str, then: Callable[[Sequence[pytest.Item]], int]) -> int:
    """Collect the tests of a folder and call `then` with them, in a pytest session. Exit code: its own, or pytest's."""
    import pytest

    class Plugin:
        code = 0

        @pytest.hookimpl(tryfirst=True)
        def pytest_collection(self) -> None:
            """After conftest.py, before the tests: that a property fails is enough, its simplest failure takes long."""
            from hypothesis import Phase, settings

            phases = (Phase.explicit, Phase.generate)
            settings.register_profile("mutants", parent=settings(), phases=phases)
            settings.load_profile("mutants")

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtestloop(self, session: pytest.Session) -> bool:
            try:
                if session.testsfailed:
                    raise NotReady(f"{session.testsfailed} test files could not be collected")
                self.code = then(session.items)
            except NotReady as e:
                print(f"cost_mutants: {e}", file=sys.stderr)
                self.code = 2
            except Exception:  # pytest without a terminal would say nothing of it
                traceback.print_exc()
                self.code = 3
            return True

    plugin = Plugin()
    status = pytest.main(["-s", "-p", "no:cacheprovider", "-p", "no:terminal", folder], plugins=[plugin])
    return plugin.code if status in (0, 5) else int(status)
