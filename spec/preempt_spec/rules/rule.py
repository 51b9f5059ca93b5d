"""The registry: a rule's id, sentence and clause stand together, once; everything else is generated from here.

A clause is a generator over (view, micro-event). It yields once per time the rule is put to the test: None if it
held, else what is wrong, in words. The count of yields is the rule's exercise count; a clause that yields nothing was
not exercised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

from attrs import evolve, field, frozen

import preempt_spec
from preempt_spec.view import View

Clause = Callable[[View, Any], Iterator[str | None]]


#: What every rule has, in the traceability table, and may lack only for a reason that stands beside it: `property`: the
#: reference comes to exercise it; `known-bad`: a scheduler breaks it; `alone`: one of these is caught by no other rule;
#: `vector`: a shipped trace breaks it.
EVIDENCE = ("property", "known-bad", "alone", "vector")


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
    since: str = "0.1"  # the version of the specification it came in with
    lacks: Mapping[str, str] = field(factory=dict, hash=False)  # evidence it cannot have -> why

    @property
    def family(self) -> str:
        """The part of the id before the slash."""
        return self.id.split("/")[0]

    @property
    def needs(self) -> tuple[frozenset[str], ...]:
        """The observations of each clause: the rule is observable if those of one clause are all there."""
        return tuple(needs for _, needs, _ in self.clauses)


RULES: dict[str, Rule] = {}


def rule(id: str, kind: Kind, sentence: str, *, since: str = "0.1", lacks: Mapping[str, str] | None = None) -> Rule:
    """Register a rule. Its clauses follow, decorated with `on`. Raises ValueError, UnknownVersion (of `since`)."""
    if id in RULES:
        raise ValueError(f"rule {id} is defined twice")
    preempt_spec.release(since)
    if unknown := sorted(set(lacks or ()) - set(EVIDENCE)):
        raise ValueError(f"rule {id}: lacks: {unknown[0]!r} is none of {', '.join(EVIDENCE)}")
    RULES[id] = Rule(id, kind, sentence, since=since, lacks=lacks or {})
    return RULES[id]


def on(the: Rule, micro: type, needs: str = "") -> Callable[[Clause], Clause]:
    """Attach a clause to a rule: run it at each `micro`, if the engine lets us observe all of `needs`."""

    def attach(clause: Clause) -> Clause:
        now = RULES[the.id]
        RULES[the.id] = evolve(now, clauses=(*now.clauses, (micro, frozenset(needs.split()), clause)))
        return clause

    return attach


@frozen
class Violation:
    """A rule that did not hold, and why."""

    rule: str
    message: str


def edition(version: str) -> tuple[Rule, ...]:
    """The rules that the specification has in that version, in today's wording. Raises UnknownVersion."""
    upto = preempt_spec.release(version).number
    return tuple(r for r in RULES.values() if preempt_spec.release(r.since).number <= upto)


def advisory(version: str) -> frozenset[str]:
    """The ids of its advisory rules: their violations are shown and change no verdict. Raises UnknownVersion.

    Those are the rules that came in with this very version, if it is a minor one; in a major version, and in the first
    of all, nothing is advisory. So an upgrade to the next minor version never reddens anybody's CI.
    """
    if preempt_spec.release(version).number[1] == 0 or version == preempt_spec.HISTORY[0].version:
        return frozenset()
    return frozenset(r.id for r in RULES.values() if r.since == version)
