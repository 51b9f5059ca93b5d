"""`conform ENGINE`: generated workloads against a live scheduler."""

from __future__ import annotations

from typing import Any

import click

from preempt_oracle.cli.choices import (
    SEED,
    engine_options,
    github_option,
    html_option,
    json_option,
    junit_option,
    known_option,
    ledger,
    policy_option,
    random_seed,
    seconds,
    silenced,
    spec_option,
)

DEFAULT_WORKLOADS = 100
FOLDER = "preempt-oracle-failures"


@click.command("conform")
@engine_options
@policy_option
@spec_option
@known_option
@click.option("--time", "limit", callback=seconds, metavar="DURATION", help="Stop after so long, such as 120s or 2m.")
@click.option("--workloads", type=click.IntRange(1), metavar="N", help=f"Stop after N [default: {DEFAULT_WORKLOADS}].")
@click.option("--seed", type=SEED, metavar="N", help="Seed of the first workload [default: random].")
@junit_option
@json_option
@html_option
@github_option
@click.option("--save", "folder", metavar="DIR", default=FOLDER, show_default=True, help="Where failures are written.")
def command(
    policy: str | None,
    spec: str,
    known_file: str | None,
    limit: float | None,
    workloads: int | None,
    seed: int | None,
    junit_file: str | None,
    json_file: str | None,
    html_file: str | None,
    github: bool,
    folder: str,
    **named: Any,
) -> int:
    """Drive an engine's scheduler through generated workloads, inside its contract, and judge it rule by rule.

    ENGINE is NAME or NAME==VERSION (see `engines list`), or `reference`: the specification's own scheduler. A failure
    is shortened and written as a scenario file; the run goes on to the end of its budget. Ctrl-C ends it early.
    """
    from preempt_oracle.campaign import Budget, campaign
    from preempt_oracle.cli.files import write
    from preempt_oracle.cli.github import tell
    from preempt_oracle.cli.html import campaign_page, possible
    from preempt_oracle.cli.progress import Progress
    from preempt_oracle.cli.scenarios import save
    from preempt_oracle.cli.target import target
    from preempt_oracle.report.document import document
    from preempt_oracle.report.judged import Judged, overall
    from preempt_oracle.report.junit import junit
    from preempt_oracle.report.tables import show_all
    from preempt_oracle.report.words import console, count, safe

    silent = silenced(junit_file, json_file)
    possible(html_file)
    known = ledger(known_file)
    engine = target(**named)
    chosen = engine.policy(policy)
    seed = random_seed() if seed is None else seed
    budget = Budget(workloads or (None if limit else DEFAULT_WORKLOADS), limit)
    out = console()
    if not silent:
        out.print(f"{safe(engine.label, 200)}, policy {chosen}, seed {seed}", soft_wrap=True)

    def keep(*args: Any) -> tuple[str, str]:
        try:
            return save(folder, engine, *args)
        except click.ClickException as e:
            e.show()  # what was found is worth more than its file
            return "", ""

    with Progress("rules broken") as progress:
        found = campaign(engine.connect, chosen, seed, budget, keep, progress, spec=spec, known=known)
    judged = Judged.of(engine.label, found)
    if not silent:
        ended = "; interrupted" if found.interrupted else ""
        out.print(f"{count(found.workloads, 'workload')} in {found.seconds:.1f} s{ended}")
        show_all(out, [judged], known)
    if junit_file is not None:
        write(junit_file, junit([judged], known))
    if json_file is not None:
        write(json_file, document([judged], known, spec))
    if html_file is not None:
        write(html_file, campaign_page(judged, engine, found.scenarios, spec))
    if github:
        tell([judged])
    return overall([judged], known).exit_code
