"""Every rule has a scheduler that breaks it, and the monitor names that rule for it, first."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from preempt_oracle.monitor import Monitor
from preempt_oracle.trace.convert import to_wire
from preempt_properties.catch import Judge, first_violation
from preempt_properties.known_bad import ZOO, KnownBad
from preempt_properties.known_bad.right import RIGHT
from preempt_spec import events as ev
from preempt_spec.policies.policy import Policy
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import OBSERVES
from preempt_spec.rules import RULES, Violation
from preempt_spec.rules.rule import Clause
from preempt_spec.state import initial
from preempt_spec.system import clauses, run
from preempt_spec.view import View

#: Generated workloads until a known-bad scheduler must have been named, at the latest.
WITHIN = 60


def monitor(header: ev.Header, policy: Policy) -> Judge:
    m = Monitor(header, policy)
    return lambda event: m.feed(to_wire(event))


CASES = [(variant, policy) for variant in ZOO for policy in variant.policies]
#: Each scheduler at once under one policy, under its others in the longer tests.
ONE = [pytest.param(v, p, marks=() if p == v.policies[0] else pytest.mark.long) for v, p in CASES]


@pytest.mark.parametrize(("variant", "policy"), ONE, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_monitor_names_the_rule(variant: type[KnownBad], policy: str):
    """The first workload that shows the fault shows it as this rule, or as one that the variant declares."""
    for seed in range(WITHIN):
        rules = {v.rule for v in first_violation(variant, policy, seed, monitor)}
        if variant.rule in rules:
            return
        assert not rules or rules & variant.also, (seed, rules)
    pytest.fail(f"{variant.__name__} was not caught by {variant.rule} in {WITHIN} workloads")


def test_every_rule_has_a_known_bad_scheduler():
    assert {variant.rule for variant in ZOO} == RULES.keys()


def test_the_zoo_is_labelled():
    assert len({v.__name__ for v in ZOO}) == len(ZOO)
    for variant in ZOO:
        assert variant.rule in RULES
        assert variant.also <= RULES.keys()
        assert set(variant.policies) <= PROFILES.keys()
        assert variant.__doc__
        assert variant.__doc__.endswith(".")
        assert "\n" not in variant.__doc__  # one sentence, in one line


@pytest.mark.parametrize(
    ("variant", "policy"),
    [(variant, policy) for variant in RIGHT for policy in variant.policies],
    ids=lambda x: x if isinstance(x, str) else x.__name__,
)
def test_who_is_right_is_not_accused_by_these_workloads(variant: type[KnownBad], policy: str):
    """Each knob of a policy that no profile turns has a scheduler that is right with it turned."""
    for seed in range(12):
        assert first_violation(variant, policy, seed, monitor) == []


@pytest.mark.slow
@pytest.mark.parametrize("variant", RIGHT, ids=lambda x: x.__name__)
def test_who_is_right_is_not_accused_by_many_workloads(variant: type[KnownBad]):
    for policy in variant.policies:
        for seed in range(1_000, 1_400):
            assert first_violation(variant, policy, seed, monitor) == []


def noting(active: Mapping[type, tuple[tuple[str, Clause], ...]], broken: set[str]) -> dict[type, Any]:
    """The clauses, each of which notes its name when it does not hold."""

    def note(clause: Clause) -> Clause:
        def noted(s: View, e: Any) -> Iterator[str | None]:
            for message in clause(s, e):
                if message is not None:
                    broken.add(clause.__name__)
                yield message

        return noted

    return {micro: tuple((rule, note(clause)) for rule, clause in rows) for micro, rows in active.items()}


@pytest.mark.slow
def test_every_clause_is_broken_by_some_variant():
    """A rule of several clauses is not known by one of them: but for two that only count, all are seen at work."""
    broken: set[str] = set()
    active = noting(clauses(OBSERVES), broken)

    def pure(header: ev.Header, policy: Policy) -> Judge:
        states = [initial(header, policy)]

        def look(event: ev.Event) -> list[Violation]:
            outcome = run(states[-1], event, active)
            states[:] = [outcome.state]
            return list(outcome.violations)

        return look

    for variant, policy in CASES:
        for seed in range(15):
            first_violation(variant, policy, seed, pure)
    never = {"step_returned", "done"}
    assert {c.__name__ for r in RULES.values() for _, _, c in r.clauses} - never == broken


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "policy"), CASES, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_whoever_accuses_it_names_a_declared_rule(variant: type[KnownBad], policy: str):
    for seed in range(1_000, 1_200):
        rules = {v.rule for v in first_violation(variant, policy, seed, monitor)}
        assert not rules or variant.rule in rules or rules & variant.also, (seed, rules)


def test_zoo_and_workloads_come_without_hypothesis():
    """An installation without the extra `properties` can still fuzz, and catch these."""
    modules = ("known_bad", "workload", "play", "reach", "catch", "corruption")
    imports = "; ".join(f"import preempt_properties.{m}" for m in modules)
    code = f"import sys; {imports}; print('hypothesis' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.strip() == "False"
