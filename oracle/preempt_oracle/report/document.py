"""The JSON report. Its fields are an interface: they may be added to, never renamed or given another meaning."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from preempt_oracle.report.judged import Judged, overall
from preempt_oracle.report.version import version
from preempt_oracle.trace import wire
from preempt_oracle.verdict import Failure, Tally
from preempt_spec import SPEC_VERSION
from preempt_spec.rules import RULES

FORMAT = "preempt-oracle-report"
FORMAT_VERSION = 1


class RuleRow(msgspec.Struct, frozen=True):
    """How one rule came out for one input. `standing`: held, violated, not exercised or not observable."""

    id: str
    kind: str
    sentence: str
    standing: str
    exercised: int


class ComparedRow(msgspec.Struct, frozen=True):
    """One line of the diff between the engine's books and the shadow state; `engine` null: it said nothing of it."""

    what: str
    engine: str | None
    shadow: str
    differs: bool


class FailureRow(msgspec.Struct, frozen=True):
    """A broken rule. `times`: runs that broke it; `events`: the last ones, in trace form."""

    rule: str
    kind: str
    sentence: str
    message: str
    where: str
    step: int
    moment: str
    times: int
    state: tuple[ComparedRow, ...]
    events: tuple[wire.Event, ...]
    note: str
    replay: str


class DeviationRow(msgspec.Struct, frozen=True):
    """Where this version departs from the contract of its policy."""

    knob: str
    value: str
    why: str
    scenario: str


class InputRow(msgspec.Struct, frozen=True):
    """One trace, or one engine. `verdict`: conforms, violates, unreadable, harness broken or inconclusive."""

    source: str
    verdict: str
    error: str
    engine: str
    version: str
    policy: str
    observes: tuple[str, ...]
    seed: int | None
    workloads: int
    out_of_contract: dict[str, int]
    interrupted: bool
    runs: int
    steps: int
    grants: int
    preemptions: int
    resumes: int
    missing: tuple[str, ...]  # what keeps a run without a violation from conforming
    rules: tuple[RuleRow, ...]
    failures: tuple[FailureRow, ...]
    deviations: tuple[DeviationRow, ...]


class Report(msgspec.Struct, frozen=True):
    """The document."""

    format: str
    format_version: int
    preempt_oracle: str
    specification: str
    verdict: str
    exit_code: int
    inputs: tuple[InputRow, ...]


def document(inputs: Sequence[Judged]) -> bytes:
    """The report as indented JSON, with a final newline."""
    verdict = overall(inputs)
    rows = tuple(map(input_row, inputs))
    report = Report(FORMAT, FORMAT_VERSION, version(), SPEC_VERSION, verdict.value, verdict.exit_code, rows)
    return encode(report)


def encode(report: msgspec.Struct) -> bytes:
    """Indented JSON that any parser takes: lone surrogates, which a file name may hold, are escaped."""
    plain = _text(msgspec.to_builtins(report))
    return msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"


def _text(value: object) -> object:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_text(k): _text(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_text(v) for v in value]
    return value


def input_row(judged: Judged) -> InputRow:
    """One input of a report."""
    tally = judged.tally or Tally("", "", "")
    known = judged.tally is not None
    return InputRow(
        source=judged.source,
        verdict=judged.verdict.value,
        error=judged.error,
        engine=tally.engine,
        version=tally.version,
        policy=tally.policy,
        observes=tuple(sorted(tally.observes or ())),
        seed=judged.seed,
        workloads=judged.workloads,
        out_of_contract=dict(judged.outside),
        interrupted=judged.interrupted,
        runs=tally.runs,
        steps=tally.steps,
        grants=tally.grants,
        preemptions=tally.preemptions,
        resumes=tally.resumes,
        missing=tally.missing if known else (),
        rules=tuple(
            RuleRow(id, RULES[id].kind.value, RULES[id].sentence, standing.value, tally.exercised[id])
            for id, standing in (tally.standings.items() if known else ())
        ),
        failures=tuple(_failure(f, tally.times[f.violation.rule]) for f in tally.failures),
        deviations=tuple(DeviationRow(d.knob, str(d.value), d.why, d.scenario) for d in tally.deviations),
    )


def _failure(failure: Failure, times: int) -> FailureRow:
    rule = RULES[failure.violation.rule]
    seen = failure.divergence
    state = tuple(ComparedRow(c.what, c.engine, c.shadow, c.differs) for c in (seen.books if seen else ()))
    return FailureRow(
        rule=rule.id,
        kind=rule.kind.value,
        sentence=rule.sentence,
        message=failure.violation.message,
        where=failure.where,
        step=failure.frame,
        moment=seen.moment if seen else "",
        times=times,
        state=state,
        events=failure.tail,
        note=failure.note,
        replay=failure.replay,
    )
