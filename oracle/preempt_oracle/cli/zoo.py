"""`zoo`: known-bad schedulers against the monitor: which rule names each, and how soon."""

from __future__ import annotations

import click

from preempt_oracle.cli.choices import SEED, json_option


@click.command("zoo")
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Processes that search.")
@click.option(
    "--only", multiple=True, metavar="GROUP|RULE|NAME", help="Only these known-bad schedulers (may be repeated)."
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of the workloads.")
@json_option
def command(jobs: int, only: tuple[str, ...], seed: int, json_file: str | None) -> int:
    """Search for every known fault in the scheduler that has it, and print who was caught, by which rule, how soon.

    The search is generic: it knows what kind of engine it drives, and nothing of the fault. Schedulers that are right
    are driven as well. Exit 0 if every known-bad scheduler is named by the rule it breaks, in time, and nobody else is
    accused; 1 if not.
    """
    from preempt_oracle.cli.files import writable, write
    from preempt_oracle.cli.progress import Ticker
    from preempt_oracle.report.words import console, safe
    from preempt_oracle.report.zoo import document, show
    from preempt_oracle.zoo import NoSuchVariant, chosen, matrix, summary, tasks, unattended
    from preempt_oracle.zoo_kept import kept_otherwise
    from preempt_properties.evidence import load as evidence
    from preempt_properties.known_bad.kinds import load
    from preempt_properties.known_bad.right import RIGHT

    kinds = load()
    try:
        variants = chosen(only, kinds)
    except NoSuchVariant as e:
        raise click.UsageError(safe(str(e), 600)) from None
    writable(json_file)
    todo = [*tasks(variants), *(() if only else tasks(RIGHT))]
    with Ticker(len(todo), "searches") as tick:
        found = summary(matrix(todo, seed, jobs, lambda kill: tick(f"{kill.name}, {kill.policy}", bool(kill.fault))))
    faults = [*found.faults, *unattended(evidence())]
    if not only and seed == 0:
        faults += kept_otherwise(found.kills)
    if json_file:
        write(json_file, document(found, faults, kinds, seed))
    if json_file != "-":
        show(console(), found, faults, kinds)
    return 1 if faults else 0
