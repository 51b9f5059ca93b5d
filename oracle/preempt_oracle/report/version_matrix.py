"""The version matrix, as a table for people and as the page that is published."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from preempt_oracle.matrix_fuzz import Searched
from preempt_oracle.report.document import Footer, encode
from preempt_oracle.report.failure import field
from preempt_oracle.report.matrix import COLOUR, LEGEND
from preempt_oracle.report.rulebook import cell, families
from preempt_oracle.report.version import version
from preempt_oracle.report.words import count, safe
from preempt_oracle.verdict import Verdict
from preempt_oracle.version_matrix import HELD, Replay, Result, Row, VersionMatrix, by_version


def show(out: Console, matrix: VersionMatrix) -> None:
    """The table, what broke and how to see it, and whether all is as expected."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column(f"{matrix.engine}", no_wrap=True)
    for family in families():
        table.add_column(family, no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in matrix.rows:
        symbols = [row.result.families.get(f, "") if row.result else "" for f in families()]
        said = Text(row.result.verdict if row.result else "not run", style="" if row.as_expected else "bold red")
        said.append("" if row.as_expected else "\nNOT as expected")
        what = f"{safe(row.wanted.version, 20)} {safe(row.wanted.policy.removeprefix(matrix.engine + '-'), 20)}"
        what += f" {row.wanted.variant}" * bool(row.wanted.variant)
        table.add_row(what, *(Text(s, style=COLOUR.get(s, "")) for s in symbols), said)
    out.print(table)
    out.print(f"\n{'; '.join(f'{s} {meaning}' for s, meaning in LEGEND.items())}", soft_wrap=True)
    for row in matrix.rows:
        _explain(out, row)
    right = sum(row.as_expected for row in matrix.rows)
    words = {Verdict.CONFORMS: "all as expected", Verdict.VIOLATES: "NOT as expected"}
    end = (
        "interrupted; the same command goes on" if matrix.interrupted else words.get(matrix.verdict, "not all was run")
    )
    file = f"vectors/findings-{matrix.engine}.toml"
    out.print(f"\n{right} of {count(len(matrix.rows), 'verdict')} as {file} lets expect: {end}")


def tried(found: Searched) -> str:
    """What a search tried and found, in a line."""
    broke = [f"{rule} after {b.seconds:g} s, {count(b.actions, 'action')}" for rule, b in found.broken.items()]
    sizes = (count(found.workloads, "workload"), count(found.preemptions, "preemption"), count(found.states, "state"))
    return f"for {found.asked:g} s, {', '.join(sizes)}; broken: {'; '.join(broke) or 'nothing'}"


def _explain(out: Console, row: Row) -> None:
    searched = row.result.searched if row.result else None
    if row.as_expected and not (row.result and row.result.broken) and not searched:
        return
    variant = f", {safe(row.wanted.variant)}" * bool(row.wanted.variant)
    out.print(f"\n{safe(row.wanted.engine)} {safe(row.wanted.version)}, {row.wanted.policy}{variant}", soft_wrap=True)
    for sentence in row.odd:
        field(out, "ODD", sentence)
    if row.error:
        field(out, "why", row.error.splitlines()[0])
    if row.result:
        for rule, times in row.result.broken.items():
            message, again = row.result.first[rule]
            field(out, "breaks", f"{rule} in {count(times, 'run')}: {message}")
            field(out, "see", again)
    if searched:
        field(out, "searched", tried(searched))


def _mark(seen: Replay, rule: str) -> str:
    if seen.refused:
        return "-"
    return {HELD: "ok", rule: "FAIL"}.get(seen.outcome, "other")


class RowDocument(msgspec.Struct, frozen=True):
    """A row in the JSON form."""

    version: str
    policy: str
    as_expected: bool
    odd: tuple[str, ...]
    error: str
    result: Result | None


class Document(msgspec.Struct, frozen=True):
    """What `matrix ENGINE` writes."""

    format: str
    format_version: int
    preempt_oracle: str
    engine: str
    as_expected: bool
    exit_code: int
    rows: tuple[RowDocument, ...]
    footer: Footer


def document(matrix: VersionMatrix) -> bytes:
    """The matrix as JSON."""
    return encode(document_of(matrix))


def document_of(matrix: VersionMatrix) -> Document:
    """The matrix as it is written."""
    rows = tuple(
        RowDocument(r.wanted.version, r.wanted.policy, r.as_expected, r.odd, r.error, r.result) for r in matrix.rows
    )
    verdict = matrix.verdict
    head = ("preempt-oracle-version-matrix", 1, version(), matrix.engine, verdict is Verdict.CONFORMS)
    broken = sum(len(r.result.broken) for r in matrix.rows if r.result is not None)
    return Document(*head, verdict.exit_code, rows, Footer(len(rows), broken))


#: Capabilities that tell versions apart, as people call them.
_MODES = {
    "watermark": "watermark",
    "v2_runner": "both runner outputs",
    "drafts": "drafts",
    "reset": "reset",
    "pause": "pause",
    "frames": "frames in flight, scheduled ahead",
}

#: What a version refuses, by the beginning of its reason.
_REFUSED = {
    "config.whole_fit: ": "chunked prefills admitted only as a whole",
    "config.frames: ": "more than two frames in flight",
}


def page(matrix: VersionMatrix) -> str:
    """The page: verdicts by version, findings by version, modes by version. Needs a result for every row."""
    return "\n".join(_page(matrix)) + "\n"


def _page(matrix: VersionMatrix) -> Iterator[str]:
    results = [row.result for row in matrix.rows if row.result is not None]
    dates = sorted({r.date for r in results})
    specs = ", ".join(sorted({r.spec for r in results}))
    name = matrix.engine
    yield f"# {name}: version by version"
    yield ""
    yield f"<!-- Written by `preempt-oracle matrix {name} --page FILE`: run it again instead of editing this. -->"
    yield ""
    yield (
        f"From live runs of {' to '.join(dates[:: max(1, len(dates) - 1)])}, judged by specification {specs}: of each "
        f"version {results[0].workloads} generated workloads per policy (seed {results[0].seed}) and every scenario of "
        "[what was found](findings.md). `preempt-oracle matrix "
        f"{name}` makes it again; it goes on where it was stopped."
    )
    yield ""
    yield f"| version | policy | {' | '.join(families())} | verdict | steps | preemptions |"
    yield "|" + "---|" * (len(families()) + 5)
    for r in results:
        verdict = f"{r.verdict} {', '.join(r.broken)}".strip()
        cells = [r.version, r.policy, *(r.families.get(f, "") for f in families()), verdict]
        yield f"| {' | '.join(cell(w) for w in (*cells, f'{r.steps:,}', f'{r.preemptions:,}'))} |"
    yield ""
    yield "; ".join(f"`{s}` {meaning}" for s, meaning in LEGEND.items())
    yield ""
    yield "A run ends at its first violation: what a version does behind one that it shows often is seen less often."
    yield ""
    yield "## Findings"
    yield ""
    versions = list(by_version(matrix.rows))
    yield f"| | rule | {' | '.join(versions)} |"
    yield "|---|---|" + "---|" * len(versions)
    for f in matrix.findings:
        outcomes = {(r.version, p.name): p for r in results for p in r.replays}
        marks = []
        for v in versions:
            seen = outcomes.get((v, f.name))
            marks.append("" if seen is None else _mark(seen, f.scenario.rule))
        scenario = f"[{f.id}](../{f.file})"
        yield f"| {scenario} | {f.scenario.rule} | {' | '.join(marks)} |"
    yield ""
    yield (
        "`-`: the version does not have the mode that the scenario asks for; `other`: another finding of that version "
        "shows first. To see one: `preempt-oracle replay oracle/preempt_oracle/vectors/scenarios/NAME.toml "
        f"{name}==VERSION`."
    )
    yield ""
    yield "## Modes"
    yield ""
    yield f"| | {' | '.join(versions)} |"
    yield "|---|" + "---|" * len(versions)
    can = {r.version: set(r.can) for r in results}
    for capability, words in _MODES.items():
        yield f"| {words} | {' | '.join('yes' if capability in can.get(v, ()) else '-' for v in versions)} |"
    refused = {(r.version, start) for r in results for why in r.outside for start in _REFUSED if why.startswith(start)}
    for start, words in _REFUSED.items():
        if any((v, start) in refused for v in versions):
            yield f"| {words} | {' | '.join('-' if (v, start) in refused else 'yes' for v in versions)} |"
    built = {r.version: r.deviations for r in results if r.deviations}
    for knob in sorted({d for ds in built.values() for d in ds}):
        yield f"| as built: {knob} | {' | '.join('yes' if knob in built.get(v, ()) else '-' for v in versions)} |"
    yield ""
    yield "What a version does not have is refused by name (exit code 2). As built: see [profiles](profiles.md)."
