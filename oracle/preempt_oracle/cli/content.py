"""`content ENGINE`: is the KV that a victim finds again what it left, and do its outputs show it?"""

from __future__ import annotations

from typing import Any

import click

from preempt_oracle.cli.choices import SEED


@click.command("content")
@click.argument("engine", metavar="NAME[==VERSION]")
@click.option(
    "--victims", type=click.IntRange(1, 10**6), default=500, help="Swapped victims to compare [default: 500]."
)
@click.option("--seed", type=SEED, default=0, metavar="N", help="Seed of the first round [default: 0].")
@click.option("--sharing", is_flag=True, help="With prefix sharing under pressure; all of a round begin alike.")
@click.option("--inject", is_flag=True, help="Put faults into the engine, one by one, and see which rule names each.")
def command(engine: str, victims: int, seed: int, sharing: bool, inject: bool) -> int:
    """Run a small real model under pressure, and compare KV and outputs.

    Every victim's KV is read, layer by layer and token by token, right before it goes to the host and right after it
    came back (swap/round-trip). The outputs are those of the same requests with memory enough, wherever the best two
    logits are further apart than rounding can tell (output/stream). Of engines that run a model here: transformers.

    Exit code 4: fewer victims came back than were asked for.
    """
    from preempt_oracle.adapters.stdio import Stdio
    from preempt_oracle.cli.errors import Missing, unusable
    from preempt_oracle.content_run import CHILDREN, compare
    from preempt_oracle.content_run import command as line
    from preempt_oracle.engines.building import EnvironmentFailure
    from preempt_oracle.engines.environments import ready, requirement
    from preempt_oracle.report.words import console, count, safe

    try:
        name, version = requirement(engine)
    except EnvironmentFailure as e:
        raise unusable(str(e)) from None
    if name not in CHILDREN:
        raise unusable(f"{name} runs no model here; engines that do: {', '.join(CHILDREN)}")
    environment = ready(name, version)
    if environment is None:
        raise Missing(f"{name}=={version} is not installed: preempt-oracle engines install {name}=={version}")
    out, label = console(), f"{name}=={version}"
    transport = Stdio(line(environment), label, env=dict(environment.env))
    try:
        if inject:
            return _inject(transport, seed)
        found = compare(transport, seed, victims, lambda _: None, sharing)
    finally:
        transport.close()
    for at, violation in found.violations[:10]:
        out.print(f"{violation.rule}: {safe(violation.message, 400)} (round of seed {at})", soft_wrap=True)
    verdict = found.verdict(victims)
    out.print(f"{verdict.value.upper()}  {safe(label, 80)}", soft_wrap=True)
    for text in (
        f"{count(found.rounds, 'round')}, {count(found.victims, 'swapped victim')} compared, "
        f"{count(found.slots, 'digest')}; {count(found.recomputed, 'victim')} recomputed",
        *([f"{count(found.hits, 'token')} hit"] if sharing else ()),
        f"{count(found.streams, 'stream')} compared, {count(found.tokens, 'token')} the same; "
        f"{count(found.ties, 'stream')} parted where the margin is below the tolerance",
    ):
        out.print(f"  {text}", soft_wrap=True)
    return verdict.exit_code


def _inject(transport: Any, seed: int) -> int:
    from preempt_oracle.content_run import injected
    from preempt_oracle.report.words import console, safe
    from preempt_oracle.verdict import Verdict

    out, verdict, caught, all_ = console(), Verdict.CONFORMS, 0, 0
    for row in injected(transport, seed):
        all_ += 1
        caught += row.rightly
        what = f"caught by {', '.join(row.rules)}" if row.rules else "not caught" if row.fired else "never acted"
        out.print(f"{row.fault.name:<22} {what}: {safe(row.message or row.fault.does, 300)}", soft_wrap=True)
        if not row.rightly and verdict is not Verdict.VIOLATES:
            verdict = Verdict.VIOLATES if row.fired else Verdict.INCONCLUSIVE
    out.print(f"\n{caught} of {all_} faults caught by the rule they were meant for", soft_wrap=True)
    return verdict.exit_code
