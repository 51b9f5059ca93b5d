"""The matrix: engine × rule family, and each verdict beside the one that was expected."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from preempt_oracle.matrix import LIVE, Matrix, Row
from preempt_oracle.report.document import Footer, InputRow, KnownRow, encode, input_row, known_rows
from preempt_oracle.report.failure import field
from preempt_oracle.report.rulebook import cell, families
from preempt_oracle.report.tables import STYLE, show_deviations, show_expected, show_failures, show_known
from preempt_oracle.report.version import version
from preempt_oracle.report.words import count, safe
from preempt_oracle.verdict import Standing, Tally, Verdict
from preempt_properties.scenario import Option
from preempt_spec.rules import RULES

#: A family's cell, and what it says.
HELD, BROKEN, KNOWN, OPEN, IDLE, UNSEEN = "ok", "FAIL", "known", "?", "-", "n/o"
LEGEND = {
    HELD: "conforms",
    BROKEN: "violates",
    KNOWN: "violated as known",
    OPEN: "inconclusive: held, but not every core rule was exercised",
    IDLE: "not exercised",
    UNSEEN: "not observable",
}
COLOUR = {HELD: "green", BROKEN: "bold red", KNOWN: "yellow", OPEN: "yellow", IDLE: "yellow", UNSEEN: "dim"}


def symbol(tally: Tally, family: str) -> str:
    """How a family came out."""
    standings = {id: s for id, s in tally.standings.items() if RULES[id].family == family}
    if Standing.VIOLATED in standings.values():
        return BROKEN
    if Standing.KNOWN in standings.values():
        return KNOWN
    if Standing.HELD not in standings.values():
        return IDLE if Standing.NOT_EXERCISED in standings.values() else UNSEEN
    core = tally.core
    return OPEN if any(s is not Standing.HELD for id, s in standings.items() if id in core) else HELD


def show_matrix(out: Console, matrix: Matrix) -> None:
    """Table, legend, what broke, and whether all is as expected."""
    out.print(_table(matrix))
    out.print(f"\n{'; '.join(f'{s} {meaning}' for s, meaning in LEGEND.items())}", soft_wrap=True)
    for row in matrix.rows:
        _explain(out, row)
    if matrix.copies:
        right = sum(c.as_expected for c in matrix.copies)
        out.print(f"\nhand-broken copies: {right} of {len(matrix.copies)} break exactly the rule they were broken for")
        for c in matrix.copies:
            if not c.as_expected:
                found = c.error or f"breaks {', '.join(c.found) or 'nothing'}"
                out.print(f"  NOT AS EXPECTED  {safe(c.file)}: {safe(found)}; expected {c.expected}", soft_wrap=True)
    show_deviations(out, [r.judged for r in matrix.rows if r.judged is not None])
    show_known(out, matrix.known)
    odd = [r.judged for r in matrix.rows if not r.as_expected and r.judged is not None]
    show_failures(out, odd)
    right = sum(r.as_expected for r in matrix.rows)
    words = {Verdict.CONFORMS: "all as expected", Verdict.VIOLATES: "NOT as expected"}
    end = words.get(matrix.verdict, matrix.verdict.value)
    out.print(f"\n{right} of {count(len(matrix.rows), 'verdict')} as recorded in vectors/expected.toml: {end}")


def _table(matrix: Matrix) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=0)
    table.add_column("engine", no_wrap=True)
    for family in families():
        table.add_column(family, no_wrap=True)
    table.add_column("verdict (expected)", no_wrap=True)
    for row in matrix.rows:
        unit = "workload" if row.key.source == LIVE else "trace"
        what = f"{safe(str(row.key), 60)}\n  {safe(row.key.policy, 30)}, {count(row.size, unit)}"
        tally = row.judged.tally if row.judged is not None else None
        symbols = [symbol(tally, f) if tally is not None else "" for f in families()]
        table.add_row(what, *(Text(s, style=COLOUR.get(s, "")) for s in symbols), _verdict(row))
    return table


def _verdict(row: Row) -> Text:
    if row.judged is None:
        said = Text("nothing to judge", style="red")
    else:
        said = Text(row.judged.verdict.value, style=STYLE[row.judged.verdict])
    expected = row.expected.verdict if row.expected is not None else "nothing"
    said.append(f"\n({expected})" if row.as_expected else f"\nNOT ({expected})")
    return said


def _explain(out: Console, row: Row) -> None:
    """What broke, and where a row is not as expected."""
    judged = row.judged
    tally = judged.tally if judged is not None else None
    if (
        not row.as_expected
        or (tally is not None and (tally.times or tally.known or tally.advised or tally.missing))
        or (judged is not None and judged.error)
    ):
        out.print(f"\n{safe(str(row.key))} ({row.key.policy}, {row.key.source})", soft_wrap=True)
    if not row.as_expected:
        outcome = str(row.outcome) if row.outcome is not None else "nothing to judge"
        field(out, "NOT AS EXPECTED", f"{outcome}; expected {row.expected or 'nothing: add a row'}")
    if judged is not None and judged.error:
        field(out, "why", judged.error.splitlines()[0])
    if tally is None:
        return
    if tally.verdict is Verdict.INCONCLUSIVE:
        field(out, "why", "; ".join(tally.missing))
    for rule, times in sorted(tally.times.items()):
        ours = [f for f in tally.failures if f.violation.rule == rule]
        first = next(f for f in ours if not f.known and not f.advisory)
        field(out, "breaks", f"{rule} in {count(times, 'run')}: {first.violation.message}")
        if first.replay:
            field(out, "see", first.replay)
    show_expected(out, tally)


class MatrixRow(msgspec.Struct, frozen=True):
    """One row of the JSON form."""

    engine: str
    version: str
    policy: str
    source: str
    options: dict[str, Option]
    size: int
    families: dict[str, str]
    verdict: str | None
    broken: tuple[str, ...]
    expected_verdict: str | None
    expected_broken: tuple[str, ...]
    as_expected: bool
    detail: InputRow | None


class CopyRow(msgspec.Struct, frozen=True):
    """A hand-broken copy in the JSON form."""

    file: str
    expected: str | None
    found: tuple[str, ...]
    error: str
    as_expected: bool


class MatrixReport(msgspec.Struct, frozen=True):
    """What `matrix` writes."""

    format: str
    format_version: int
    preempt_oracle: str
    specification: str
    as_expected: bool
    exit_code: int
    rows: tuple[MatrixRow, ...]
    copies: tuple[CopyRow, ...]
    known_failures: tuple[KnownRow, ...] | None
    footer: Footer


def document(matrix: Matrix) -> bytes:
    """The matrix as JSON."""
    rows = tuple(map(_row, matrix.rows))
    copies = tuple(CopyRow(c.file, c.expected, c.found, c.error, c.as_expected) for c in matrix.copies)
    verdict = matrix.verdict
    head = ("preempt-oracle-matrix", 1, version(), matrix.spec, verdict is Verdict.CONFORMS, verdict.exit_code)
    footer = Footer(len(rows), sum(len(row.broken) for row in rows))
    return encode(MatrixReport(*head, rows, copies, known_rows(matrix.known), footer))


def _row(row: Row) -> MatrixRow:
    tally = row.judged.tally if row.judged is not None else None
    outcome, expected = row.outcome, row.expected
    return MatrixRow(
        row.key.engine,
        row.key.version,
        row.key.policy,
        row.key.source,
        dict(row.key.options),
        row.size,
        {f: symbol(tally, f) for f in families()} if tally is not None else {},
        outcome.verdict if outcome else None,
        outcome.broken if outcome else (),
        expected.verdict if expected else None,
        expected.broken if expected else (),
        row.as_expected,
        input_row(row.judged) if row.judged is not None else None,
    )


def markdown(matrix: Matrix) -> str:
    """The table as Markdown."""
    return "\n".join(_markdown(matrix))


def _markdown(matrix: Matrix) -> Iterator[str]:
    names = families()
    yield f"| engine | policy | judged | {' | '.join(names)} | verdict | expected |"
    yield "|" + "---|" * (len(names) + 5)
    for row in matrix.rows:
        tally = row.judged.tally if row.judged is not None else None
        symbols = [symbol(tally, f) if tally is not None else "" for f in names]
        size = count(row.size, "workload" if row.key.source == LIVE else "trace")
        words = [str(row.key), row.key.policy, f"{row.key.source}, {size}", *symbols]
        words += [str(row.outcome or "nothing to judge"), str(row.expected or "nothing")]
        yield f"| {' | '.join(cell(safe(w)) for w in words)} |"
    yield ""
    yield "; ".join(f"`{s}` {meaning}" for s, meaning in LEGEND.items())
