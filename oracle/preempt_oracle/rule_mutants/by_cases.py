"""Changed clauses, put to the cases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from attrs import frozen

from preempt_oracle.rule_mutants.cases import Broken, Cases
from preempt_properties.mutants.apply import Function, Package
from preempt_properties.mutants.children import time_left
from preempt_spec import micro as mi
from preempt_spec.rules import RULES
from preempt_spec.rules.rule import Clause
from preempt_spec.state import State

RULE_CODE = Package(
    "preempt_spec.rules",
    ("edge", "frame", "live", "output", "pool", "queue", "resume", "swap", "victim"),
    methods=False,
)
#: Processor seconds for one clause: a change may go round in circles.
CLAUSE_FOR = 30.0


def place_of(clause: Clause) -> Function:
    """Module and name of a clause."""
    return clause.__module__.rsplit(".", 1)[-1], clause.__name__


def every_clause() -> dict[Clause, str]:
    """Each clause, and its rule."""
    return {clause: r.id for r in RULES.values() for _, _, clause in r.clauses}


@frozen(eq=False)
class ByCases:
    """The cases, and which clauses call which function."""

    cases: Cases
    calls: Mapping[Function, tuple[Clause, ...]]

    def rules(self, function: Function) -> tuple[str, ...]:
        """The rules that a function works for."""
        rules = every_clause()
        return tuple(dict.fromkeys(rules[c] for c in self.calls.get(function, ())))

    def killed(self, function: Function) -> str:
        """Who notices that this function has changed; "" if nobody does. Its change is in place already."""
        for clause in self.calls.get(function, ()):
            time_left(CLAUSE_FOR)
            try:
                if who := self._missed(clause) or self._accused(clause) or self._counted(clause):
                    return who
            except Exception as e:  # whatever a change raises, a test would have noticed
                return f"{place_of(clause)[1]} raises {type(e).__name__}"
        return ""

    def _missed(self, clause: Clause) -> str:
        for b in self.cases.broken.get(clause, ()):
            if not _finds(b):
                return f"{b.who} is not caught ({b.kind})"
        return ""

    def _accused(self, clause: Clause) -> str:
        for state, micro, who in self.cases.held.get(clause, ()):
            if any(message is not None for message in clause(state, micro)):
                return f"{who} is accused"
        return ""

    def _counted(self, clause: Clause) -> str:
        times = 0
        for state, micro in self.cases.counted.get(clause, ()):
            for message in clause(state, micro):
                times += 1
                if message is not None:
                    return "the reference is accused"
        kept = self.cases.exercised[clause]
        return "" if times == kept else f"exercised {times:,} times instead of {kept:,}"


def _finds(b: Broken) -> bool:
    return any(message is not None for clause in b.clauses for message in clause(b.state, b.micro))


def asked(cases: Cases) -> ByCases:
    """Who calls what: each clause is put to some of its cases, on recorded code."""
    calls: dict[Function, list[Clause]] = defaultdict(list)
    with RULE_CODE.recorded() as called:
        for clause in every_clause():
            called.clear()
            called.add(place_of(clause))
            for state, micro in _some(cases, clause):
                list(clause(state, micro))
            for function in called:
                calls[function].append(clause)
    return ByCases(cases, {function: tuple(found) for function, found in calls.items()})


def _some(cases: Cases, clause: Clause) -> Iterable[tuple[State, mi.Micro]]:
    yield from ((b.state, b.micro) for b in cases.broken.get(clause, ()))
    yield from ((state, micro) for state, micro, _ in cases.held.get(clause, ()))
    yield from cases.counted.get(clause, ())[:2000]
