"""The main job: every shipped trace and every light engine judged, and compared with what is expected of them.

Expectations are edited by hand, in `vectors/expected.toml`, and nothing here writes them:

    [[row]]                      # a verdict: of all shipped traces of one engine, version and policy, or of a live run
    engine = "vllm"
    version = "0.33.0"
    policy = "vllm-fcfs"
    source = "traces"            # or "live"
    options = {}                 # of a live engine's adapter; may be left out
    verdict = "conforms"
    broken = []                  # exactly the rules that break; may be left out if none do

    [broken]                     # hand-broken copies: file -> the one rule it must break
    "broken/NAME.jsonl.gz" = "queue/front"
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from preempt_oracle.adapters.protocol import HarnessError, Session
from preempt_oracle.campaign import Budget, Origin, campaign
from preempt_oracle.check import check
from preempt_oracle.known import Ledger
from preempt_oracle.report.judged import Judged
from preempt_oracle.trace import wire
from preempt_oracle.trace.errors import TraceError
from preempt_oracle.trace.reader import read
from preempt_oracle.verdict import Tally, Verdict
from preempt_properties.scenario import Option
from preempt_spec import SPEC_VERSION
from preempt_spec.rules import RULES
from preempt_spec.rules.rule import advisory, edition

VECTORS = Path(__file__).with_name("vectors")
TRACES = "traces"
LIVE = "live"
WORKLOADS = 200  # per live engine
SEED = 1


class ExpectedError(Exception):
    """The expectations cannot be read. The message names file and field."""


@frozen(order=True)
class Key:
    """What a row of the matrix is about."""

    source: str  # traces, live
    engine: str
    version: str
    policy: str
    options: tuple[tuple[str, Option], ...] = ()

    def __str__(self) -> str:
        """`vidur 0.0.26, repair=true`."""
        extra = ", ".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in self.options)
        return f"{self.engine} {self.version}{f', {extra}' * bool(extra)}"


@frozen
class Outcome:
    """A verdict and the rules that broke."""

    verdict: str
    broken: tuple[str, ...] = ()

    def __str__(self) -> str:
        """`violates live/survives`."""
        return " ".join((self.verdict, ", ".join(self.broken))).strip()


@frozen
class Row:
    """One row: what came out, and what should have. `size`: traces, or workloads."""

    key: Key
    judged: Judged | None  # None: expected, and there is nothing to judge
    expected: Outcome | None  # None: nobody said what to expect
    size: int = 0

    @property
    def outcome(self) -> Outcome | None:
        """What came out; known failures are not among the rules that broke."""
        if self.judged is None:
            return None
        tally = self.judged.tally
        return Outcome(self.judged.verdict.value, tuple(sorted(tally.times)) if tally is not None else ())

    @property
    def as_expected(self) -> bool:
        """Verdict and broken rules, both; but a known failure need not be expected, and may be."""
        found, expected = self.outcome, self.expected
        if found is None or expected is None or self.judged is None or self.judged.tally is None:
            return found == expected
        known = self.judged.tally.known
        if not known:
            return found == expected
        left = tuple(r for r in expected.broken if r not in known)
        verdict = expected.verdict
        if not left and verdict in (Verdict.VIOLATES.value, Verdict.CONFORMS.value):
            verdict = Verdict.KNOWN.value
        return found == Outcome(verdict, left)


@frozen
class Copy:
    """A hand-broken trace. `found`: the rules it breaks."""

    file: str
    expected: str | None
    found: tuple[str, ...]
    error: str = ""

    @property
    def as_expected(self) -> bool:
        """Exactly its rule."""
        return not self.error and self.found == (self.expected,)


@frozen
class Matrix:
    """The result."""

    rows: tuple[Row, ...]
    copies: tuple[Copy, ...] = ()
    known: Ledger | None = None
    spec: str = SPEC_VERSION

    @property
    def verdict(self) -> Verdict:
        """Conforms if everything came out as expected."""
        faults = [r.judged.fault for r in self.rows if r.judged is not None and r.judged.error]
        if Verdict.BROKEN in faults:
            return Verdict.BROKEN
        if Verdict.UNREADABLE in faults or any(c.error for c in self.copies):
            return Verdict.UNREADABLE
        if self.known is not None and self.known.stale:
            return Verdict.STALE
        same = all(r.as_expected for r in self.rows) and all(c.as_expected for c in self.copies)
        return Verdict.CONFORMS if same else Verdict.VIOLATES


@frozen
class Expected:
    """The content of `expected.toml`."""

    rows: Mapping[Key, Outcome] = field(factory=dict)
    copies: Mapping[str, str] = field(factory=dict)


@frozen
class LiveEngine:
    """A light engine that the main job drives. `connect` raises HarnessError if it is not installed."""

    key: Key
    connect: Callable[[], Session]


def run(
    expected: Expected,
    traces: Mapping[str, Path],
    live: Sequence[LiveEngine],
    say: Callable[[str], None],
    *,
    spec: str = SPEC_VERSION,
    known: Ledger | None = None,
) -> Matrix:
    """Judge all of it. `traces`: by the name under which a hand-broken copy is listed; `say`: progress, for people.

    `spec`: the version of the specification to judge by; what is expected of rules that it lacks, or that are advisory
    in it, is left out. `known`: known failures; those of hand-broken copies are not theirs.
    """
    good = {name: path for name, path in traces.items() if name not in expected.copies}
    expected = _by(expected, spec)
    rows: dict[Key, Row] = {}
    say(f"{len(traces)} shipped traces")
    for row in _of_traces(good, spec, known):
        rows[row.key] = evolve(row, expected=expected.rows.get(row.key))
    copies = tuple(_copy(name, traces.get(name), rule, spec) for name, rule in expected.copies.items())
    for engine in live:
        say(f"{engine.key} ({engine.key.policy}), live: {WORKLOADS} workloads")
        rows[engine.key] = Row(engine.key, _live(engine, spec, known), expected.rows.get(engine.key), WORKLOADS)
    for key, outcome in expected.rows.items():
        rows.setdefault(key, Row(key, None, outcome))
    order = sorted(rows, key=lambda k: (k.source != TRACES, str(k), k.policy))
    return Matrix(tuple(rows[k] for k in order), copies, known, spec)


def _by(expected: Expected, spec: str) -> Expected:
    """The expectations by a version of the specification."""
    binding = {r.id for r in edition(spec)} - advisory(spec)

    def outcome(o: Outcome) -> Outcome:
        broken = tuple(r for r in o.broken if r in binding)
        freed = bool(o.broken) and not broken
        return Outcome(Verdict.CONFORMS.value if freed else o.verdict, broken)

    copies = {file: rule for file, rule in expected.copies.items() if rule in binding}
    return Expected({key: outcome(o) for key, o in expected.rows.items()}, copies)


def shipped(folder: Path = VECTORS) -> dict[str, Path]:
    """The traces below `folder`, by their path relative to it."""
    files = [p for p in folder.rglob("*") if p.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst"))]
    return {p.relative_to(folder).as_posix(): p for p in sorted(files)}


def _of_traces(traces: Mapping[str, Path], spec: str, known: Ledger | None) -> Iterator[Row]:
    tallies: dict[Key, Tally] = {}
    sizes: dict[Key, int] = {}
    errors: dict[Key, str] = {}
    for name, path in traces.items():
        key = Key(TRACES, name, "", "")
        try:
            _, header = next(read(path))
            assert isinstance(header, wire.Header)
            key = Key(TRACES, header.engine, header.version, header.policy)
            sizes[key] = sizes.get(key, 0) + 1
            tallies[key] = check(_near(path), tally=tallies.get(key), spec=spec, known=known)
        except TraceError as e:
            errors.setdefault(key, str(e))
    for key in {**tallies, **errors}:
        error = errors.get(key, "")
        yield Row(key, Judged(str(key), tallies.get(key), error, Verdict.UNREADABLE), None, sizes.get(key, 0))


def _near(path: Path) -> str:
    """The path as somebody in the current folder would write it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _copy(name: str, path: Path | None, rule: str, spec: str) -> Copy:
    if path is None:
        return Copy(name, rule, (), f"{name}: the file is missing")
    try:
        tally = check(path, spec=spec)
    except TraceError as e:
        return Copy(name, rule, (), str(e))
    return Copy(name, rule, tuple(sorted(tally.times)))


def _live(engine: LiveEngine, spec: str, known: Ledger | None) -> Judged:
    def see(violation: object, reduced: object, origin: Origin, run: object) -> tuple[str, str]:
        options = "".join(f" --option {k}={str(v).lower()}" for k, v in engine.key.options)
        name = f"{engine.key.engine}=={engine.key.version}"
        return "", f"preempt-oracle conform {name} --seed {origin.tag} --workloads 1{options}"

    try:
        # Not shortened: a known fault has its scenario, and a new one is named by its seed.
        budget = Budget(WORKLOADS)
        found = campaign(engine.connect, engine.key.policy, SEED, budget, see, tries=0, spec=spec, known=known)
    except HarnessError as e:
        return Judged(str(engine.key), None, str(e), Verdict.BROKEN)
    return Judged.of(str(engine.key), found)


def expectations(file: Path = VECTORS / "expected.toml") -> Expected:
    """Read `expected.toml`. Raises ExpectedError."""
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise ExpectedError(f"{file}: {e}") from None
    rows: dict[Key, Outcome] = {}
    for i, row in enumerate(data.pop("row", []), 1):
        key, outcome = _row(f"{file}: row {i}", row)
        if key in rows:
            raise ExpectedError(f"{file}: row {i}: {key} ({key.policy}, {key.source}) is there already")
        rows[key] = outcome
    copies = data.pop("broken", {})
    for name, rule in copies.items():
        _known(f"{file}: broken.{name}", rule)
    if data:
        raise ExpectedError(f"{file}: {next(iter(data))}: unknown field")
    return Expected(rows, copies)


def _row(where: str, row: Any) -> tuple[Key, Outcome]:
    row = dict(row)
    try:
        options = tuple(sorted(row.pop("options", {}).items()))
        key = Key(row.pop("source"), row.pop("engine"), row.pop("version"), row.pop("policy"), options)
        verdict, broken = row.pop("verdict"), tuple(sorted(row.pop("broken", [])))
    except KeyError as e:
        raise ExpectedError(f"{where}: {e.args[0]}: missing") from None
    for rule in broken:
        _known(f"{where}: broken", rule)
    if row:
        raise ExpectedError(f"{where}: {next(iter(row))}: unknown field")
    if key.source not in (TRACES, LIVE):
        raise ExpectedError(f"{where}: source: {key.source!r} is neither {TRACES} nor {LIVE}")
    if verdict not in (Verdict.CONFORMS.value, Verdict.VIOLATES.value, Verdict.INCONCLUSIVE.value):
        raise ExpectedError(f"{where}: verdict: {verdict!r}")
    return key, Outcome(verdict, broken)


def _known(where: str, rule: object) -> None:
    if rule not in RULES:
        raise ExpectedError(f"{where}: there is no rule {rule!r}")
