"""Verdict lines and the table of rules."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from preempt_oracle.known import Ledger, Line
from preempt_oracle.report.failure import field, show_failure
from preempt_oracle.report.judged import Judged, together
from preempt_oracle.report.words import count, safe
from preempt_oracle.verdict import Standing, Tally, Verdict
from preempt_spec import SPEC_VERSION
from preempt_spec.rules import RULES

STYLE = {
    Verdict.CONFORMS: "green",
    Verdict.VIOLATES: "bold red",
    Verdict.UNREADABLE: "red",
    Verdict.BROKEN: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.KNOWN: "green",
    Verdict.STALE: "red",
}
STANDING = {
    Standing.HELD: "green",
    Standing.VIOLATED: "bold red",
    Standing.KNOWN: "yellow",
    Standing.ADVISED: "yellow",
    Standing.NOT_EXERCISED: "yellow",
}


def show_verdict(out: Console, judged: Judged) -> None:
    """One line: what was judged and how it came out; and why, if it came to nothing."""
    verdict = (judged.verdict.value.upper(), STYLE[judged.verdict])
    if judged.verdict is Verdict.UNREADABLE:  # the error begins with the name, and says the line
        out.print(Text.assemble(verdict, f"  {safe(judged.error)}"), soft_wrap=True)
        return
    line = Text.assemble(verdict, f"  {safe(judged.source, 300)}")
    tally = judged.tally
    if tally is not None:
        sizes = (count(tally.steps, "step"), count(tally.grants, "grant"), count(tally.preemptions, "preemption"))
        who = f"{safe(tally.engine, 60)} {safe(tally.version, 60)}, {tally.policy}"
        by = f"; specification {tally.spec}" * (tally.spec != SPEC_VERSION)
        line.append(f"  ({who}; {', '.join(sizes)}, {count(tally.resumes, 'resume')}{by})")
    out.print(line, soft_wrap=True)
    if judged.error:
        # The end of a child's stderr comes along, line by line.
        first, *rest = judged.error.splitlines() or [""]
        field(out, "why", first)
        for more in rest:
            out.print(f"  {safe(more)}", soft_wrap=True)
    if tally is not None and tally.missing and judged.verdict is Verdict.INCONCLUSIVE:
        shown = tally.missing[:6]
        more = f"; and {len(tally.missing) - len(shown)} more" if len(tally.missing) > len(shown) else ""
        field(out, "why", "; ".join(shown) + more)
    if tally is not None and tally.recomputed:
        per = f" ({tally.recomputed / tally.delivered:.2g} each)" if tally.delivered else ""
        field(out, "tax", f"{count(tally.recomputed, 'token')} computed again for {tally.delivered} delivered{per}")
    if tally is not None:
        if tally.lost:
            field(out, "lost", f"at least {count(tally.lost, 'event')} behind the end, where the recording stopped")
        show_expected(out, tally)
    if judged.outside:
        total = sum(judged.outside.values())
        reason = next(iter(judged.outside))
        field(out, "outside", f"{total} of {count(judged.workloads, 'workload')} out of contract, such as: {reason}")


def show_expected(out: Console, tally: Tally) -> None:
    """What was broken and does not count, and what that left unseen."""
    for rule, times in tally.known.items():
        field(out, "known", f"{rule} in {count(times, 'run')}")
    if tally.ended:
        behind = f"; {count(tally.unjudged, 'step')} of recorded traces" * bool(tally.unjudged)
        field(out, "unjudged", f"whatever is behind the known failure that ended {count(tally.ended, 'run')}{behind}")
    for rule, times in tally.advised.items():
        new = f"new in specification {tally.spec}, no part of the verdict"
        field(out, "advisory", f"{rule} in {count(times, 'run')}: {new}")


def show_failures(out: Console, inputs: Sequence[Judged]) -> None:
    """Every failure in full."""
    for judged in inputs:
        if judged.tally is not None:
            for failure in judged.tally.failures:
                out.print()
                show_failure(out, failure, judged.tally.seen_in(failure))


def show_rules(out: Console, inputs: Sequence[Judged]) -> None:
    """One table for all inputs: id, kind, standing, how often it was put to the test."""
    if not any(j.tally is not None for j in inputs):
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("rule", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("standing", no_wrap=True)
    table.add_column("exercised", justify="right", no_wrap=True)
    for rule, (standing, exercised) in together(inputs).items():
        style = STANDING.get(standing, "dim")
        table.add_row(rule, RULES[rule].kind.value, Text(standing.value, style=style), f"{exercised:,}")
    out.print()
    out.print(table)


def show_deviations(out: Console, inputs: Sequence[Judged]) -> None:
    """Where an engine's version departs from the contract of its policy: judged as built, and said so."""
    seen = {(d.engine, d.knob, d.why): d for j in inputs if j.tally is not None for d in j.tally.deviations}
    if seen:
        out.print()
        out.print("Deviations: judged as built, where this version departs from the contract")
        for d in seen.values():
            out.print(f"  {d.engine} {', '.join(d.versions)}, {d.knob}: {safe(d.why)}", soft_wrap=True)
            out.print(f"    to see it: {safe(d.scenario)}", soft_wrap=True)


def show_known(out: Console, known: Ledger | None) -> None:
    """How each entry of a known-failures file came out; stale ones in full, as they make the command fail."""
    if known is None:
        return
    out.print("\nKnown failures")
    wide = max(len(line.rule) for line in known.lines)
    for line in known.lines:
        out.print(f"  {line.rule:<{wide}}  {_seen(line)}  ({safe(line.entry.family, 300)})", soft_wrap=True)
    for line in known.stale:
        out.print(Text.assemble(("STALE", STYLE[Verdict.STALE]), f"  {safe(str(line))}"), soft_wrap=True)


def _seen(line: Line) -> str:
    if line.seen:
        return f"seen in {count(line.seen, 'run')}"
    if line.stale:
        return "stale"
    if not line.kept:
        return "not run"
    return f"not seen in {count(line.kept, 'run')} of its family; stale at {line.entry.within:,}"


def show_all(out: Console, inputs: Sequence[Judged], known: Ledger | None = None) -> None:
    """The whole report."""
    for judged in inputs:
        show_verdict(out, judged)
    show_failures(out, inputs)
    show_rules(out, inputs)
    show_deviations(out, inputs)
    show_known(out, known)
