"""The matrix of all engines: the page that is published, and the JSON form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from preempt_oracle.report.document import Footer, encode
from preempt_oracle.report.matrix import LEGEND
from preempt_oracle.report.rulebook import cell, families
from preempt_oracle.report.version import version
from preempt_oracle.report.version_matrix import Document, document_of
from preempt_oracle.verdict import Verdict, worst
from preempt_oracle.version_matrix import Row, VersionMatrix


class Documents(msgspec.Struct, frozen=True):
    """What `matrix all` writes."""

    format: str
    format_version: int
    preempt_oracle: str
    as_expected: bool
    exit_code: int
    engines: tuple[Document, ...]
    footer: Footer


def document(matrices: Sequence[VersionMatrix]) -> bytes:
    """The matrices as JSON."""
    verdict = worst(m.verdict for m in matrices)
    head = ("preempt-oracle-engine-matrix", 1, version(), verdict is Verdict.CONFORMS, verdict.exit_code)
    documents = tuple(map(document_of, matrices))
    return encode(Documents(*head, documents, Footer(len(documents), sum(d.footer.broken for d in documents))))


def page(matrices: Sequence[VersionMatrix]) -> str:
    """The page: a line per engine, version, policy and variant; then what was found. Needs a result for every row."""
    return "\n".join(_page(matrices)) + "\n"


def _page(matrices: Sequence[VersionMatrix]) -> Iterator[str]:
    rows = [(m, row) for m in matrices for row in m.rows if row.result is not None]
    results = [row.result for _, row in rows if row.result is not None]
    dates, specs = sorted({r.date for r in results}), ", ".join(sorted({r.spec for r in results}))
    yield "# Engine by engine"
    yield ""
    yield "<!-- Written by `preempt-oracle matrix all --page FILE`: run it again instead of editing this. -->"
    yield ""
    yield (
        f"From live runs of {' to '.join(dates[:: max(1, len(dates) - 1)])}, judged by specification {specs}: of each "
        f"row {results[0].workloads} generated workloads (seed {results[0].seed}) and every scenario of "
        "[what was found](findings.md). `preempt-oracle matrix all` makes it again, and goes on where it was stopped; "
        "`preempt-oracle matrix ENGINE` runs one engine. A cell is filled from a run, never by hand."
    )
    yield ""
    yield f"| engine | version | policy | {' | '.join(families())} | verdict | steps | preemptions | resumes |"
    yield "|" + "---|" * (len(families()) + 7)
    for matrix, row in rows:
        r = row.result
        assert r is not None
        name = f"{r.engine}, {row.wanted.variant}" if row.wanted.variant else r.engine
        broken = ", ".join(f"`{rule}` ({_known(matrix, row, rule)})" for rule in r.broken)
        cells = (name, r.version, r.policy, *(r.families.get(f, "") for f in families()))
        counts = (f"{n:,}" for n in (r.steps, r.preemptions, r.resumes))
        yield f"| {' | '.join((*map(cell, cells), f'{r.verdict} {broken}'.strip(), *counts))} |"
    yield ""
    yield "; ".join(f"`{s}` {meaning}" for s, meaning in LEGEND.items())
    yield ""
    yield (
        "A run ends at its first violation: what an engine does behind one that it shows often is seen less often. An "
        "engine that is *repaired* has one fault mended by the adapter, which is named in the header of its traces: so "
        "the rest of its scheduler can be seen."
    )
    yield ""
    yield from fuzz_section(matrices)
    yield "## Findings"
    yield ""
    yield "| | engine | rule | versions that show it, of those that were run |"
    yield "|---|---|---|---|"
    for matrix in matrices:
        for f in matrix.findings:
            seen = {
                row.wanted.version: replay.outcome == f.scenario.rule
                for row in matrix.rows
                if row.result is not None and row.wanted.expects(f)
                for replay in row.result.replays
                if replay.name == f.name
            }
            shows = [version for version, shown in seen.items() if shown]
            yield (
                f"| [{f.id}](../{f.file}) | {matrix.engine} | `{f.scenario.rule}` | "
                f"{', '.join(shows) or 'none'}; of {len(seen)} |"
            )
    yield ""
    yield "To see one: `preempt-oracle replay oracle/preempt_oracle/vectors/scenarios/NAME.toml ENGINE==VERSION`."


def fuzz_section(matrices: Sequence[VersionMatrix]) -> Iterator[str]:
    """What the searches of the newest versions found; nothing if there were none."""
    rows = [(m, row, row.result.searched) for m in matrices for row in m.rows if row.result is not None]
    searched = [(m, row, found) for m, row, found in rows if found is not None]
    if not searched:
        return
    yield "## Fuzz"
    yield ""
    yield (
        f"The newest version of each engine, searched for {searched[0][2].asked:g} s by `preempt-oracle fuzz`, which "
        "knows the policy and nothing of the engine. How far it comes in that time hangs on the machine."
    )
    yield ""
    yield "| engine | version | policy | workloads | steps | preemptions | states | broken |"
    yield "|---|---|---|---|---|---|---|---|"
    for m, row, found in searched:
        w = row.wanted
        name = f"{w.engine}, {w.variant}" if w.variant else w.engine
        seen = [
            f"`{rule}` ({_known(m, row, rule)}) after {b.seconds:g} s, {b.actions} actions"
            for rule, b in found.broken.items()
        ]
        counts = (f"{n:,}" for n in (found.workloads, found.steps, found.preemptions, found.states))
        yield f"| {' | '.join((*map(cell, (name, w.version, w.policy)), *counts, '; '.join(seen) or 'nothing'))} |"
    yield ""


def _known(matrix: VersionMatrix, row: Row, rule: str) -> str:
    """The ids of the findings by which a row may break a rule."""
    ids = [
        f.id
        for f in matrix.findings
        if rule in f.rules and row.wanted.expects(f) and f.shows(row.wanted.version, row.wanted.policy)
    ]
    return ", ".join(dict.fromkeys(ids)) or "not known"
