"""`check TRACE…`: judge recorded traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from preempt_oracle.cli.choices import (
    github_option,
    html_option,
    json_option,
    junit_option,
    known_option,
    ledger,
    policy_option,
    silenced,
    spec_option,
)

if TYPE_CHECKING:
    from preempt_oracle.monitor import Monitor
    from preempt_oracle.trace.wire import Event


@click.command("check")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@policy_option
@spec_option
@known_option
@junit_option
@json_option
@html_option
@github_option
def command(
    traces: tuple[str, ...],
    policy: str | None,
    spec: str,
    known_file: str | None,
    junit_file: str | None,
    json_file: str | None,
    html_file: str | None,
    github: bool,
) -> int:
    """Judge recorded traces, plain, gzip or zstd; '-' is standard input.

    Of a series that a recorder wrote in parts, name the first: the others are read behind it.

    Each trace gets a verdict of its own; one table has all the rules. A trace that cannot be read is reported and does
    not keep the others from being judged.
    """
    from preempt_oracle.check import check
    from preempt_oracle.cli.files import write
    from preempt_oracle.cli.github import tell
    from preempt_oracle.cli.html import possible
    from preempt_oracle.film import Film
    from preempt_oracle.report.document import document
    from preempt_oracle.report.judged import Judged, overall
    from preempt_oracle.report.junit import junit
    from preempt_oracle.report.tables import show_all
    from preempt_oracle.report.words import console
    from preempt_oracle.trace.errors import TraceError
    from preempt_oracle.trace.series import heads
    from preempt_oracle.verdict import Verdict

    silent = silenced(junit_file, json_file)
    possible(html_file)
    known = ledger(known_file)
    inputs: list[Judged] = []
    films: list[Film] = []  # of the trace that is being read
    shown: list[tuple[Judged, tuple[Film, ...]]] = []

    def film(monitor: Monitor) -> Callable[[Event], None]:
        films.append(Film(monitor))
        return films[-1].see

    for trace in heads(traces):
        name = "<stdin>" if trace == "-" else trace
        try:
            watched = None if html_file is None else film
            inputs.append(Judged(name, check(trace, policy, spec=spec, known=known, film=watched)))
        except TraceError as e:
            films.clear()
            inputs.append(Judged(name, error=str(e), fault=Verdict.UNREADABLE))
        shown.append((inputs[-1], tuple(films)))
        films.clear()
    if not silent:
        show_all(console(), inputs, known)
    if junit_file is not None:
        write(junit_file, junit(inputs, known))
    if json_file is not None:
        write(json_file, document(inputs, known, spec))
    if html_file is not None:
        from preempt_oracle.report.timeline.page import Shown, page

        pages = [Shown(judged, tuple(("", each) for each in seen)) for judged, seen in shown]
        write(html_file, page(pages).encode())
    if github:
        tell(inputs)
    return overall(inputs, known).exit_code
