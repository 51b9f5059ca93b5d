"""The registry: a rule's id, sentence and clause stand together, once; everything else is generated from here.

A clause is a generator over (view, micro-event). It yields once per time the rule is put to the test: None if it
held, else what is wrong, in words. The count of yields is the rule's exercise count; a clause that yields nothing was
not exercised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from attrs import frozen

from preempt_spec.view import View

Clause = Callable[[View, Any], Iterator[str | None]]


class Kind(Enum):
    """MUST: every engine. POLICY: reads the profile."""

    MUST = "MUST"
    POLICY = "POLICY"


@frozen
class Rule:
    """A rule of the specification."""

    id: str
    kind: Kind
    sentence: str
    clauses: tuple[tuple[type, frozenset[str], Clause], ...] = ()  # (micro-event, needed observations, clause)

    @property
    def family(self) -> str:
        """The part of the id before the slash."""
        return self.id.split("/")[0]

    @property
    def needs(self) -> tuple[frozenset[str], ...]:
        """The observations of each clause: the rule is observable if those of one clause are all there."""
        return tuple(needs for _, needs, _ in self.clauses)


RULES: dict[str, Rule] = {}


def rule(id: str, kind: Kind, sentence: str) -> Rule:
    """Register a rule. Its clauses follow, decorated with `on`."""
    if id in RULES:
        raise ValueError(f"rule {id} is defined twice")
    RULES[id] = Rule(id, kind, sentence)
    return RULES[id]


def on(the: Rule, micro: type, needs: str = "") -> Callable[[Clause], Clause]:
    """Attach a clause to a rule: run it at each `micro`, if the engine lets us observe all of `needs`."""

    def attach(clause: Clause) -> Clause:
        now = RULES[the.id]
        RULES[the.id] = Rule(now.id, now.kind, now.sentence, (*now.clauses, (micro, frozenset(needs.split()), clause)))
        return clause

    return attach


@frozen
class Violation:
    """A rule that did not hold, and why."""

    rule: str
    message: str
