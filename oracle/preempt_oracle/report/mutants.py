"""docs/mutants.md: how much of the rules and of the monitor would be missed if it were wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preempt_oracle.report.rulebook import cell
from preempt_oracle.rule_mutants.kept import ENDS, Argued, Score

INTRODUCTION = """\
Who tests the tester? Every function of the rules (`spec/preempt_spec/rules/`) and of the monitor
(`oracle/preempt_oracle/monitor/`) is changed in every small way: a comparison moved or turned around, a connective
exchanged, a condition dropped, a number off by one, a name or member confused, a filter or a statement left out, a
clause made to find nothing. Of each mutant it is asked what notices it, the cheapest first:

- *evidence*: a known-bad scheduler is no longer named by its rule (or by each clause that finds something in its
  [scenario](zoo.md)), one that is right is accused, a shipped trace comes out otherwise, or an exercise count is not
  the one in `evidence.toml`; of the monitor, a stream of which it says otherwise than the pure system: in its
  violations, exercise counts or state, or of which it judges more or less clause by clause;
- *monitor*: of a rule, a short cut of the monitor that does not follow;
- *test*: a test of `tests/spec` or `tests/oracle/monitor`.

*Argued* are those that change nothing anybody could see, each with its reason in
`oracle/preempt_oracle/rule_mutants/argued.toml`. *Open* are those that are alive and that nobody has argued for: holes,
until somebody shows otherwise. The score is what was noticed, of all that are not argued for. A mutant that is alive
and stands in neither list is exit 1; so is one that stands there and is noticed.

    python -m preempt_oracle.rule_mutants [rules] [monitor] [--sample N] [PART OF A NAME]

CI hunts a fixed sample (`make mutants`): one in six of the rules', one in forty of the monitor's. Whoever changes a
rule hunts all of its own."""


def page(score: Score, one_of: Mapping[str, int], argued: Argued) -> Iterator[str]:
    """The parts of the page."""
    yield INTRODUCTION
    for what, rows in score.items():
        yield f"## {what.capitalize()}"
        if one_of[what] > 1:
            yield f"Of a fixed sample: one of {one_of[what]} mutants."
        yield "\n".join(_table(what, rows))
    yield "## Arguments"
    yield "\n".join(f"- `{mutant}`: {cell(why)}" for mutant, why in sorted(argued.reasons.items())) or "None."
    yield "## Open"
    yield "\n".join(f"- `{mutant}`" for mutant in sorted(argued.open)) or "None."


def _table(what: str, rows: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    first = "rule" if what == "rules" else "module"
    yield f"| {first} | mutants | {' | '.join(ENDS)} | score |"
    yield "|---|" + "---:|" * (len(ENDS) + 2)
    for name, ends in rows.items():
        noticed, all_of = ends["evidence"] + ends["monitor"] + ends["test"], sum(ends.values())
        counts = " | ".join(f"{ends[end]:,}" for end in ENDS)
        rest = all_of - ends["argued"]
        yield f"| `{name}` | {all_of:,} | {counts} | {f'{100 * noticed / rest:.0f} %' if rest else '-'} |"
