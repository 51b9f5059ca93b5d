"""What a search found, and an honest account of what was tried."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from preempt_oracle.fuzz.jobs import Fuzzed
from preempt_oracle.report.failure import field, show_failure
from preempt_oracle.report.judged import Judged
from preempt_oracle.report.words import count
from preempt_oracle.verdict import Standing


def show_found(out: Console, judged: Judged, fuzzed: Fuzzed) -> None:
    """Each broken rule in full, in the order of its breaking, with what was written for it."""
    tally, first = fuzzed.campaign.tally, fuzzed.campaign.first
    for failure in sorted(tally.failures, key=lambda f: first.get(f.violation.rule, 0.0)):
        out.print()
        show_failure(out, failure, tally.seen_in(failure))
        for file in fuzzed.files.get(failure.violation.rule, [])[1:] if not failure.known else ():
            field(out, "test" if file.endswith(".py") else "trace", file)
        if failure.violation.rule in first:
            field(out, "found", f"after {first[failure.violation.rule]:.1f} s")


def show_tried(out: Console, fuzzed: Fuzzed) -> None:
    """How far the search came."""
    for name, value in tried(fuzzed):
        field(out, name, value)


def tried(fuzzed: Fuzzed) -> Iterator[tuple[str, str]]:
    """Label and text of each line."""
    found, tally = fuzzed.campaign, fuzzed.campaign.tally
    ended = "; interrupted" if found.interrupted else ""
    pace = found.workloads / found.seconds if found.seconds else 0
    yield "tried", f"{count(found.workloads, 'workload')} in {found.seconds:.1f} s ({pace:,.0f} a second){ended}"
    yield "foreseen", f"{count(fuzzed.sketched, 'step')} of candidate workloads, by a sketch of the reference"
    sizes = (count(tally.steps, "step"), count(tally.preemptions, "preemption"), count(tally.resumes, "resume"))
    yield "reached", f"{count(len(fuzzed.states), 'abstract state')} in {', '.join(sizes)}"
    standings = tally.standings
    never = [rule for rule, standing in standings.items() if standing is Standing.NOT_EXERCISED]
    if never:
        yield "never", f"put to the test: {', '.join(never)}"
    hidden = [rule for rule, standing in standings.items() if standing is Standing.NOT_OBSERVABLE]
    if hidden:
        yield "hidden", f"not observable here: {', '.join(hidden)}"
