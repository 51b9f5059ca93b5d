"""What the page of a matrix shows, whichever matrix it is: of traces and light engines, or of versions.

All text is made safe here; the page only escapes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from preempt_oracle.engines.environments import ENGINES
from preempt_oracle.found import Finding, listed
from preempt_oracle.matrix import LIVE, Matrix
from preempt_oracle.matrix import Row as TracedRow
from preempt_oracle.report.matrix import BROKEN, HELD, IDLE, KNOWN, LEGEND, OPEN, UNSEEN, symbol
from preempt_oracle.report.rulebook import families, select
from preempt_oracle.report.version_matrix import tried
from preempt_oracle.report.words import count, safe
from preempt_oracle.verdict import Failure, Standing, Verdict, worst
from preempt_oracle.version_matrix import HELD as SHOWS_NOTHING
from preempt_oracle.version_matrix import Row, VersionMatrix
from preempt_spec.rules import RULES

#: How a symbol, or a standing, is coloured; anything else is dim.
STYLE: Mapping[object, str] = {
    HELD: "good",
    BROKEN: "bad",
    KNOWN: "warn",
    OPEN: "warn",
    IDLE: "dim",
    UNSEEN: "dim",
    Standing.HELD: "good",
    Standing.VIOLATED: "bad",
    Standing.KNOWN: "warn",
    Standing.ADVISED: "warn",
}


@frozen
class Shown:
    """A finding of this engine's list that breaks the rule in this version: its id, and what shows it again."""

    id: str
    replay: str
    said: str = ""  # what its scenario came to, if it was replayed


@frozen
class RuleLine:
    """A rule of a family. `standing`: how it came out; `message`, `replay`: of what was seen first, "" if nothing."""

    id: str
    kind: str
    sentence: str
    standing: str
    style: str
    message: str = ""
    replay: str = ""
    findings: tuple[Shown, ...] = ()


@frozen
class Cell:
    """A family of rules in a row."""

    family: str
    symbol: str
    meaning: str
    style: str
    rules: tuple[RuleLine, ...]


@frozen
class Line:
    """A row of the table. `notes`: why there is no verdict, or not the expected one."""

    what: str
    detail: str
    verdict: str
    expected: str
    as_expected: bool
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()


@frozen
class Sheet:
    """A page. `facts`: sentences below the table."""

    title: str
    verdict: str
    as_expected: bool
    lines: tuple[Line, ...]
    facts: tuple[str, ...] = ()

    @property
    def families(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(families())

    @property
    def legend(self) -> tuple[tuple[str, str, str], ...]:
        """Symbol, its style and what it says."""
        return tuple((s, STYLE.get(s, "dim"), meaning) for s, meaning in LEGEND.items())


def of_matrix(matrix: Matrix) -> Sheet:
    """The main job. Raises ExpectedError if a list of findings cannot be read."""
    right = sum(row.as_expected for row in matrix.rows)
    facts = [f"{right} of {count(len(matrix.rows), 'verdict')} as recorded in vectors/expected.toml."]
    if matrix.copies:
        whole = sum(c.as_expected for c in matrix.copies)
        facts.append(
            f"Hand-broken copies: {whole} of {len(matrix.copies)} break exactly the rule they were broken for."
        )
    for c in matrix.copies:
        if not c.as_expected:
            found = c.error or f"breaks {', '.join(c.found) or 'nothing'}"
            facts.append(safe(f"{c.file}: {found}; expected {c.expected}", 600))
    if matrix.known is not None:
        facts += [safe(str(line), 600) for line in matrix.known.stale]
    said = _verdict(matrix.verdict)
    return Sheet("Traces and light engines", said, not matrix.verdict.exit_code, tuple(map(_traced, matrix.rows)),
                 tuple(facts))  # fmt: skip


def _verdict(verdict: Verdict) -> str:
    return {Verdict.CONFORMS: "all as expected", Verdict.VIOLATES: "not as expected"}.get(verdict, verdict.value)


def _traced(row: TracedRow) -> Line:
    key, judged = row.key, row.judged
    tally = judged.tally if judged is not None else None
    # A trace may say any engine: only of those that we know is there a list.
    found = listed(key.engine) if key.engine in ENGINES else ()
    known = [f for f in found if f.shows(key.version, key.policy) and f.seen_in(key.engine, dict(key.options))]
    notes = []
    if not row.as_expected:
        notes.append(f"Not as expected: {row.outcome or 'nothing to judge'}; expected {row.expected or 'nothing'}.")
    if judged is not None and judged.error:
        notes.append(judged.error.splitlines()[0])
    if tally is not None and tally.verdict is Verdict.INCONCLUSIVE:
        notes.append("; ".join(tally.missing))
    if tally is not None:
        notes += [f"Judged as built, {d.knob}: {d.why}." for d in tally.deviations]
    cells = []
    for family in families() if tally is not None else ():
        assert tally is not None
        rules = []
        for id, standing in tally.standings.items():
            if RULES[id].family == family:
                ours = [f for f in tally.failures if f.violation.rule == id]
                times = tally.times[id] or tally.known[id] or tally.advised[id]
                word = f"{standing.value} in {count(times, 'run')}" if times else standing.value
                rules.append(
                    _rule(id, word, STYLE.get(standing, "dim"), ours, _shown(known, id, f"{key.engine}=={key.version}"))
                )
        cells.append(_cell(family, symbol(tally, family), rules))
    unit = "workload" if key.source == LIVE else "trace"
    return Line(
        safe(str(key), 100),
        safe(f"{key.policy}, {count(row.size, unit)}", 100),
        judged.verdict.value if judged is not None else "nothing to judge",
        str(row.expected or "nothing"),
        row.as_expected,
        tuple(cells),
        tuple(safe(note, 600) for note in notes),
    )


def _cell(family: str, symbol: str, rules: Sequence[RuleLine]) -> Cell:
    broken_first = sorted(rules, key=lambda r: ("bad", "warn").index(r.style) if r.style in ("bad", "warn") else 2)
    return Cell(family, symbol, LEGEND.get(symbol, symbol), STYLE.get(symbol, "dim"), tuple(broken_first))


def _rule(id: str, standing: str, style: str, failures: Sequence[Failure], findings: Iterator[Shown]) -> RuleLine:
    first = failures[0] if failures else None
    message = safe(first.violation.message, 600) if first is not None else ""
    replay = safe(first.replay, 600) if first is not None else ""
    rule = RULES[id]
    return RuleLine(id, rule.kind.value, rule.sentence, standing, style, message, replay, tuple(findings))


def _shown(
    known: Sequence[Finding], rule: str, engine: str, outcomes: Mapping[str, str] | None = None
) -> Iterator[Shown]:
    for f in known:
        if rule in f.rules:
            said = (outcomes or {}).get(f.name, "")
            yield Shown(f.id, safe(f"preempt-oracle replay {f.file} {engine}", 400), safe(said, 300))


def of_versions(matrices: Sequence[VersionMatrix]) -> Sheet:
    """Versions of one engine, or of all of them."""
    rows = [(matrix, row) for matrix in matrices for row in matrix.rows]
    right = sum(row.as_expected for _, row in rows)
    facts = [f"{right} of {count(len(rows), 'verdict')} as the lists of findings let expect."]
    if any(matrix.interrupted for matrix in matrices):
        facts.append("Interrupted: not every row was run. The same command goes on.")
    verdict = worst(m.verdict for m in matrices)
    title = ", ".join(dict.fromkeys(m.engine for m in matrices))
    lines = tuple(_versioned(matrix, row) for matrix, row in rows)
    return Sheet(safe(title, 200), _verdict(verdict), not verdict.exit_code, lines, tuple(facts))


def _versioned(matrix: VersionMatrix, row: Row) -> Line:
    wanted, result = row.wanted, row.result
    known = [f for f in matrix.findings if wanted.expects(f) and f.shows(wanted.version, wanted.policy)]
    outcomes: dict[str, str] = {}
    for replay in result.replays if result is not None else ():
        outcome = "refused: " if replay.refused else "broke " * (replay.outcome != SHOWS_NOTHING)
        outcomes[replay.name] = f"{outcome}{replay.outcome}"
    cells = []
    for family in families() if result is not None else ():
        assert result is not None
        rules = []
        for rule in select(family):
            times = result.broken.get(rule.id, 0)
            message, again = result.first.get(rule.id, ("", ""))
            word = f"violated in {count(times, 'run')}" if times else "not seen broken"
            shown = tuple(_shown(known, rule.id, f"{wanted.engine}=={wanted.version}", outcomes))
            rules.append(
                RuleLine(rule.id, rule.kind.value, rule.sentence, word, "bad" if times else "dim",
                         safe(message, 600), safe(again, 600), shown)
            )  # fmt: skip
        cells.append(_cell(family, result.families.get(family, ""), rules))
    notes = [*row.odd, *row.error.splitlines()[:1]]
    more = [wanted.policy, *([wanted.variant] if wanted.variant else [])]
    if result is not None:
        more.append(f"{count(result.workloads, 'workload')}, run {result.date}")
        notes += [f"Searched {tried(result.searched)}."] if result.searched is not None else []
    return Line(
        safe(f"{wanted.engine} {wanted.version}", 100),
        safe(", ".join(more), 200),
        result.verdict if result is not None else "not run",
        f"violates {', '.join(row.rules)}" if row.rules else Verdict.CONFORMS.value,
        row.as_expected,
        tuple(cells),
        tuple(safe(note, 600) for note in notes),
    )
