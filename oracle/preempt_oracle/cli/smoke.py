"""`smoke ENGINE`: does it start, and what can be observed of it? With `--inject`: does that suffice?"""

from __future__ import annotations

from typing import Any

import click

from preempt_oracle.cli.choices import SEED, engine_options, json_option, policy_option


@click.command("smoke")
@engine_options
@policy_option
@click.option("--inject", is_flag=True, help="Put faults into the engine, one by one, and see which rule names each.")
@click.option("--fault", "faults", multiple=True, metavar="NAME", help="With --inject: only this one. May be repeated.")
@click.option("--seed", type=SEED, metavar="N", help="With --inject: seed of the first workload [default: 0].")
@json_option
def command(
    policy: str | None, inject: bool, faults: tuple[str, ...], seed: int | None, json_file: str | None, **named: Any
) -> int:
    """Start an engine, run a handful of fixed scenarios, and say what it lets us observe and what was reached.

    The exit code is that of the verdict; a handful of scenarios is often inconclusive (4).

    With --inject the adapter puts faults into its real engine, and each is driven through generated workloads until a
    rule is broken. Exit code 0: every fault was caught by the rule it was meant for, or the adapter says which
    observation it lacks for that. 1: one was not caught, or by another rule, or the same workloads break a rule
    without any fault, other than those found in this version (docs/findings.md). 3: a fault broke the harness. 4: one
    never acted, so that nothing is known of it.
    """
    if inject:
        return _inject(policy, frozenset(faults), seed or 0, json_file, named)
    for name, given in (("--fault", faults), ("--seed", seed is not None), ("--json", json_file)):
        if given:
            raise click.UsageError(f"{name} goes with --inject")
    return _smoke(policy, named)


def _inject(policy: str | None, only: frozenset[str], seed: int, json_file: str | None, named: dict[str, Any]) -> int:
    from preempt_oracle.cli.errors import unusable
    from preempt_oracle.cli.files import writable, write
    from preempt_oracle.cli.target import REFERENCE, target
    from preempt_oracle.found import rules
    from preempt_oracle.inject import NoFaults, injected
    from preempt_oracle.report.injection import document, show
    from preempt_oracle.report.words import console, safe

    writable(json_file)
    engine = target(**named)
    if engine.label == REFERENCE:
        raise click.UsageError("the reference is no real engine; its known-bad variants are listed by `rules RULE`")
    chosen = engine.policy(policy)
    out = console()
    if json_file != "-":
        out.print(f"{safe(engine.label, 200)}, policy {chosen}, seed {seed}", soft_wrap=True)
    try:
        found = injected(engine.connect, chosen, seed, only=only, known=rules(engine.key, chosen, named["options"]))
    except NoFaults as e:
        raise unusable(str(e)) from None
    if json_file != "-":
        show(out, found)
    if json_file is not None:
        write(json_file, document(found))
    return found.verdict.exit_code


def _smoke(policy: str | None, named: dict[str, Any]) -> int:
    from preempt_oracle.adapters.protocol import Refused
    from preempt_oracle.campaign import failure, probe, several_victims
    from preempt_oracle.cli.target import target
    from preempt_oracle.drive import drive
    from preempt_oracle.report.judged import Judged
    from preempt_oracle.report.tables import show_deviations, show_failures, show_verdict
    from preempt_oracle.report.words import console, count, safe
    from preempt_oracle.smoke import smokes
    from preempt_oracle.verdict import Tally, policy_for

    engine = target(**named)
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
