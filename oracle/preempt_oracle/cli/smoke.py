"""`smoke ENGINE`: does it start, and what can be observed of it?"""

from __future__ import annotations

from typing import Any

import click

from preempt_oracle.cli.choices import engine_options, policy_option


@click.command("smoke")
@engine_options
@policy_option
def command(policy: str | None, **named: Any) -> int:
    """Start an engine, run a handful of fixed scenarios, and say what it lets us observe and what was reached.

    The exit code is that of the verdict; a handful of scenarios is often inconclusive (4).
    """
    from preempt_oracle.adapters.protocol import Refused
    from preempt_oracle.campaign import failure, probe, several_victims
    from preempt_oracle.cli.target import REFERENCE, target
    from preempt_oracle.drive import drive
    from preempt_oracle.report.judged import Judged
    from preempt_oracle.report.tables import show_deviations, show_failures, show_verdict
    from preempt_oracle.report.words import console, count, safe
    from preempt_oracle.smoke import smokes
    from preempt_oracle.verdict import Tally, policy_for

    engine = target(**named)
    if engine.label == REFERENCE and policy is None:
        raise click.UsageError("the reference scheduler follows any policy: --policy is needed")
    chosen = engine.policy(policy)
    out = console()
    session = engine.connect()
    try:
        opened = probe(session, chosen)
        header, can = opened.started.header, opened.started.capabilities
        tally = Tally(header.engine, header.version, chosen, deviations=policy_for(header, chosen)[1])
        out.print(f"{safe(header.engine, 80)} {safe(header.version, 80)}, policy {chosen}", soft_wrap=True)
        _list("assumes", header.assumes)
        _list("can", sorted(can))
        several = 0
        lines = []
        for smoke in smokes(opened.config, can):
            run = drive(session, smoke.scenario, policy=chosen)
            if isinstance(run, Refused):
                lines.append(f"  {smoke.name:<38}  refused: {safe(run.reason, 200)}")
                continue
            tally.add(run.monitor, run.header.observes)
            several += several_victims(run)
            known = {f.violation.rule for f in tally.failures}
            tally.failures += [failure(run, v, smoke.name, "") for v in run.violations if v.rule not in known]
            shadow = run.monitor.shadow
            sizes = f"{count(shadow.preemptions, 'preemption')}, {count(shadow.resumes, 'resume')}"
            broken = "".join(f", breaks {v.rule}" for v in run.violations)
            lines.append(f"  {smoke.name:<38}  {count(run.monitor.steps, 'step')}, {sizes}{broken}")
    finally:
        session.close()
    _observations(tally)
    out.print("\nscenarios")
    for line in lines:
        out.print(line, soft_wrap=True)
    reached = {"preemption": tally.preemptions, "resume": tally.resumes, "several victims in one step": several}
    out.print("\nreached: " + "; ".join(f"{k}: {'yes' if n else 'NO'}" for k, n in reached.items()))
    judged = Judged(engine.label, tally)
    show_failures(out, [judged])
    show_deviations(out, [judged])
    out.print()
    show_verdict(out, judged)
    return judged.verdict.exit_code


def _list(name: str, items: Any) -> None:
    from preempt_oracle.report.words import console, safe

    if items:
        console().print(f"{name}: {', '.join(safe(i, 200) for i in items)}", soft_wrap=True)


def _observations(tally: Any) -> None:
    from preempt_oracle.report.words import console
    from preempt_oracle.verdict import Standing
    from preempt_spec.events import OBSERVABLE

    out, seen = console(), tally.observes or frozenset()
    out.print("\nobserved")
    for name in OBSERVABLE:
        if name in seen:
            out.print(f"  {name:<9} {OBSERVABLE[name]}", soft_wrap=True)
    _list("not observed", [name for name in OBSERVABLE if name not in seen])
    hidden = [id for id, standing in tally.standings.items() if standing is Standing.NOT_OBSERVABLE]
    out.print(f"\nrules: {len(tally.standings) - len(hidden)} of {len(tally.standings)} are observable")
    _list("not observable", hidden)
