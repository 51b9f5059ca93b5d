"""`matrix`: what `make conform` runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from preempt_oracle.cli.choices import SEED, json_option, known_option, ledger, seconds, spec_option

if TYPE_CHECKING:
    from preempt_oracle.adapters.protocol import Session
    from preempt_oracle.matrix import LiveEngine
    from preempt_properties.scenario import Option

#: The live rows: engine, and the options of its adapter (`EngineSpec.variants`).
LIGHT: tuple[tuple[str, dict[str, Option]], ...] = (
    ("vidur==0.0.26", {}),
    ("vidur==0.0.26", {"repair": True}),
    ("nano-vllm-fork==20260210", {}),
)


@click.command("matrix")
@click.argument("engine", required=False)
@spec_option
@known_option
@json_option
@click.option(
    "--html", "html_file", metavar="FILE", help="Write one self-contained page: the table, and what is behind a cell."
)
@click.option("--markdown", is_flag=True, help="The table as Markdown.")
@click.option("--versions", metavar="V,V,…", help="With ENGINE: these versions [default: all that are listed].")
@click.option("--workloads", type=click.IntRange(1), metavar="N", help="With ENGINE: per row [default: 300].")
@click.option("--seed", type=SEED, metavar="N", help="With ENGINE: of the first workload [default: 1].")
@click.option("--results", metavar="DIR", help="With ENGINE: where results are kept [default: the cache directory].")
@click.option("--fresh", is_flag=True, help="With ENGINE: run again what is kept.")
@click.option(
    "--fuzz",
    callback=seconds,
    metavar="DURATION",
    help="With ENGINE: search the newest of its versions so long, too, under each policy.",
)
@click.option("--page", "page_file", metavar="FILE", help="With ENGINE: write the page for docs/.")
def command(
    engine: str | None,
    spec: str,
    known_file: str | None,
    json_file: str | None,
    html_file: str | None,
    markdown: bool,
    **live: Any,
) -> int:
    """Judge the shipped traces of real vLLM schedulers and drive the light engines live.

    The table shows how each engine came out, by family of rules, beside the verdict that is expected of it. Exit code
    0 if each is as expected, 1 if not; 3 if an engine is not installed.

    With ENGINE every listed version of it is driven live instead, with `all` every engine: generated workloads and the
    scenarios of all findings. What was run before with the same code, seed and number of workloads is kept, so that an
    interrupted run goes on. Exit code 0 if each version has exactly the findings that it is known to have, 1 if not, 3
    if one could not be run, 4 if the run was interrupted.
    """
    if engine is not None:
        for name, given in (("--known-failures", known_file), ("--markdown", markdown)):
            if given:
                raise click.UsageError(f"{name} is not for ENGINE")
        from preempt_oracle.cli.version_matrix import versions

        return versions(engine, spec, json_file, html_file, **live)
    for name, given in live.items():
        if given:
            raise click.UsageError(f"--{name.removesuffix('_file')} goes with ENGINE")
    from preempt_oracle import matrix as job
    from preempt_oracle.cli.errors import unusable
    from preempt_oracle.cli.files import writable, write
    from preempt_oracle.cli.html import possible
    from preempt_oracle.report import matrix as report
    from preempt_oracle.report.words import console

    writable(json_file)
    possible(html_file)
    known = ledger(known_file)
    try:
        expected = job.expectations()
    except job.ExpectedError as e:
        raise unusable(str(e)) from None
    found = job.run(expected, job.shipped(), _live(), _say, spec=spec, known=known)
    if json_file != "-":
        if markdown:
            click.echo(report.markdown(found))
        else:
            report.show_matrix(console(), found)
    if json_file is not None:
        write(json_file, report.document(found))
    if html_file is not None:
        from preempt_oracle.report.matrix_page.page import page
        from preempt_oracle.report.matrix_page.sheet import of_matrix

        write(html_file, page(of_matrix(found)).encode())
    return found.verdict.exit_code


def _say(line: str) -> None:
    click.echo(line, err=True)


def _live() -> list[LiveEngine]:
    from preempt_oracle.adapters.protocol import HarnessError
    from preempt_oracle.cli.errors import Missing
    from preempt_oracle.cli.target import target
    from preempt_oracle.engines.environments import ENGINES
    from preempt_oracle.matrix import LIVE, Key, LiveEngine

    def connecting(name: str, options: dict[str, Option]) -> Callable[[], Session]:
        def connect() -> Session:
            try:
                return target(name, options=options).connect()
            except Missing as e:
                raise HarnessError(str(e)) from None

        return connect

    engines = []
    for name, options in LIGHT:
        engine, _, version = name.partition("==")
        key = Key(LIVE, engine, version, ENGINES[engine].policies[0], tuple(options.items()))
        engines.append(LiveEngine(key, connecting(name, options)))
    return engines
