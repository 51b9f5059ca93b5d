"""`lockstep ENGINE`: predict a real vLLM scheduler step by step, and show the first step at which it does otherwise."""

from __future__ import annotations

from typing import Any

import click

from preempt_oracle.cli.choices import SEED, engine_options, json_option, policy_option, seconds

DEFAULT_WORKLOADS = 560  # each combination of both policies once


@click.command("lockstep")
@engine_options
@policy_option
@click.option(
    "--mode", "wanted", metavar="WORDS", default="", help="Only modes with all of these, such as async,caching."
)
@click.option("--time", "limit", callback=seconds, metavar="DURATION", help="Stop after so long, such as 120s or 2m.")
@click.option("--workloads", type=click.IntRange(1), metavar="N", help=f"Stop after N [default: {DEFAULT_WORKLOADS}].")
@click.option("--seed", type=SEED, metavar="N", default=0, show_default=True, help="Seed of the first workload.")
@json_option
def command(
    policy: str | None,
    wanted: str,
    limit: float | None,
    workloads: int | None,
    seed: int,
    json_file: str | None,
    **named: Any,
) -> int:
    """Predict a vLLM scheduler exactly: every grant, victim, queue, hit, block id and count, after every event.

    ENGINE is vllm==0.31.0 or vllm==0.33.0. The prediction is the reference scheduler with vLLM's own block order, as
    that version is built; both hear the same commands and the same tokens. Without --policy both vllm policies are run,
    without --mode every combination of settings that is modelled (docs/lockstep.md), one workload each, in turn.

    Exit code 0: no divergence. 1: some; the first is shown as a diff of the two states, with a shortened scenario. 3:
    the harness is broken. 4: not a single step could be compared.
    """
    from preempt_oracle.cli.errors import unusable
    from preempt_oracle.cli.files import writable, write
    from preempt_oracle.cli.progress import Progress
    from preempt_oracle.cli.target import target
    from preempt_oracle.lockstep.modes import POLICIES, Unmodelled, select
    from preempt_oracle.lockstep.run import Budget, lockstep
    from preempt_oracle.report.lockstep import document, show
    from preempt_oracle.report.words import console, count, safe

    writable(json_file)
    if policy is not None and policy not in POLICIES:
        raise unusable(f"{policy} is not predicted: {' and '.join(POLICIES)} are")
    engine = target(**named)
    policies = POLICIES if policy is None else (policy,)
    for each in policies:
        engine.policy(each)
    try:
        modes = select(policies, wanted)
    except (Unmodelled, ValueError) as e:
        raise unusable(f"--mode: {e}") from None
    if engine.options:
        raise unusable("--option: a mode sets the options of the adapter itself (see --mode)")
    out, silent = console(), json_file == "-"
    if not silent:
        out.print(f"{safe(engine.label, 200)}, {count(len(modes), 'mode')}, seed {seed}", soft_wrap=True)
    budget = Budget(workloads or (None if limit else DEFAULT_WORKLOADS), limit)
    try:
        with Progress("divergences") as progress:
            found = lockstep(engine.connect, modes, seed, budget, progress)
    except Unmodelled as e:
        raise unusable(str(e)) from None
    if not silent:
        ended = "; interrupted" if found.interrupted else ""
        sizes = f"{count(found.workloads, 'workload')}, {count(found.steps, 'step')} in {found.seconds:.1f} s"
        out.print(f"{sizes}{ended}\n", soft_wrap=True)
        show(out, found)
        if found.broken:
            out.print(f"\nHARNESS BROKEN  {safe(found.broken)}", soft_wrap=True)
        out.print(f"\n{_verdict(found.steps, found.divergences)}")
    if json_file is not None:
        write(json_file, document(found))
    if found.broken:
        return 3
    return 1 if found.divergences else 0 if found.steps else 4


def _verdict(steps: int, divergences: int) -> str:
    from preempt_oracle.report.words import count

    if divergences:
        return f"DIVERGES  in {count(divergences, 'workload')}"
    return f"EXACT  {count(steps, 'step')} predicted, no divergence" if steps else "INCONCLUSIVE  nothing was compared"
