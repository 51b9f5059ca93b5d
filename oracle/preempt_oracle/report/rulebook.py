"""The rules as documents: from the registry, never written twice."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from attrs import frozen

from preempt_spec.rules import RULES
from preempt_spec.rules.rule import Rule


@frozen
class ClauseText:
    """One clause of a rule. `needs`: what must be observed for it."""

    at: str  # the micro-event that puts the rule to the test
    needs: tuple[str, ...]
    says: str


@frozen
class Breaker:
    """A known-bad scheduler. `bug`: a public report of this kind of fault, if it is after one."""

    name: str
    says: str
    bug: str


def clauses(rule: Rule) -> tuple[ClauseText, ...]:
    """The clauses, in order; one that is attached to several micro-events is told once."""
    told: dict[object, ClauseText] = {}
    for micro, needs, clause in rule.clauses:
        before = told.get(clause)
        at = f"{before.at}, {micro.__name__.lower()}" if before else micro.__name__.lower()
        told[clause] = ClauseText(at, tuple(sorted(needs)), first_line(clause))
    return tuple(told.values())


def known_bad(rule: str) -> tuple[Breaker, ...]:
    """The schedulers that break this rule, to show that it can be seen to break."""
    from preempt_properties.known_bad import ZOO

    return tuple(Breaker(v.__name__, first_line(v), v.bug) for v in ZOO if v.rule == rule)


def first_line(what: object) -> str:
    """The first paragraph of a docstring, on one line."""
    text = inspect.getdoc(what) or ""
    return " ".join(text.split("\n\n")[0].split())


def select(wanted: str | None) -> tuple[Rule, ...]:
    """All rules, those of a family, or the one of an id; none if there is no such thing."""
    rules = sorted(RULES.values(), key=lambda r: families().index(r.family))  # stable: as written inside a family
    return tuple(r for r in rules if wanted in (None, r.id, r.family))


def families() -> list[str]:
    """The families: what a request owns, who loses it, where it waits, how it comes back, and what comes of it."""
    order = ("pool", "victim", "queue", "resume", "swap", "frame", "output", "live", "edge")
    here = dict.fromkeys(r.family for r in RULES.values())
    return [f for f in order if f in here] + [f for f in here if f not in order]


def markdown(rules: Iterable[Rule]) -> str:
    """A section per rule."""
    return "\n".join(_section(rule) for rule in rules)


def _section(rule: Rule) -> str:
    lines = [f"### {rule.id}", "", f"**{rule.kind.value}.** {rule.sentence}", ""]
    for c in clauses(rule):
        needs = f" Needs {', '.join(f'`{n}`' for n in c.needs)}." if c.needs else ""
        lines.append(f"- *{c.at}*: {c.says}{needs}")
    lines += ["", f"Since specification {rule.since}.", ""]
    for bad in known_bad(rule.id):
        seen = f" (as in {bad.bug})" if bad.bug else ""
        lines.append(f"Known bad: `{bad.name}`. {bad.says}{seen}")
        lines.append("")
    return "\n".join(lines)


def table(rules: Iterable[Rule]) -> str:
    """One line per rule."""
    lines = ["| rule | kind | sentence |", "|---|---|---|"]
    lines += [f"| `{r.id}` | {r.kind.value} | {cell(r.sentence)} |" for r in rules]
    return "\n".join(lines)


def cell(text: str) -> str:
    """Text that stands in a cell of a Markdown table."""
    return " ".join(text.replace("|", "\\|").split())
