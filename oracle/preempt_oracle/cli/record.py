"""`record ENGINE -o TRACE`: the trace of one workload."""

from __future__ import annotations

from typing import Any

import click

from preempt_oracle.cli.choices import SEED, engine_options, policy_option


@click.command("record")
@engine_options
@click.option("-o", "--output", required=True, metavar="TRACE", help="The file, packed if it ends in .gz or .zst.")
@policy_option
@click.option("--scenario", "scenario_file", metavar="FILE", help="Record this scenario.")
@click.option("--seed", type=SEED, metavar="N", help="Record the generated workload of this seed.")
def command(output: str, policy: str | None, scenario_file: str | None, seed: int | None, **named: Any) -> int:
    """Write the trace of one workload, a scenario file's or a generated one.

    The trace ends at its end, or at the first violation, which is then its last event. It is written when it is whole.
    """
    from preempt_oracle.adapters.protocol import Refused
    from preempt_oracle.campaign import generated, probe
    from preempt_oracle.cli.errors import unusable
    from preempt_oracle.cli.files import writable
    from preempt_oracle.cli.scenarios import read
    from preempt_oracle.cli.target import target
    from preempt_oracle.drive import drive
    from preempt_oracle.report.words import count, safe
    from preempt_oracle.trace.writer import create

    if scenario_file is not None and seed is not None:
        raise click.UsageError("--scenario or --seed, not both")
    writable(output)
    scenario = None if scenario_file is None else read(scenario_file)
    engine = target(**named)
    chosen = engine.policy(policy or (scenario.config.policy if scenario is not None else None))
    session = engine.connect()
    try:
        if scenario is None:
            scenario = generated(seed or 0, chosen, probe(session, chosen).started.capabilities)
        run = drive(session, scenario, policy=chosen)
    finally:
        session.close()
    if isinstance(run, Refused):
        raise unusable(f"{engine.label} refuses this scenario: it is out of contract: {run.reason}")
    with create(output, run.header) as trace:
        for event in run.events:
            trace.write(event)
    name = "<stdout>" if output == "-" else output
    sizes = f"{count(len(run.events), 'event')}, {count(run.monitor.steps, 'step')}"
    click.echo(f"{safe(name)}: {sizes}, {count(run.monitor.shadow.preemptions, 'preemption')}", err=True)
    for violation in run.violations:
        click.echo(f"it ends where {violation.rule} breaks: {safe(violation.message)}", err=True)
    return 0
