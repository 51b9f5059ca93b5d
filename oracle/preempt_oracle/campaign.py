"""Generated workloads against one engine: run after run on one session, until the budget is spent.

By default workload number i of a campaign with seed S is the one of seed S + i, so that a seed in a report names one
workload whatever campaign it came from; another `Source` may search instead (`fuzz.search`). The first failure of each
rule is reduced and kept; further ones are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from time import monotonic
from typing import Protocol

import msgspec
from attrs import Factory, define, evolve, field, frozen

from preempt_oracle.adapters.protocol import HarnessError, Refused, Session, Started
from preempt_oracle.divergence import diverged
from preempt_oracle.drive import Run, actions, drive
from preempt_oracle.known import Known, Ledger
from preempt_oracle.reduce import TRIES, Reduced, Weight, weight
from preempt_oracle.shortest import shortest
from preempt_oracle.trace import wire
from preempt_oracle.verdict import Failure, Tally, out_of_contract, policy_for
from preempt_properties.scenario import Config, Scenario
from preempt_properties.workload import workload
from preempt_spec import SPEC_VERSION
from preempt_spec.rules import Violation
from preempt_spec.system import observable
from preempt_spec.view import View

TAIL = 12  # events kept for a failure's context


class NoStart(Exception):
    """The engine takes none of the smallest configurations under this policy. The message has its reasons."""


@frozen
class Budget:
    """When to stop: after so many workloads, or so many seconds, whichever comes first."""

    workloads: int | None = 100
    seconds: float | None = None


@frozen
class Opened:
    """An engine that answered: the session, who it says it is, what it can do."""

    session: Session
    started: Started
    config: Config  # the one it started with: the features it insists on are set


@frozen
class Origin:
    """Where a workload came from, in words, and as short as a file name needs it."""

    words: str
    tag: str


class Source(Protocol):
    """Where workloads come from."""

    def scenario(self) -> Scenario:
        """The next one."""

    def origin(self) -> Origin:
        """Of the last one."""

    def watch(self, shadow: View, step: wire.Step) -> None:
        """The state behind a step of the last one."""

    def ran(self, run: Run) -> None:
        """The last one is over."""


#: Makes a source for an engine that can do so much.
Open = Callable[[frozenset[str]], Source]


class Seeds:
    """The workload of seed S, of S + 1, and so on."""

    def __init__(self, seed: int, policy: str, capabilities: frozenset[str]) -> None:
        self.seed, self.policy, self.capabilities = seed - 1, policy, capabilities

    def scenario(self) -> Scenario:
        """The next one."""
        self.seed += 1
        return generated(self.seed, self.policy, self.capabilities)

    def origin(self) -> Origin:
        """Its seed."""
        return Origin(f"the workload of seed {self.seed}", str(self.seed))

    def watch(self, shadow: View, step: wire.Step) -> None:
        """Whatever is reached, the next seed is the next seed."""

    def ran(self, run: Run) -> None:
        """Likewise."""


class NotDeterministic(HarnessError):
    """The same scenario went otherwise a second time: what one run shows of such an engine, no other could show."""


#: Told after each workload: how many so far, seconds since the start, rules broken so far.
Progress = Callable[[int, float, int], None]
#: Given a failure, its shortened scenario and that one's run: where it was written and how to replay it.
Save = Callable[[Violation, Reduced, Origin, Run], tuple[str, str]]


@define
class Campaign:
    """What came of it, also when it ended early."""

    tally: Tally
    seed: int
    workloads: int = 0  # run, those out of contract included
    seconds: float = 0.0
    outside: Counter[str] = Factory(Counter)  # the engine's reasons for refusing a workload: out of contract
    several: int = 0  # steps with more than one victim
    interrupted: bool = False
    broken: str = ""  # why the harness gave up
    scenarios: dict[str, Scenario] = field(factory=dict)  # rule -> the shortened scenario
    found: dict[str, Reduced] = field(factory=dict)  # rule -> how short that is, and how sure
    first: dict[str, float] = field(factory=dict)  # rule -> seconds until it broke for the first time
    culprit: Scenario | None = None  # the workload at which the harness gave up


def generated(seed: int, policy: str, capabilities: frozenset[str]) -> Scenario:
    """The workload of one seed."""
    return workload(Random(seed), policy, capabilities=capabilities)


def probe(session: Session, policy: str) -> Opened:
    """Start the engine once, to hear who it is and what it can do. Raises NoStart, HarnessError."""
    reasons = []
    for caching in (False, True):
        for chunked in (True, False):
            config = Config(policy, 8, 4, 4, 64, 24, chunked=chunked, caching=caching)
            started = session.start(config)
            if isinstance(started, Started):
                session.stop()
                return Opened(session, started, config)
            if not isinstance(started, Refused):
                name = session.transport.name
                raise HarnessError(f"{name} could not start: {started.kind}: {started.message} ({started.where})")
            reasons.append(started.reason)
    raise NoStart("; ".join(dict.fromkeys(reasons)))


def campaign(
    connect: Callable[[], Session],
    policy: str,
    seed: int,
    budget: Budget,
    save: Save,
    progress: Progress = lambda *_: None,
    tries: int = TRIES,
    *,
    spec: str = SPEC_VERSION,
    known: Ledger | None = None,
    source: Open | None = None,
    stop_at_first: bool = False,
) -> Campaign:
    """Run it, spending up to `tries` runs on shortening each failure.

    `spec`: the version of the specification to judge by; `known`: known failures, in which every run is noted. A known
    failure is neither shortened nor saved: its entry says what it is. `source`: of workloads, instead of the seeds from
    `seed` on. `stop_at_first`: end when a rule is broken.

    Raises NoStart, HarnessError, UnknownPolicy before the first workload only: later, `broken` says why.
    """
    began = monotonic()
    deadline = float("inf") if budget.seconds is None else began + budget.seconds
    runner = _Runner(connect, save, tries, deadline, spec, known or Ledger(()))
    try:
        opened = probe(runner.session, policy)
        header = opened.started.header
        _, deviations = policy_for(header, policy)
        out = Campaign(Tally(header.engine, header.version, policy, deviations=deviations, spec=spec), seed)
        can = opened.started.capabilities
        runner.source = Seeds(seed, policy, can) if source is None else source(can)
        runner.began, runner.progress = began, progress
        try:
            while (budget.workloads is None or out.workloads < budget.workloads) and monotonic() < runner.deadline:
                runner.workload(out)
                progress(out.workloads, monotonic() - began, len(out.scenarios))
                if stop_at_first and out.scenarios:
                    break
        except KeyboardInterrupt:
            out.interrupted = True
        except HarnessError as e:
            out.broken, out.culprit = f"{runner.origin.words}: {e}", runner.scenario
        out.seconds = monotonic() - began
        runner.session.close()
        if (left := getattr(runner.session.transport, "outlived", "")) and not out.broken:
            out.broken = f"{runner.session.transport.name} {left}"
        return out
    finally:
        runner.session.close()


class _Runner:
    """One session at a time, whatever a workload does to it."""

    def __init__(
        self, connect: Callable[[], Session], save: Save, tries: int, deadline: float, spec: str, known: Ledger
    ) -> None:
        self.connect, self.save, self.tries, self.deadline = connect, save, tries, deadline
        self.spec, self.known = spec, known
        self.session = connect()
        self.crashes = 0  # candidates that broke the harness
        self.stopped: BaseException | None = None  # an end that came while a failure was being shortened
        self.source: Source
        self.scenario: Scenario | None = None
        self.origin = Origin("the first workload", "0")
        self.began = 0.0
        self.progress: Progress = lambda *_: None

    def workload(self, out: Campaign) -> None:
        """One workload, and the reduction of what it broke."""
        policy, source = out.tally.policy, self.source
        self.scenario = scenario = source.scenario()
        self.origin = source.origin()
        run = drive(self.session, scenario, policy=policy, spec=self.spec, watch=source.watch)
        out.workloads += 1
        if isinstance(run, Refused):
            out.outside[run.reason] += 1
            return
        if reason := out_of_contract(run.monitor.shadow):
            out.tally.add(run.monitor, run.header.observes)
            out.outside[reason] += 1
            return
        source.ran(run)
        known = self.note(run)
        advised = {v.rule for v in run.advised}
        out.tally.add(run.monitor, run.header.observes, known=known, advised=advised)
        out.several += several_victims(run)
        for violation in (*run.violations, *run.advised):
            if violation.rule in known:
                where = self.origin.words
                entry = known[violation.rule]
                seen = failure(run, violation, where, "", advisory=violation.rule in advised, known=entry.reason)
                self.keep_known(out, seen)
            elif violation.rule not in out.scenarios:
                self.keep(out, run, violation, scenario)

    def note(self, run: Run) -> Mapping[str, Known]:
        """What is known of what a run broke."""
        broken, advised = {v.rule for v in run.violations}, {v.rule for v in run.advised}
        return self.known.note(run.scene, broken, advised, observable(run.header.observes, self.spec))

    def keep_known(self, out: Campaign, seen: Failure) -> None:
        """The first of each rule and reason."""
        if all((f.violation.rule, f.known) != (seen.violation.rule, seen.known) for f in out.tally.failures):
            out.tally.failures.append(seen)

    def keep(self, out: Campaign, run: Run, violation: Violation, scenario: Scenario) -> None:
        """Shorten the scenario, write it, and keep the failure as the short one shows it."""
        out.first[violation.rule] = monotonic() - self.began
        if self.tries:
            self.repeats(run, scenario, out.tally.policy)
        best: tuple[Weight, Run, Violation] | None = None

        def weigh(candidate: Scenario) -> Weight | None:
            nonlocal best
            self.progress(out.workloads, monotonic() - self.began, len(out.scenarios) + 1)
            again = self.again(candidate, out.tally.policy)
            broken = (*again.violations, *again.advised) if again else ()
            same = next((v for v in broken if v.rule == violation.rule), None)
            # What has become another failure, one that is known, is not this one any more.
            if again is None or same is None or self.known.known(again.scene, [violation.rule]):
                return None
            found = weight(candidate, actions(again))
            if best is None or found < best[0]:
                best = found, again, same
            return found

        self.crashes = 0
        start = weight(scenario, actions(run))
        reduced = shortest(scenario, start, weigh, self.tries, self.deadline)
        if self.stopped is not None or self.crashes:
            reduced = evolve(reduced, minimal=False, bounds="")
        # The lightest run is the reduced scenario's, if anything was lighter than what it came from.
        shown, found = best[1:] if best is not None and best[0] < start else (run, violation)
        out.scenarios[violation.rule], out.found[violation.rule] = reduced.scenario, reduced
        file, command = self.save(found, reduced, self.origin, shown)
        where = f"{file}, event {len(shown.events)}" if file else self.origin.words
        advisory = found not in shown.violations
        out.tally.failures.append(failure(shown, found, where, command, reduced.note, advisory=advisory))
        if self.stopped is not None:
            raise self.stopped

    def repeats(self, run: Run, scenario: Scenario, policy: str) -> None:
        """Nobody is accused by a run that cannot be repeated. Raises NotDeterministic."""
        again = self.again(scenario, policy)
        if self.stopped is not None:
            return
        name = self.session.transport.name
        if again is None:
            raise NotDeterministic(f"{name} is not deterministic: the same scenario did not run a second time")
        for i, (first, second) in enumerate(zip(run.events, again.events, strict=False), 1):
            if not _alike(first, second):
                told = f"event {i} was {_told(first)}, and then {_told(second)}"
                raise NotDeterministic(f"{name} is not deterministic: of the same scenario {told}")
        if len(run.events) != len(again.events):
            told = f"{len(run.events)} events, and then {len(again.events)}"
            raise NotDeterministic(f"{name} is not deterministic: the same scenario had {told}")

    def again(self, candidate: Scenario, policy: str) -> Run | None:
        """A run of a candidate; None if there was none."""
        if self.stopped is not None:
            return None
        try:
            try:
                run = drive(self.session, candidate, policy=policy, spec=self.spec)
            except HarnessError:
                # A candidate that breaks the adapter is none, and leaves a session that cannot be used.
                self.crashes += 1
                self.session.close()
                self.session = self.connect()
                return None
        except (KeyboardInterrupt, HarnessError) as e:
            self.stopped = e
            return None
        return None if isinstance(run, Refused) else run


def _alike(first: wire.Event, second: wire.Event) -> bool:
    """Whether an engine did the same twice. What it says when it crashes may have an address in it, or a time."""
    if isinstance(first, wire.EngineError) and isinstance(second, wire.EngineError):
        return (first.origin, first.kind, first.where) == (second.origin, second.kind, second.where)
    return first == second


def _told(event: wire.Event) -> str:
    text = msgspec.json.encode(event).decode()
    return text if len(text) <= 200 else text[:200] + " …"


def failure(
    run: Run, violation: Violation, where: str, replay: str, note: str = "", *, advisory: bool = False, known: str = ""
) -> Failure:
    """A failure of a driven run, with its context; that of an advisory rule without: the run has left it behind."""
    if advisory:
        return Failure(violation, where, -1, (), replay, None, note, known, True)
    seen = diverged(run.monitor, run.events[-1], violation)
    return Failure(violation, where, run.monitor.shadow.last_frame, run.events[-TAIL:], replay, seen, note, known)


def several_victims(run: Run) -> int:
    """Steps of a run with more than one victim."""
    steps = (event for event in run.events if type(event) is wire.Step)
    return sum(sum(isinstance(a, wire.Demote) for a in step.acts) > 1 for step in steps)
