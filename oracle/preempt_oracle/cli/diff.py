"""`diff ENGINE_A ENGINE_B`: the first step in which two schedulers part."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from preempt_oracle.cli.choices import SEED, policy_option, random_seed, seconds

if TYPE_CHECKING:
    from preempt_oracle.cli.target import Target

DEFAULT_SECONDS = 60.0


@click.command("diff")
@click.argument("engine_a", metavar="ENGINE_A")
@click.argument("engine_b", metavar="ENGINE_B")
@policy_option
@click.option("--scenario", "scenario_file", metavar="FILE", help="Only this scenario, as it is.")
@click.option(
    "--time", "limit", callback=seconds, metavar="DURATION", help=f"Stop after so long [default: {DEFAULT_SECONDS:g}s]."
)
@click.option("--workloads", type=click.IntRange(1), metavar="N", help="Stop after N.")
@click.option("--seed", type=SEED, metavar="N", help="Seed of the search [default: random].")
@click.option("-o", "--output", metavar="FILE", help="Write the scenario in which they part.")
def command(
    engine_a: str,
    engine_b: str,
    policy: str | None,
    scenario_file: str | None,
    limit: float | None,
    workloads: int | None,
    seed: int | None,
    output: str | None,
) -> int:
    """Drive two engines, or two versions, through the same workloads, and show the first step in which they part.

    Each is NAME==VERSION, `reference` or MODULE:CLASS of a Python adapter. Decisions are compared: grants, victims,
    hits, queues, free counts; block ids are each engine's own. The workload is shortened, and the rules are named that
    only one of the two breaks.

    Exit code 0: they never part. 1: they do. 3: the harness is broken. 4: not a step could be compared.
    """
    from attrs import evolve

    from preempt_oracle.campaign import Budget
    from preempt_oracle.cli.errors import unusable
    from preempt_oracle.cli.files import writable, write
    from preempt_oracle.cli.progress import Progress
    from preempt_oracle.cli.scenarios import read
    from preempt_oracle.cli.target import REFERENCE
    from preempt_oracle.parting import difference
    from preempt_oracle.report.parting import show_parting
    from preempt_oracle.report.words import console, count, safe
    from preempt_properties.scenario import dumps

    writable(output)
    if scenario_file is not None and (workloads is not None or seed is not None):
        raise click.UsageError("--scenario is one workload: no --workloads, no --seed")
    given = None if scenario_file is None else read(scenario_file)
    one, other = _target(engine_a), _target(engine_b)
    if policy is None and given is not None:
        policy = given.config.policy
    chosen = (other if one.label == REFERENCE else one).policy(policy)
    for engine in (one, other):
        engine.policy(chosen)
    seed = random_seed() if seed is None else seed
    if limit is None and workloads is None:
        limit = DEFAULT_SECONDS
    out, names = console(), (one.label, other.label)
    told = "" if given else f", seed {seed}"
    out.print(f"{safe(names[0], 200)} and {safe(names[1], 200)}, policy {chosen}{told}", soft_wrap=True)
    with Progress("partings") as progress:
        found = difference((one.connect, other.connect), chosen, seed, Budget(workloads, limit), progress, given)
    ended = "; interrupted" if found.interrupted else ""
    sizes = f"{count(found.workloads, 'workload')}, {count(found.steps, 'step')} in {found.seconds:.1f} s"
    out.print(f"{sizes}{ended}", soft_wrap=True)
    if found.broken:
        out.print(f"\nHARNESS BROKEN  {safe(found.broken)}", soft_wrap=True)
        return 3
    if found.parting is not None:
        out.print()
        show_parting(out, found.parting, names)
        assert found.reduced is not None
        text = dumps(evolve(found.reduced.scenario, engine="", rule=""))
        if given is None:
            out.print(f"  scenario  {found.reduced.note}", soft_wrap=True)
            for row in text.splitlines():
                out.print(f"    {safe(row)}", soft_wrap=True)
        if output is not None:
            write(output, text.encode())
            again = f"preempt-oracle diff {engine_a} {engine_b} --scenario {output}"
            out.print(f"  again     {safe(again)}", soft_wrap=True)
        return 1
    if not found.steps:
        if found.outside and given is not None:
            raise unusable("one of them refuses this scenario: it is out of contract")
        out.print("\nINCONCLUSIVE  nothing was compared")
        return 4
    out.print("\nTHE SAME  no step in which they part")
    return 0


def _target(name: str) -> Target:
    from preempt_oracle.cli.target import target

    return target(None, adapter=name) if re.fullmatch(r"[\w.]+:\w+", name) else target(name)
