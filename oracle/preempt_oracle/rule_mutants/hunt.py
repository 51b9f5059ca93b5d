"""Rules and monitor, mutated and hunted: every mutant there is, and what kills each."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from preempt_oracle.rule_mutants.by_cases import RULE_CODE, ByCases, asked
from preempt_oracle.rule_mutants.by_streams import MONITOR_CODE, ByStreams, both_sides, few, streams
from preempt_oracle.rule_mutants.cases import gathered
from preempt_oracle.rule_mutants.changes import every
from preempt_properties.mutants.apply import Function, Package
from preempt_properties.mutants.children import run
from preempt_properties.mutants.operators import Mutant
from preempt_properties.mutants.session import Timed, by_tests, timed
from preempt_properties.mutants.stages import Killer, Stage, staged
from preempt_properties.strategies import Stream

if TYPE_CHECKING:
    import pytest

#: What is mutated, by the first word of a mutant's name here.
CODE: dict[str, Package] = {"rules": RULE_CODE, "monitor": MONITOR_CODE}


def mutants(what: str) -> Iterator[Mutant]:
    """Every mutant of the rules, or of the monitor."""
    for (module, name), function in CODE[what].shipped().items():
        yield from every(module, name, function)


def sampled(found: Iterable[Mutant], one_of: int) -> list[Mutant]:
    """One of so many, always the same ones."""
    return [m for m in found if zlib.crc32(m.id.encode()) % one_of == 0]


def name(what: str, mutant: Mutant) -> str:
    """As it stands in the files."""
    return f"{what}/{mutant.id}"


@frozen(eq=False)
class Hunt:
    """What may kill a mutant of one of the two."""

    what: str
    cases: ByCases | None  # of the rules
    streams: ByStreams | None  # of the monitor
    few: Sequence[Stream]  # that both sides are to judge
    tests: Sequence[Timed]

    def all(self, chosen: Sequence[Mutant], tell: Callable[[Mutant, Killer], None]) -> None:
        """Hunt them, two at a time."""
        stages = (
            Stage("evidence", self._by_cases if self.cases else self._by_streams, endless=True),
            *([Stage("monitor", self._by_both, endless=True)] if self.cases else []),
            Stage("test", self._by_tests, endless=True),
        )
        run(staged(mutant, stages, tell) for mutant in chosen)

    def rules(self, mutant: Mutant) -> tuple[str, ...]:
        """The rules that the changed function works for, if it is of the rules."""
        return self.cases.rules(at(mutant)) if self.cases else ()

    def _by_cases(self, mutant: Mutant) -> str:
        assert self.cases is not None
        CODE[self.what].put(mutant)
        return self.cases.killed(at(mutant))

    def _by_streams(self, mutant: Mutant) -> str:
        assert self.streams is not None
        CODE[self.what].put(mutant)
        return self.streams.killed(at(mutant))

    def _by_both(self, mutant: Mutant) -> str:
        CODE[self.what].put(mutant)
        return both_sides(self.few)

    def _by_tests(self, mutant: Mutant) -> str:
        CODE[self.what].put(mutant)
        return by_tests(self.tests, at(mutant))


def at(mutant: Mutant) -> Function:
    """The function that is changed."""
    return mutant.module, mutant.function


def prepare(what: str, items: Iterable[pytest.Item]) -> Hunt:
    """See what is called by what. Raises NotReady if the code as it is fails: that would kill all."""
    cases, found, some = None, None, list[Stream]()
    if what == "rules":
        cases, some = asked(gathered()), few()
    else:
        found = streams()
    quick = [item for item in items if _quick(item, what)]
    with CODE[what].recorded() as called:
        tests = [_own(test) for test in timed(quick, called)]
    return Hunt(what, cases, found, some, tests)


def _own(test: Timed) -> Timed:
    """The test of advisory rules concerns what handles advice: all else it calls is called by streams as well."""
    item, seconds, called = test
    if "test_advisory" in item.nodeid:
        called = {at for at in called if at[0] == "monitor"}
    return item, seconds, called


#: Of the tests of the monitor.
QUICK = ("short_cuts", "advisory", "once_unequal", "memory", "answers", "steady")


def _quick(item: pytest.Item, what: str) -> bool:
    """Whether a test is worth a call for each survivor: those that search at length do what other stages do."""
    if any(item.get_closest_marker(marker) for marker in ("slow", "light", "vllm", "matrix")):
        return False
    if what == "rules":
        return item.nodeid.startswith(("tests/spec/test_", "tests/spec/clauses/"))
    return item.nodeid.startswith(tuple(f"tests/oracle/monitor/test_{x}.py" for x in QUICK))
