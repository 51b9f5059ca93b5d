"""The JSON report. Its fields are an interface: they may be added to, never renamed or given another meaning."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from preempt_oracle.known import Bounds, Ledger
from preempt_oracle.report.judged import Judged, overall
from preempt_oracle.report.version import version
from preempt_oracle.trace import wire
from preempt_oracle.verdict import Failure, Tally
from preempt_spec import SPEC_VERSION
from preempt_spec.rules import RULES
from preempt_spec.rules.rule import advisory

FORMAT = "preempt-oracle-report"
FORMAT_VERSION = 1


class RuleRow(msgspec.Struct, frozen=True):
    """How one rule came out for one input.

    `standing`: held, violated, known failure, advisory: violated, not exercised or not observable. `since`: the version
    of the specification it came in with; `advisory`: its violations are no part of the verdict.
    """

    id: str
    kind: str
    sentence: str
    standing: str
    exercised: int
    since: str
    advisory: bool


class ComparedRow(msgspec.Struct, frozen=True):
    """One line of the diff between the engine's books and the shadow state; `engine` null: it said nothing of it."""

    what: str
    engine: str | None
    shadow: str
    differs: bool


class FailureRow(msgspec.Struct, frozen=True):
    """A broken rule. `times`: runs that broke it; `events`: the last ones, in trace form.

    `known`: why this is a known failure, "" if it is none; `advisory`: of an advisory rule. Neither is a violation.
    """

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
    known: str
    advisory: bool


class DeviationRow(msgspec.Struct, frozen=True):
    """Where this version departs from the contract of its policy."""

    knob: str
    value: str
    why: str
    scenario: str


class InputRow(msgspec.Struct, frozen=True):
    """One trace, or one engine.

    `verdict`: conforms, conforms but for known failures, violates, unreadable, harness broken or inconclusive.
    `known`, `advised`: rule -> runs that broke it as a known failure, or as an advisory rule. `ended_at_known`: runs
    that ended at a known failure, with nothing judged behind it; `steps_unjudged`: steps of recorded traces there.
    `events_lost`: what a recorder could not write any more, at least.
    """

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
    specification: str
    known: dict[str, int]
    advised: dict[str, int]
    ended_at_known: int
    steps_unjudged: int
    events_lost: int
    tokens_recomputed: int
    tokens_delivered: int


class KnownRow(msgspec.Struct, frozen=True):
    """One rule of an entry of the known-failures file. `place`: FILE:LINE of the entry.

    `seen`: runs that broke the rule as described; `kept`: runs of the family that held it to their end. `stale`: none
    broke it in `within` of them, which makes the command fail.
    """

    rule: str
    engine: str
    versions: tuple[str, ...]
    policy: str
    where: dict[str, bool | int | dict[str, int]]
    trace: str
    within: int
    reason: str
    place: str
    seen: int
    kept: int
    stale: bool


class Footer(msgspec.Struct, frozen=True):
    """The last member of a document, by which somebody who reads streams knows that it is whole.

    `entries`: inputs, rows or engines above; `broken`: rules that broke, counted once in each of them.
    """

    entries: int
    broken: int


class Report(msgspec.Struct, frozen=True):
    """The document. `specification`: the version judged by; `known_failures`: null without a file of them."""

    format: str
    format_version: int
    preempt_oracle: str
    specification: str
    verdict: str
    exit_code: int
    inputs: tuple[InputRow, ...]
    known_failures: tuple[KnownRow, ...] | None
    footer: Footer


def document(inputs: Sequence[Judged], known: Ledger | None = None, spec: str = SPEC_VERSION) -> bytes:
    """The report as indented JSON, with a final newline. `known`: the known failures the inputs were noted in."""
    verdict = overall(inputs, known)
    rows = tuple(map(input_row, inputs))
    head = (FORMAT, FORMAT_VERSION, version(), spec, verdict.value, verdict.exit_code)
    broken = sum(len({f.rule for f in row.failures}) for row in rows)
    return encode(Report(*head, rows, known_rows(known), Footer(len(rows), broken)))


def known_rows(known: Ledger | None) -> tuple[KnownRow, ...] | None:
    """How the entries of a known-failures file came out; None without one."""
    if known is None:
        return None
    return tuple(
        KnownRow(
            line.rule,
            line.entry.engine,
            line.entry.versions,
            line.entry.policy,
            {name: _bounds(c) if isinstance(c, Bounds) else c for name, c in line.entry.where.items()},
            line.entry.trace,
            line.entry.within,
            line.entry.reason,
            line.entry.place,
            line.seen,
            line.kept,
            line.stale,
        )
        for line in known.lines
    )


def _bounds(bounds: Bounds) -> dict[str, int]:
    given = {"min": bounds.min, "max": bounds.max}
    return {name: value for name, value in given.items() if value is not None}


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
    advice = advisory(tally.spec)
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
            RuleRow(
                id,
                RULES[id].kind.value,
                RULES[id].sentence,
                standing.value,
                tally.exercised[id],
                RULES[id].since,
                id in advice,
            )
            for id, standing in (tally.standings.items() if known else ())
        ),
        failures=tuple(_failure(f, tally.seen_in(f)) for f in tally.failures),
        deviations=tuple(DeviationRow(d.knob, str(d.value), d.why, d.scenario) for d in tally.deviations),
        specification=tally.spec,
        known=dict(tally.known),
        advised=dict(tally.advised),
        ended_at_known=tally.ended,
        steps_unjudged=tally.unjudged,
        events_lost=tally.lost,
        tokens_recomputed=tally.recomputed,
        tokens_delivered=tally.delivered,
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
        known=failure.known,
        advisory=failure.advisory,
    )
