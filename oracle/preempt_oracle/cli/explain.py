"""`explain RULE` and `explain FINDING`: what it says, why it matters, who reported it, and the shortest run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from preempt_oracle.cli.choices import html_option

if TYPE_CHECKING:
    from rich.console import Console

    from preempt_oracle.found import Finding


@click.command("explain")
@click.argument("what", metavar="RULE|FINDING")
@html_option
def command(what: str, html_file: str | None) -> int:
    """Explain a rule, such as victim/unplan, or a finding, such as F1.

    Of a rule: its sentence, what mostly breaks it, what comes of that, public reports of such faults, and the shortest
    run that breaks it, step by step, by a scheduler that has the fault. Of a finding: the scenario that shows it, the
    versions that have it, and the command. --html draws the run of a rule as a timeline.
    """
    from preempt_oracle.cli.html import possible
    from preempt_oracle.cli.rules import nearest
    from preempt_oracle.explained import findings
    from preempt_oracle.report.words import console
    from preempt_spec.rules import RULES

    possible(html_file)
    out, known = console(), findings()
    if what in RULES:
        return _rule(out, what, html_file)
    if what in known:
        if html_file is not None:
            raise click.UsageError("--html draws the run of a rule; a finding's needs its engine: replay it")
        _finding(out, what, known[what])
        return 0
    raise click.UsageError(nearest(what, [*RULES, *known], "rule or finding"))


def _rule(out: Console, id: str, html_file: str | None) -> int:
    from preempt_oracle.cli.files import write
    from preempt_oracle.explained import reports, told
    from preempt_oracle.report.cause import CAUSES, CONSEQUENCES
    from preempt_oracle.report.failure import show_failure
    from preempt_oracle.report.rulebook import first_line
    from preempt_oracle.report.steps import show_steps
    from preempt_properties.scenario import dumps
    from preempt_spec.rules import RULES

    rule = RULES[id]
    out.print(f"{rule.id} ({rule.kind.value}): {rule.sentence}", soft_wrap=True)
    out.print(f"\nMost likely: {CAUSES[id]}\nWhat comes of it: {CONSEQUENCES[id]}", soft_wrap=True)
    history = reports(id)
    out.print("\nPublic reports of such faults" if history else "\nNo public report of such a fault is known to us.")
    for kind in history:
        out.print(f"  {', '.join(kind.reports)}: {kind.fault}", soft_wrap=True)
    run = told(id)
    if run is None:
        if html_file is not None:
            raise click.UsageError(f"no scheduler of ours breaks {id} in a scenario that is kept: nothing to draw")
        return 0
    out.print(f"\nThe shortest run that breaks it. {run.variant.__name__}: {first_line(run.variant)}", soft_wrap=True)
    for line in dumps(run.scenario).splitlines():
        out.print(f"  {line}", soft_wrap=True)
    out.print()
    show_steps(out, run.events)
    out.print()
    show_failure(out, run.failure)
    if html_file is not None:
        from preempt_oracle.report.judged import Judged
        from preempt_oracle.report.timeline.page import Shown, page

        shown = Shown(Judged(f"explain {id}", run.tally), (("", run.film),))
        write(html_file, page([shown]).encode())
    return 0


def _finding(out: Console, id: str, found: tuple[tuple[str, Finding], ...]) -> None:
    from preempt_oracle.matrix import VECTORS
    from preempt_oracle.report.words import safe
    from preempt_spec.rules import RULES

    for engine, finding in found:
        rule = RULES[finding.scenario.rule]
        out.print(f"{id}, {engine}, {', '.join(finding.policies)}: breaks {', '.join(finding.rules)}", soft_wrap=True)
        out.print(f"  {rule.id}: {rule.sentence}", soft_wrap=True)
        out.print(f"  versions that have it: {', '.join(finding.versions)}", soft_wrap=True)
        text = (VECTORS / "scenarios" / f"{finding.name}.toml").read_text(encoding="utf-8")
        for line in text.splitlines():
            out.print(f"  {safe(line)}", soft_wrap=True)
        out.print(f"  replay  preempt-oracle replay {finding.file} {engine}=={finding.versions[-1]}\n", soft_wrap=True)
