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

    Of a scenario that names the rule it breaks, as every failure's does: FIXED (exit 0); STILL FAILS, or ANOTHER RULE
    broke instead (exit 1); INCONCLUSIVE, as the rule cannot be observed there (exit 4). Of another: its verdict.
    """
    from preempt_oracle.campaign import failure
    from preempt_oracle.cli.errors import unusable
    from preempt_oracle.cli.scenarios import read
    from preempt_oracle.cli.target import target
    from preempt_oracle.report.judged import Judged
    from preempt_oracle.report.steps import show_steps
    from preempt_oracle.report.tables import show_deviations, show_failures, show_verdict
    from preempt_oracle.report.words import console, safe
    from preempt_oracle.reproduce import again, tallied

    scenario = read(scenario_file)
    given = [x for x in (engine, *named.values()) if x]
    if engine is None and not named["adapter"] and not named["stdio"]:
        if not scenario.engine:
            raise unusable(f"{scenario_file} names no engine: give ENGINE, --adapter or --stdio")
        engine = scenario.engine
    named["options"] = {**scenario.options, **named["options"]}
    chosen = target(engine, **named)
    run = chosen.run(scenario)
    tally = tallied(run)
    replay = shlex.join(["preempt-oracle", "replay", scenario_file])
    if given:
        replay = chosen.command("replay", scenario_file)
    where = f"{scenario_file}, event {len(run.events)}"
    tally.failures += [failure(run, v, where, replay) for v in run.violations]
    tally.failures += [failure(run, v, scenario_file, replay, advisory=True) for v in run.advised]
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
    outcome = again(scenario, run, tally, safe(chosen.label, 200))
    out.print()
    out.print(f"{outcome.now.value}  {outcome.sentence}", soft_wrap=True)
    return outcome.now.exit_code
