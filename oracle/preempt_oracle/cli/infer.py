"""`infer ENGINE`: which policy a scheduler follows, knob by knob, found out by driving it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preempt_oracle.cli.choices import SEED, engine_options, json_option, policy_option, random_seed

if TYPE_CHECKING:
    from preempt_oracle.cli.target import Target
    from preempt_oracle.infer import Inference

DEFAULT_WORKLOADS = 150


@click.command("infer")
@engine_options
@policy_option
@click.option("--workloads", type=click.IntRange(1), metavar="N", help=f"Run N [default: {DEFAULT_WORKLOADS}].")
@click.option("--seed", type=SEED, metavar="N", help="Seed of the first workload [default: random].")
@click.option("--save", "folder", metavar="DIR", help="Write a scenario for each value that was refuted.")
@json_option
def command(
    policy: str | None,
    workloads: int | None,
    seed: int | None,
    folder: str | None,
    json_file: str | None,
    **named: Any,
) -> int:
    """Find out which policy an engine follows: victim, requeue, order, gates, each by itself.

    The engine is driven through generated workloads, and all that it did is held against every value of every knob
    (docs/profiles.md says what they mean). A value is refuted when no policy with it explains every run; one that only
    allows more than another is left out when there was occasion to show it and the engine never did. What is left is
    compared with the profile, `--policy` or the engine's own. A run that shows a finding (docs/findings.md) tells what
    it can up to there.

    Exit code 0: all that could be told agrees with the profile. 1: some does not, or no policy explains it. 3: the
    harness is broken. 4: nothing was told, for want of preemptions.
    """
    from preempt_oracle.cli.files import writable, write
    from preempt_oracle.cli.progress import Progress
    from preempt_oracle.cli.target import target
    from preempt_oracle.found import rules
    from preempt_oracle.infer import infer
    from preempt_oracle.report.infer import document, show
    from preempt_oracle.report.words import console, count, safe

    writable(json_file)
    engine = target(**named)
    chosen = engine.policy(policy)
    seed = random_seed() if seed is None else seed
    out, silent = console(), json_file == "-"
    if not silent:
        out.print(f"{safe(engine.label, 200)}, policy {chosen}, seed {seed}", soft_wrap=True)
    with Progress("preemptions") as progress:
        known = rules(engine.key, chosen, engine.options)
        found = infer(engine.connect, chosen, seed, workloads or DEFAULT_WORKLOADS, known, progress)
    if not silent:
        ended = "; interrupted" if found.interrupted else ""
        sizes = f"{count(found.workloads, 'workload')}, {count(found.steps, 'step')} in {found.seconds:.1f} s"
        out.print(f"{sizes}{ended}\n", soft_wrap=True)
        show(out, found)
        if found.broken:
            out.print(f"\nHARNESS BROKEN  {safe(found.broken)}", soft_wrap=True)
        out.print(f"\n{_verdict(found)}")
    if folder is not None:
        _save(folder, engine, found)
    if json_file is not None:
        write(json_file, document(found, engine.options))
    return found.verdict.exit_code


def _verdict(found: Inference) -> str:
    from preempt_oracle.verdict import Verdict

    told = sum(t.agrees is True for t in found.told)
    if found.new:
        return "UNEXPLAINED  what some runs did: `preempt-oracle conform` says more"
    if found.verdict is Verdict.VIOLATES:
        return f"DIFFERS  from {found.policy}"
    if found.verdict is Verdict.CONFORMS:
        return f"AGREES  with {found.policy}: {told} of {len(found.told)} knobs told"
    return "INCONCLUSIVE  nobody was preempted" if not found.preemptions else "INCONCLUSIVE"


def _save(folder: str, engine: Target, found: Inference) -> None:
    from attrs import evolve

    from preempt_oracle.cli.errors import unusable
    from preempt_oracle.cli.files import write
    from preempt_oracle.trace.errors import visible
    from preempt_properties.scenario import dumps

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise unusable(f"cannot make the folder {folder}: {e.strerror}") from None
    for told in found.told:
        for one in told.knob.refuted:
            if one.case is None or one.conflict is None:
                continue
            knob, value = told.knob.name, one.value.name
            name = f"{knob}-not-{value}".lower().replace("_", "-")
            comment = (
                f"Tells that {knob} is not {value} ({visible(engine.label, 200)}, {one.case.name}).\n"
                f"With it {one.conflict.rule} would be broken: {visible(one.conflict.message, 400)}"
            )
            scenario = evolve(found.scenarios[one.case.name], engine=engine.key, options=dict(engine.options))
            write(str(Path(folder) / f"{name}.toml"), dumps(scenario, comment).encode())
