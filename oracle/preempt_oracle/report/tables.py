"""Verdict lines and the table of rules."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from preempt_oracle.report.failure import field, show_failure
from preempt_oracle.report.judged import Judged, together
from preempt_oracle.report.words import count, safe
from preempt_oracle.verdict import Standing, Verdict
from preempt_spec.rules import RULES

STYLE = {
    Verdict.CONFORMS: "green",
    Verdict.VIOLATES: "bold red",
    Verdict.UNREADABLE: "red",
    Verdict.BROKEN: "red",
    Verdict.INCONCLUSIVE: "yellow",
}
STANDING = {Standing.HELD: "green", Standing.VIOLATED: "bold red", Standing.NOT_EXERCISED: "yellow"}


def show_verdict(out: Console, judged: Judged) -> None:
    """One line: what was judged and how it came out; and why, if it came to nothing."""
    verdict = (judged.verdict.value.upper(), STYLE[judged.verdict])
    if judged.verdict is Verdict.UNREADABLE:  # the error begins with the name, and says the line
        out.print(Text.assemble(verdict, f"  {safe(judged.error)}"), soft_wrap=True)
        return
    line = Text.assemble(verdict, f"  {safe(judged.source, 300)}")
    tally = judged.tally
    if tally is not None:
        sizes = (count(tally.steps, "step"), count(tally.grants, "grant"), count(tally.preemptions, "preemption"))
        who = f"{safe(tally.engine, 60)} {safe(tally.version, 60)}, {tally.policy}"
        line.append(f"  ({who}; {', '.join(sizes)}, {count(tally.resumes, 'resume')})")
    out.print(line, soft_wrap=True)
    if judged.error:
        # The end of a child's stderr comes along, line by line.
        first, *rest = judged.error.splitlines() or [""]
        field(out, "why", first)
        for more in rest:
            out.print(f"  {safe(more)}", soft_wrap=True)
    if tally is not None and tally.missing and judged.verdict is Verdict.INCONCLUSIVE:
        shown = tally.missing[:6]
        more = f"; and {len(tally.missing) - len(shown)} more" if len(tally.missing) > len(shown) else ""
        field(out, "why", "; ".join(shown) + more)
    if judged.outside:
        total = sum(judged.outside.values())
        reason = next(iter(judged.outside))
        field(out, "outside", f"{total} of {count(judged.workloads, 'workload')} out of contract, such as: {reason}")


def show_failures(out: Console, inputs: Sequence[Judged]) -> None:
    """Every failure in full."""
    for judged in inputs:
        if judged.tally is not None:
            for failure in judged.tally.failures:
                out.print()
                show_failure(out, failure, judged.tally.times[failure.violation.rule])


def show_rules(out: Console, inputs: Sequence[Judged]) -> None:
    """One table for all inputs: id, kind, standing, how often it was put to the test."""
    if not any(j.tally is not None for j in inputs):
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("rule", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("standing", no_wrap=True)
    table.add_column("exercised", justify="right", no_wrap=True)
    for rule, (standing, exercised) in together(inputs).items():
        style = STANDING.get(standing, "dim")
        table.add_row(rule, RULES[rule].kind.value, Text(standing.value, style=style), f"{exercised:,}")
    out.print()
    out.print(table)


def show_deviations(out: Console, inputs: Sequence[Judged]) -> None:
    """Where an engine's version departs from the contract of its policy: judged as built, and said so."""
    seen = {(d.engine, d.knob, d.why): d for j in inputs if j.tally is not None for d in j.tally.deviations}
    if seen:
        out.print()
        out.print("Deviations: judged as built, where this version departs from the contract")
        for d in seen.values():
            out.print(f"  {d.engine} {', '.join(d.versions)}, {d.knob}: {safe(d.why)}", soft_wrap=True)
            out.print(f"    to see it: {safe(d.scenario)}", soft_wrap=True)


def show_all(out: Console, inputs: Sequence[Judged]) -> None:
    """The whole report."""
    for judged in inputs:
        show_verdict(out, judged)
    show_failures(out, inputs)
    show_rules(out, inputs)
    show_deviations(out, inputs)
