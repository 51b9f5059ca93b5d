"""`fuzz ENGINE`: a search for workloads that break a rule, and the shortest scenario for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from preempt_oracle.campaign import Save
    from preempt_oracle.fuzz.jobs import Order

DEFAULT_SECONDS = 60.0
FOLDER = "preempt-oracle-failures"


@click.command("fuzz")
@engine_options
@policy_option
@spec_option
@known_option
@click.option(
    "--time",
    "limit",
    callback=seconds,
    metavar="DURATION",
    help=f"Stop after so long, such as 30s or 2m [default: {DEFAULT_SECONDS:g}s, unless --workloads is given].",
)
@click.option("--workloads", type=click.IntRange(1), metavar="N", help="Stop after N.")
@click.option("--seed", type=SEED, metavar="N", help="Seed of the search [default: random].")
@click.option("--jobs", type=click.IntRange(1, 256), default=1, show_default=True, metavar="N", help="Processes.")
@click.option("-x", "--stop-at-first", is_flag=True, help="Stop at the first rule that is broken.")
@click.option(
    "--patience", callback=seconds, default="60s", metavar="DURATION", help="How long a reply may take [default: 60s]."
)
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
    jobs: int,
    stop_at_first: bool,
    junit_file: str | None,
    json_file: str | None,
    html_file: str | None,
    github: bool,
    folder: str,
    **named: Any,
) -> int:
    """Search for a workload that breaks a rule, and make it as short as it can be.

    ENGINE is NAME or NAME==VERSION (see `engines list`), or `reference`. Workloads are small and under pressure: tiny
    pools, lengths at block boundaries, shared prefixes, ties, bursts, cancellations and, as far as the engine can do
    them, resets, several frames in flight, rejected drafts and host pools that fill. What reached a state that nothing
    had reached before is taken up again.

    For each rule that breaks DIR gets a scenario of a few lines, its trace, and a pytest test that fails as long as the
    scheduler does. Equal seeds and --workloads do the same again. Ctrl-C ends it early, with what it has.
    """
    from preempt_oracle.campaign import Budget
    from preempt_oracle.cli.files import write
    from preempt_oracle.cli.github import tell
    from preempt_oracle.cli.html import campaign_page, possible
    from preempt_oracle.cli.progress import Progress
    from preempt_oracle.cli.target import target
    from preempt_oracle.fuzz.jobs import Order, one, several
    from preempt_oracle.reduce import TRIES
    from preempt_oracle.report.document import document
    from preempt_oracle.report.fuzz import show_found, show_tried
    from preempt_oracle.report.judged import Judged, overall
    from preempt_oracle.report.junit import junit
    from preempt_oracle.report.tables import show_deviations, show_known, show_rules, show_verdict
    from preempt_oracle.report.words import console, safe

    silent = silenced(junit_file, json_file)
    possible(html_file)
    ledger(known_file)  # a file that cannot be used is refused before anything else
    engine = target(**named)
    chosen = engine.policy(policy)
    seed = random_seed() if seed is None else seed
    if limit is None and workloads is None:
        limit = DEFAULT_SECONDS
    order = Order(named, chosen, seed, Budget(workloads, limit), TRIES, spec, known_file, folder, stop_at_first)
    out = console()
    if not silent:
        more = f", {jobs} jobs" * (jobs > 1)
        out.print(f"{safe(engine.label, 200)}, policy {chosen}, seed {seed}{more}", soft_wrap=True)
    with Progress("rules broken") as progress:
        fuzzed = one(order, saver, progress) if jobs == 1 else several(order, jobs, saver, progress)
    found = fuzzed.campaign
    if found.culprit is not None:
        found.broken += f"\nthe scenario: {keep_culprit(order, found.culprit, found.broken)}"
    judged = Judged.of(engine.label, found)
    if not silent:
        show_found(out, judged, fuzzed)
        out.print()
        show_verdict(out, judged)
        show_tried(out, fuzzed)
        show_rules(out, [judged])
        show_deviations(out, [judged])
        show_known(out, fuzzed.known)
    if junit_file is not None:
        write(junit_file, junit([judged], fuzzed.known))
    if json_file is not None:
        write(json_file, document([judged], fuzzed.known, spec))
    if html_file is not None:
        write(html_file, campaign_page(judged, engine, found.scenarios, spec))
    if github:
        tell([judged])
    return overall([judged], fuzzed.known).exit_code


def saver(order: Order, files: dict[str, list[str]]) -> Save:
    """Writes what reproduces a failure, and notes in `files` what it wrote."""
    from preempt_oracle.cli.reproducer import reproducer
    from preempt_oracle.cli.target import target

    engine = target(**order.named)

    def save(violation: Any, *rest: Any) -> tuple[str, str]:
        try:
            written, replay = reproducer(order.folder, engine, violation, *rest)
        except click.ClickException as e:
            e.show()  # what was found is worth more than its file
            return "", ""
        files[violation.rule] = written
        return written[0], replay

    return save


def keep_culprit(order: Order, scenario: Any, why: str) -> str:
    """Write the workload at which the harness broke. Returns the file, or why there is none."""
    import re
    from pathlib import Path

    from attrs import evolve

    from preempt_oracle.cli.files import write
    from preempt_oracle.cli.target import target
    from preempt_oracle.trace.errors import visible
    from preempt_properties.scenario import dumps

    engine = target(**order.named)
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"broken {engine.label} {order.seed}").strip("-")[:120]
    file = Path(order.folder) / f"{name}.toml"
    again = engine.command("replay", str(file))
    told = [f"The harness broke here: {visible(why, 400)}", f"Replay: {visible(again)}"]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        text = dumps(evolve(scenario, engine=engine.key, options=dict(engine.options)), "\n".join(told))
        write(str(file), text.encode())
    except (OSError, click.ClickException) as e:
        return f"could not be written: {e}"
    return f"{file}\nreplay: {again}"
