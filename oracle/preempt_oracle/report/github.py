"""What GitHub Actions shows of a run: annotations beside the change, and a summary of the step.

An annotation is a line on standard output that the runner takes as a command; whatever comes from a trace is escaped as
the runner's documentation asks for (docs.github.com, "Workflow commands"), so that no text can be a command of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preempt_oracle.report.cause import CAUSES
from preempt_oracle.report.judged import Judged
from preempt_oracle.report.rulebook import cell
from preempt_oracle.report.words import count, safe
from preempt_oracle.verdict import Standing, Verdict
from preempt_spec.rules import RULES

MOST = 10  # failures told in full in a summary


def notes(inputs: Sequence[Judged]) -> Iterator[str]:
    """A line per broken rule and per input that could not be judged; a warning for an inconclusive one."""
    for judged in inputs:
        if judged.error:
            yield _command("error", judged.fault.value, f"{judged.source}: {judged.error.splitlines()[0]}")
        if judged.tally is None:
            continue
        seen: set[tuple[str, str]] = set()
        for f in judged.tally.failures:
            rule, kind = f.violation.rule, "warning" if f.known or f.advisory else "error"
            if (rule, kind) in seen:
                continue
            seen.add((rule, kind))
            text = f"{f.violation.message}\n{RULES[rule].sentence}\nMost likely: {CAUSES[rule]}\n{f.where}"
            yield _command(kind, rule, f"{text}\nTo see it again: {f.replay}" if f.replay else text)
        if judged.verdict is Verdict.INCONCLUSIVE:
            yield _command("warning", "inconclusive", f"{judged.source}: {'; '.join(judged.tally.missing)}")


def _command(kind: str, title: str, message: str) -> str:
    shown = "\n".join(safe(line, 600) for line in message.splitlines())
    return f"::{kind} title=preempt-oracle {_property(safe(title, 100))}::{_data(shown)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def summary(inputs: Sequence[Judged]) -> str:
    """Markdown for the step's summary."""
    return "\n".join(_summary(inputs)) + "\n"


def _summary(inputs: Sequence[Judged]) -> Iterator[str]:
    yield "## preempt-oracle"
    yield ""
    yield "| | verdict | engine | policy | runs |"
    yield "|---|---|---|---|---|"
    for judged in inputs:
        cells = [judged.source, judged.verdict.value, "", "", ""]
        if t := judged.tally:
            runs = f"{count(t.runs, 'run')}, {count(t.steps, 'step')}, {count(t.preemptions, 'preemption')}"
            cells[2:] = [f"{t.engine} {t.version}", t.policy, runs]
        yield f"| {' | '.join(_text(x, 200) for x in cells)} |"
    for judged in inputs:
        if judged.tally is None:
            continue
        for f in judged.tally.failures[:MOST]:
            rule = RULES[f.violation.rule]
            word = "known" if f.known else "advisory" if f.advisory else "broken"
            yield ""
            yield f"### `{rule.id}` {word}"
            yield ""
            yield f"{rule.sentence} **{_text(f.violation.message, 600)}** {CAUSES[rule.id]}"
            if f.replay:
                yield ""
                yield f"    {safe(f.replay, 600)}"
        held = sum(s is Standing.HELD for s in judged.tally.standings.values())
        yield ""
        yield f"{held} of {len(judged.tally.standings)} rules held and were put to the test."


def _text(text: str, limit: int) -> str:
    """Of a trace: neither markup nor a link nor the end of a cell."""
    shown = safe(text, limit)
    return cell("".join(f"&#{ord(c)};" if c in "<>&`*_[]()#!@" else c for c in shown))
