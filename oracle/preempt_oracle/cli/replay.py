"""`replay SCENARIO [ENGINE]`: one scenario, step by step."""

from __future__ import annotations

import shlex
from typing import Any

import click

from preempt_oracle.cli.choices import engine_options


@click.command("replay")
@click.argument("scenario_file", metavar="SCENARIO")
@engine_options
def command(scenario_file: str, engine: str | None, **named: Any) -> int:
    """Run one scenario on the engine it names, or on another, and show its steps and the verdict.

    Of a scenario that names the rule it breaks, as every failure's does: STILL FAILS (exit 1) or FIXED (exit 0).
    """
    from preempt_oracle.adapters.protocol import Refused
    from preempt_oracle.campaign import failure
    from preempt_oracle.cli.errors import unusable
    from preempt_oracle.cli.scenarios import read
    from preempt_oracle.cli.target import target
    from preempt_oracle.drive import drive
    from preempt_oracle.report.judged import Judged
    from preempt_oracle.report.steps import show_steps
    from preempt_oracle.report.tables import show_deviations, show_failures, show_verdict
    from preempt_oracle.report.words import console, safe
    from preempt_oracle.verdict import Standing, Tally, Verdict

    scenario = read(scenario_file)
    given = [x for x in (engine, *named.values()) if x]
    if engine is None and not named["adapter"] and not named["stdio"]:
        if not scenario.engine:
            raise unusable(f"{scenario_file} names no engine: give ENGINE, --adapter or --stdio")
        engine = scenario.engine
    named["options"] = {**scenario.options, **named["options"]}
    chosen = target(engine, **named)
    session = chosen.connect()
    try:
        run = drive(session, scenario)
    finally:
        session.close()
    if isinstance(run, Refused):
        raise unusable(f"{chosen.label} refuses this scenario: it is out of contract: {run.reason}")
    tally = Tally(run.header.engine, run.header.version, run.policy.name, deviations=run.deviations)
    tally.add(run.monitor, run.header.observes, advised={v.rule for v in run.advised})
    again = shlex.join(["preempt-oracle", "replay", scenario_file])
    if given:
        again = chosen.command("replay", scenario_file)
    where = f"{scenario_file}, event {len(run.events)}"
    tally.failures += [failure(run, v, where, again) for v in run.violations]
    tally.failures += [failure(run, v, scenario_file, again, advisory=True) for v in run.advised]
    out = console()
    show_steps(out, run.events)
    out.print()
    judged = Judged(chosen.label, tally)
    show_failures(out, [judged])
    show_deviations(out, [judged])
    if not scenario.rule:
        out.print()
        show_verdict(out, judged)
        return judged.verdict.exit_code
    standing = tally.standings[scenario.rule]
    out.print()
    if standing in (Standing.VIOLATED, Standing.ADVISED):
        out.print(f"STILL FAILS  {scenario.rule} on {safe(chosen.label, 200)}", soft_wrap=True)
        return Verdict.VIOLATES.exit_code
    if standing is Standing.NOT_OBSERVABLE:
        out.print(f"INCONCLUSIVE  {scenario.rule} is not observable on {safe(chosen.label, 200)}", soft_wrap=True)
        return Verdict.INCONCLUSIVE.exit_code
    if run.violations:
        out.print(f"ANOTHER RULE  {scenario.rule} did not break, {run.violations[0].rule} did", soft_wrap=True)
        return Verdict.VIOLATES.exit_code
    tested = f"{scenario.rule} held on {safe(chosen.label, 200)}, exercised {tally.exercised[scenario.rule]} times"
    out.print(f"FIXED  {tested}", soft_wrap=True)
    return Verdict.CONFORMS.exit_code
