"""What was inferred of an engine's policy: for the terminal, as JSON, and as a page for docs/."""

from __future__ import annotations

from collections.abc import Mapping
from time import gmtime, strftime

import msgspec
from rich.console import Console
from rich.table import Table

from preempt_oracle.infer import Inference, Told
from preempt_oracle.report.version import version
from preempt_oracle.report.words import count, safe
from preempt_properties.scenario import Option

FORMAT = "preempt-oracle-infer"
FORM = 1
#: Above this no reader looks for more.
MOST = 5
UNDETERMINED = "undetermined"


def show(out: Console, found: Inference) -> None:
    """Print it: a row per knob, then what does not agree."""
    table = Table("knob", "observed", "profile", "how it is known", box=None, pad_edge=False)
    for told in found.told:
        style = "red" if told.agrees is False else "dim" if told.agrees is None else ""
        table.add_row(told.knob.name, observed(told), declared(told), how(told), style=style)
    causes = ", ".join(sorted(found.causes)) or "none"
    expected = ", ".join(sorted(found.as_built.causes))
    table.add_row("causes", safe(causes, 200), expected, f"of {count(found.preemptions, 'preemption')}")
    out.print(table)
    if found.unexplained:
        runs = len({case.name for case, _ in found.unexplained})
        faults = {} if found.new else {c.rule: None for _, c in found.unexplained}
        why = f", for what this version is known to break ({', '.join(faults)})" if faults else ""
        out.print(f"No policy explains {count(runs, 'run')}{why}. Under {found.policy}:", soft_wrap=True)
        for case, conflict in found.unexplained[:MOST]:
            out.print(f"  {case.name}: {conflict.rule}: {safe(conflict.message, 300)}", soft_wrap=True)
    for told in found.told:
        if told.agrees is False:
            out.print(f"{told.knob.name}: the profile says {declared(told)}", soft_wrap=True)
            for one in told.knob.refuted:
                if one.value is told.expected and one.conflict is not None and one.case is not None:
                    seen = f"{one.conflict.rule}: {safe(one.conflict.message, 300)}"
                    out.print(f"  but in the workload of {one.case.name}, {seen}", soft_wrap=True)


def observed(told: Told) -> str:
    """In words."""
    value = told.knob.value
    return UNDETERMINED if value is None else str(value.name)


def declared(told: Told) -> str:
    """The value of the profile; of a deviation, with what the contract says."""
    if told.deviation is None:
        return str(told.declared.name)
    return f"{told.expected.name} (deviates from {told.declared.name})"


def how(told: Told) -> str:
    """In a few words."""
    knob = told.knob
    if knob.value is None:
        return "nothing here tells " + " from ".join(v.name for v in knob.possible)
    by: dict[str, list[str]] = {}
    for one in knob.refuted:
        seen = "several runs together"
        if one.conflict is not None and one.case is not None:
            seen = f"{one.conflict.rule} ({one.case.name})"
        by.setdefault(seen, []).append(one.value.name)
    parts = [f"not {', '.join(names)}: {seen}" for seen, names in by.items()]
    parts += [f"never as {value.name} allows ({runs[0]})" for value, runs in knob.unused]
    if not parts:
        return "by its answer to a request that is too long" if knob.name == "oversize" else "the only value there is"
    return "; ".join(parts)


class Refutation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a knob has not this value; without a run, it took several together."""

    value: str
    run: str | None
    rule: str | None
    message: str | None


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One knob. `unused`: values that only allow more, and the runs in which they would have shown."""

    knob: str
    possible: tuple[str, ...]
    declared: str  # of the contract
    expected: str  # of this version
    agrees: bool | None
    refuted: tuple[Refutation, ...]
    unused: dict[str, tuple[str, ...]]


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `infer --json` writes."""

    format: str
    form: int
    tool: str
    date: str  # of the run, UTC
    engine: str
    version: str
    policy: str
    options: dict[str, Option]
    verdict: str
    seed: int
    workloads: int
    outside: int
    steps: int
    preemptions: int
    seconds: float
    causes: tuple[str, ...]
    unexplained: tuple[tuple[str, str, str], ...]  # run, rule, message
    known: tuple[str, ...]  # rules among those that this version is known to break
    knobs: tuple[Row, ...]
    interrupted: bool = False
    broken: str = ""


def report(found: Inference, options: Mapping[str, Option]) -> Report:
    """What was found, as it is written."""
    return Report(
        format=FORMAT,
        form=FORM,
        tool=version(),
        date=strftime("%Y-%m-%d", gmtime()),
        engine=found.engine,
        version=found.version,
        policy=found.policy,
        options=dict(options),
        verdict=found.verdict.value,
        seed=found.seed,
        workloads=found.workloads,
        outside=found.outside.total(),
        steps=found.steps,
        preemptions=found.preemptions,
        seconds=round(found.seconds, 1),
        causes=tuple(sorted(found.causes)),
        unexplained=tuple((case.name, c.rule, c.message) for case, c in found.unexplained),
        known=tuple(sorted({c.rule for _, c in found.unexplained} & found.known)),
        knobs=tuple(map(_row, found.told)),
        interrupted=found.interrupted,
        broken=found.broken,
    )


def _row(told: Told) -> Row:
    return Row(
        knob=told.knob.name,
        possible=tuple(value.name for value in told.knob.possible),
        declared=told.declared.name,
        expected=told.expected.name,
        agrees=told.agrees,
        refuted=tuple(
            Refutation(
                one.value.name,
                one.case.name if one.case else None,
                one.conflict.rule if one.conflict else None,
                one.conflict.message if one.conflict else None,
            )
            for one in told.knob.refuted
        ),
        unused={value.name: runs for value, runs in told.knob.unused},
    )


def document(found: Inference, options: Mapping[str, Option]) -> bytes:
    """The report as JSON."""
    return msgspec.json.format(msgspec.json.encode(report(found, options)), indent=1) + b"\n"
