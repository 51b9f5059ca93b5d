"""The version matrix: every version of an engine, driven live, by family of rules; what was run before is kept.

A row is one version under one policy, with one set of options of its adapter: the scenarios of what was found in this
engine, each replayed, generated workloads, and if so asked a search (`matrix_fuzz`). What is expected of a row follows
from `vectors/findings-ENGINE.toml`: exactly the rules of the findings that its version has. A row that was run before,
with the same code, seed and number of workloads, is read from its file.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
from attrs import frozen, mutable

import preempt_oracle
import preempt_properties
import preempt_spec
from preempt_oracle.adapters.protocol import HarnessError, Refused, Session, Transport
from preempt_oracle.campaign import Budget, Campaign, Origin, campaign, failure, probe
from preempt_oracle.drive import drive
from preempt_oracle.found import Finding
from preempt_oracle.matrix_fuzz import Searched, search
from preempt_oracle.trace.errors import visible
from preempt_oracle.verdict import Tally, Verdict
from preempt_properties.scenario import Option
from preempt_spec import SPEC_VERSION

WORKLOADS = 300
SEED = 1
HELD = "holds"
FORM = 3  # of a result's file


class Replay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a version made of a finding's scenario: the first rule that broke, `holds`, or why it was refused."""

    name: str
    outcome: str
    refused: bool = False


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One version under one policy, as it is kept."""

    form: int
    code: str
    spec: str
    engine: str
    version: str
    policy: str
    seed: int
    workloads: int
    date: str  # of the run, UTC
    seconds: float
    verdict: str
    families: dict[str, str]  # family -> how it came out: a symbol of the matrix
    broken: dict[str, int]  # rule -> runs that broke it
    first: dict[str, tuple[str, str]]  # rule -> what was seen first, and the command that shows it again
    replays: tuple[Replay, ...]
    steps: int
    preemptions: int
    resumes: int
    outside: dict[str, int]  # why the engine refused a workload -> how many
    can: tuple[str, ...]  # the adapter's capabilities there
    deviations: tuple[str, ...]  # knobs in which this version is judged as built
    options: dict[str, Option] = {}  # of the adapter
    searched: Searched | None = None

    def stands_for(self, other: Wanted) -> bool:
        """Whether this is what a run would give now; a search that nobody asks for does no harm."""
        what = (self.engine, self.version, self.policy, tuple(self.options.items()))
        same = (self.form, self.code, self.spec, *what, self.seed, self.workloads) == (FORM, *other.key)
        return same and (not other.fuzz or (self.searched is not None and self.searched.asked == other.fuzz))


@frozen
class Wanted:
    """What to run."""

    engine: str
    version: str
    policy: str
    seed: int = SEED
    workloads: int = WORKLOADS
    spec: str = SPEC_VERSION
    options: tuple[tuple[str, Option], ...] = ()  # of the adapter
    fuzz: float = 0.0  # seconds of a search

    @property
    def key(self) -> tuple[object, ...]:
        """By what a kept result is known, the search apart."""
        what = (self.engine, self.version, self.policy, self.options)
        return (code(), self.spec, *what, self.seed, self.workloads)

    @property
    def words(self) -> tuple[str, ...]:
        """The options, as a command line has them."""
        return tuple(w for k, v in self.options for w in ("--option", f"{k}={json.dumps(v)}"))

    @property
    def variant(self) -> str:
        """The options in words; "" for none."""
        return ", ".join(k if v is True else f"{k}={v}" for k, v in self.options)

    @property
    def file(self) -> str:
        """Where its result is kept."""
        variant = "".join(f"-{k}-{v}" for k, v in self.options).lower()
        return f"{self.engine}-{self.version}-{self.policy}{variant}.json"

    def expects(self, finding: Finding) -> bool:
        """Whether the finding is one of this row's variant."""
        return finding.seen_in(self.engine, dict(self.options))


@frozen
class Row:
    """What came out, and what should have."""

    wanted: Wanted
    result: Result | None  # None: the harness broke, `error` says how
    rules: tuple[str, ...] = ()  # expected to break
    odd: tuple[str, ...] = ()  # where it is not as expected, a sentence each
    error: str = ""
    kept: bool = False  # read from its file

    @property
    def as_expected(self) -> bool:
        """Verdict, broken rules and each finding."""
        return not self.error and not self.odd


@frozen
class VersionMatrix:
    """The rows, oldest version first."""

    engine: str
    rows: tuple[Row, ...]
    findings: tuple[Finding, ...]
    interrupted: bool = False

    @property
    def verdict(self) -> Verdict:
        """3 a row could not be run, 1 one is not as expected, 4 the run was interrupted, 0 all as expected."""
        if any(row.error for row in self.rows):
            return Verdict.BROKEN
        if not all(row.as_expected for row in self.rows):
            return Verdict.VIOLATES
        return Verdict.INCONCLUSIVE if self.interrupted else Verdict.CONFORMS


@lru_cache(maxsize=1)
def code() -> str:
    """A fingerprint of the code that judges and drives, findings included: a result of other code is run again."""
    digest = hashlib.sha256()
    for package in (preempt_spec, preempt_properties, preempt_oracle):
        root = Path(str(package.__file__)).parent
        for path in sorted(
            [*root.rglob("*.py"), *root.glob("vectors/scenarios/**/*.toml"), *root.glob("vectors/*.toml")]
        ):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def load(file: Path) -> Result | None:
    """A kept result; None if there is none that can be read: it is run again."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Result)
    except (OSError, msgspec.DecodeError):
        return None


def compare(
    wanted: Wanted, result: Result | None, found: Sequence[Finding], error: str = "", kept: bool = False
) -> Row:
    """A row: the result beside what the findings let expect."""
    found = [f for f in found if wanted.expects(f)]
    ours = [f for f in found if f.scenario.config.policy == wanted.policy]
    rules = tuple(sorted({r for f in found if f.shows(wanted.version, wanted.policy) for r in f.rules}))
    if result is None:
        return Row(wanted, None, rules, (), error)
    odd = []
    outcomes = {r.name: r for r in result.replays}
    for f in ours:
        seen = outcomes.get(f.name)
        affected = wanted.version in f.versions
        if seen is None:
            odd.append(f"{f.id} ({f.name}) was not replayed")
        elif affected and seen.outcome != f.scenario.rule:
            odd.append(f"{f.id} ({f.name}): {seen.outcome}; it should break {f.scenario.rule}")
        elif not affected and not seen.refused and seen.outcome not in (HELD, *rules):
            odd.append(f"{f.id} ({f.name}) breaks {seen.outcome}, and this version is not known to have it")
    for rule in sorted(set(result.broken) - set(rules)):
        odd.append(f"breaks {rule}: {result.first[rule][0]}")
    searched = result.searched.broken if result.searched is not None else {}
    for rule in sorted(searched.keys() - set(rules) - result.broken.keys()):
        odd.append(f"a search broke {rule}, with {searched[rule].actions} actions")
    want = Verdict.VIOLATES if rules else Verdict.CONFORMS
    if result.verdict != want.value and not odd:
        odd.append(f"{result.verdict}; expected {want.value}")
    return Row(wanted, result, rules, tuple(odd), kept=kept)


@mutable
class Child:
    """One process of a version for all its rows: an engine may import for half a minute."""

    start: Callable[[], Transport]
    transport: Transport | None = None

    def connect(self, options: Mapping[str, Option] | None = None) -> Session:
        """A session on it; closing that session leaves it alive."""
        if self.transport is None:
            self.transport = self.start()
        return Session(_Lent(self.transport), options)

    def end(self) -> None:
        """End the process."""
        if self.transport is not None:
            self.transport.close()
            self.transport = None


class _Lent:
    def __init__(self, real: Transport) -> None:
        self.real = real

    @property
    def name(self) -> str:
        return self.real.name

    def exchange(self, command: dict[str, object]) -> dict[str, object]:
        return self.real.exchange(command)

    def close(self) -> None:
        """It was only lent."""


def run_row(
    wanted: Wanted, child: Child, found: Sequence[Finding], progress: Callable[[int, float, int], None]
) -> Result:
    """Run one row. Raises HarnessError, NoStart."""
    began = time.monotonic()
    options = dict(wanted.options)
    session = child.connect(options)
    can = tuple(sorted(probe(session, wanted.policy).started.capabilities))
    name = shlex.join([f"{wanted.engine}=={wanted.version}", *wanted.words])

    def see(violation: object, reduced: object, origin: Origin, run: object) -> tuple[str, str]:
        return "", f"preempt-oracle conform {name} --policy {wanted.policy} --seed {origin.tag} --workloads 1"

    budget = Budget(wanted.workloads)
    made = campaign(
        lambda: child.connect(options), wanted.policy, wanted.seed, budget, see, progress, tries=0, spec=wanted.spec
    )
    if made.broken:
        raise HarnessError(made.broken)
    if made.interrupted:
        raise KeyboardInterrupt
    replays = tuple(_replays(session, wanted, made, found))
    searched = None
    if wanted.fuzz:
        tried = (wanted.policy, wanted.seed, wanted.fuzz, wanted.spec)
        searched = search(lambda: child.connect(options), *tried, progress)
    return _result(wanted, made, replays, can, searched, time.monotonic() - began)


def _replays(session: Session, wanted: Wanted, made: Campaign, found: Sequence[Finding]) -> Iterator[Replay]:
    """Every finding under this policy, counted among the runs of the row."""
    for f in found:
        if f.scenario.config.policy != wanted.policy or not wanted.expects(f):
            continue
        session.options = dict(f.scenario.options)
        run = drive(session, f.scenario, spec=wanted.spec)
        if isinstance(run, Refused):
            yield Replay(f.name, run.reason, refused=True)
            continue
        made.tally.add(run.monitor, run.header.observes, advised={v.rule for v in run.advised})
        again = f"preempt-oracle replay {f.file} {wanted.engine}=={wanted.version}"
        for violation in run.violations:
            if all(x.violation.rule != violation.rule for x in made.tally.failures):
                made.tally.failures.append(failure(run, violation, f.file, again))
        broken = [v.rule for v in run.violations]
        first = f.scenario.rule if f.scenario.rule in broken else broken[0] if broken else HELD
        yield Replay(f.name, first)


def _result(
    wanted: Wanted,
    made: Campaign,
    replays: tuple[Replay, ...],
    can: tuple[str, ...],
    searched: Searched | None,
    seconds: float,
) -> Result:
    from preempt_oracle.report.matrix import symbol
    from preempt_oracle.report.rulebook import families

    tally: Tally = made.tally
    first = {}
    for rule in tally.times:
        seen = next(f for f in tally.failures if f.violation.rule == rule)
        first[rule] = (visible(seen.violation.message, 400), seen.replay)
    outside: dict[str, int] = {visible(reason, 400): times for reason, times in made.outside.items()}
    return Result(
        form=FORM,
        code=code(),
        spec=wanted.spec,
        engine=wanted.engine,
        version=wanted.version,
        policy=wanted.policy,
        seed=wanted.seed,
        workloads=wanted.workloads,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        seconds=round(seconds, 1),
        verdict=tally.verdict.value,
        families={f: symbol(tally, f) for f in families()},
        broken=dict(sorted(tally.times.items())),
        first=first,
        replays=replays,
        steps=tally.steps,
        preemptions=tally.preemptions,
        resumes=tally.resumes,
        outside=outside,
        can=can,
        deviations=tuple(f"{d.knob} = {getattr(d.value, 'name', d.value)}" for d in tally.deviations),
        options=dict(wanted.options),
        searched=searched,
    )


def run(
    wanted: Sequence[Wanted],
    found: Sequence[Finding],
    start: Callable[[Wanted], Transport],
    keep: Path,
    say: Callable[[str], None],
    progress: Callable[[int, float, int], None] = lambda *_: None,
    write: Callable[[Path, bytes], object] = Path.write_bytes,
) -> VersionMatrix:
    """Run what is not kept in the folder `keep`, and compare all of it.

    `start`: a transport to a version, or HarnessError if it is not installed; `write`: keeps a result.
    """
    rows: list[Row] = []
    child: Child | None = None
    of = ""
    interrupted = False
    try:
        for i, w in enumerate(wanted, 1):
            head = f"{i}/{len(wanted)} {w.engine} {w.version} {w.policy}{f', {w.variant}' * bool(w.variant)}"
            kept = load(keep / w.file)
            if kept is not None and kept.stands_for(w):
                say(f"{head}: kept, of {kept.date}")
                rows.append(compare(w, kept, found, kept=True))
                continue
            if child is None or of != w.version:
                if child is not None:
                    child.end()
                child, of = Child(_starter(start, w)), w.version
            say(f"{head}: {w.workloads} workloads{f', and {w.fuzz:g} s of search' * bool(w.fuzz)}")
            try:
                result = run_row(w, child, found, progress)
            except HarnessError as e:
                child.end()
                rows.append(compare(w, None, found, str(e)))
                say(f"{head}: {str(e).splitlines()[0]}")
                continue
            write(keep / w.file, msgspec.json.format(msgspec.json.encode(result), indent=1))
            rows.append(compare(w, result, found))
            say(
                f"{head}: {result.verdict}{' ' * bool(result.broken)}{', '.join(result.broken)}; {result.seconds:.0f} s"
            )
    except KeyboardInterrupt:
        interrupted = True  # what is done is kept
    finally:
        if child is not None:
            child.end()
    return VersionMatrix(wanted[0].engine, tuple(rows), tuple(found), interrupted)


def _starter(start: Callable[[Wanted], Transport], wanted: Wanted) -> Callable[[], Transport]:
    return lambda: start(wanted)


def by_version(rows: Sequence[Row]) -> Mapping[str, tuple[Row, ...]]:
    """The rows of each version, in order."""
    out: dict[str, tuple[Row, ...]] = {}
    for row in rows:
        out[row.wanted.version] = (*out.get(row.wanted.version, ()), row)
    return out
