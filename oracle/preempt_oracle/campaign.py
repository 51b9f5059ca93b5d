"""Generated workloads against one engine: run after run on one session, until the budget is spent.

Workload number i of a campaign with seed S is the one of seed S + i, so that a seed in a report names one workload
whatever campaign it came from. The first failure of each rule is reduced and kept; further ones are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from time import monotonic

from attrs import Factory, define, evolve, field, frozen

from preempt_oracle.adapters.protocol import HarnessError, Refused, Session, Started
from preempt_oracle.divergence import diverged
from preempt_oracle.drive import Run, drive
from preempt_oracle.known import Known, Ledger
from preempt_oracle.reduce import TRIES, Reduced, reduce
from preempt_oracle.trace import wire
from preempt_oracle.verdict import Failure, Tally, out_of_contract, policy_for
from preempt_properties.scenario import Config, Scenario
from preempt_properties.workload import workload
from preempt_spec import SPEC_VERSION
from preempt_spec.rules import Violation
from preempt_spec.system import observable

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


#: Told after each workload: how many so far, seconds since the start, rules broken so far.
Progress = Callable[[int, float, int], None]
#: Given a failure and its shortened scenario: where it was written and how to replay it, as (file, command).
Save = Callable[[Violation, Reduced, int], tuple[str, str]]


@define
class Campaign:
    """What came of it, also when it ended early."""

    tally: Tally
    seed: int
    workloads: int = 0  # run, those out of contract included
    drawn: int = 0  # seeds that workloads were generated from, those that were not wanted included
    seconds: float = 0.0
    outside: Counter[str] = Factory(Counter)  # the engine's reasons for refusing a workload: out of contract
    several: int = 0  # steps with more than one victim
    interrupted: bool = False
    broken: str = ""  # why the harness gave up
    scenarios: dict[str, Scenario] = field(factory=dict)  # rule -> the shortened scenario


def generated(seed: int, policy: str, capabilities: frozenset[str]) -> Scenario:
    """The workload of one seed."""
    return workload(Random(seed), policy, capabilities=capabilities)


def probe(session: Session, policy: str) -> Opened:
    """Start the engine once, to hear who it is and what it can do. Raises NoStart, HarnessError."""
    reasons = []
    for caching in (False, True):
        for chunked in (True, False):
            config = Config(policy, 8, 4, 4, 64, 32, chunked=chunked, caching=caching)
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
    wanted: Callable[[Scenario], bool] | None = None,
) -> Campaign:
    """Run it, spending up to `tries` runs on shortening each failure. `wanted`: only workloads of which this is true.

    `spec`: the version of the specification to judge by; `known`: known failures, in which every run is noted. A known
    failure is neither shortened nor saved: its entry says what it is.

    Raises NoStart, HarnessError, UnknownPolicy before the first workload only: later, `broken` says why.
    """
    began = monotonic()
    deadline = float("inf") if budget.seconds is None else began + budget.seconds
    runner = _Runner(connect, save, tries, deadline, spec, known or Ledger(()), wanted)
    try:
        opened = probe(runner.session, policy)
        header = opened.started.header
        _, deviations = policy_for(header, policy)
        out = Campaign(Tally(header.engine, header.version, policy, deviations=deviations, spec=spec), seed)
        try:
            while (budget.workloads is None or out.workloads < budget.workloads) and monotonic() < runner.deadline:
                runner.workload(out, opened.started.capabilities)
                progress(out.workloads, monotonic() - began, len(out.scenarios))
        except KeyboardInterrupt:
            out.interrupted = True
        except HarnessError as e:
            out.broken = f"workload of seed {seed + out.drawn - 1}: {e}"
        out.seconds = monotonic() - began
        return out
    finally:
        runner.session.close()


class _Runner:
    """One session at a time, whatever a workload does to it."""

    def __init__(
        self,
        connect: Callable[[], Session],
        save: Save,
        tries: int,
        deadline: float,
        spec: str,
        known: Ledger,
        wanted: Callable[[Scenario], bool] | None,
    ) -> None:
        self.connect, self.save, self.tries, self.deadline = connect, save, tries, deadline
        self.spec, self.known, self.wanted = spec, known, wanted
        self.session = connect()
        self.crashes = 0  # candidates that broke the harness
        self.stopped: BaseException | None = None  # an end that came while a failure was being shortened

    def workload(self, out: Campaign, capabilities: frozenset[str]) -> None:
        """One workload, and the reduction of what it broke."""
        policy = out.tally.policy
        while True:
            seed = out.seed + out.drawn
            out.drawn += 1
            scenario = generated(seed, policy, capabilities)
            if self.wanted is None or self.wanted(scenario):
                break
        run = drive(self.session, scenario, policy=policy, spec=self.spec)
        out.workloads += 1
        if isinstance(run, Refused):
            out.outside[run.reason] += 1
            return
        if reason := out_of_contract(run.monitor.shadow):
            out.tally.add(run.monitor, run.header.observes)
            out.outside[reason] += 1
            return
        known = self.note(run)
        advised = {v.rule for v in run.advised}
        out.tally.add(run.monitor, run.header.observes, known=known, advised=advised)
        out.several += several_victims(run)
        for violation in (*run.violations, *run.advised):
            if violation.rule in known:
                where = f"the workload of seed {seed}"
                entry = known[violation.rule]
                seen = failure(run, violation, where, "", advisory=violation.rule in advised, known=entry.reason)
                self.keep_known(out, seen)
            elif violation.rule not in out.scenarios:
                self.keep(out, run, violation, scenario, seed)

    def note(self, run: Run) -> Mapping[str, Known]:
        """What is known of what a run broke."""
        broken, advised = {v.rule for v in run.violations}, {v.rule for v in run.advised}
        return self.known.note(run.scene, broken, advised, observable(run.header.observes, self.spec))

    def keep_known(self, out: Campaign, seen: Failure) -> None:
        """The first of each rule and reason."""
        if all((f.violation.rule, f.known) != (seen.violation.rule, seen.known) for f in out.tally.failures):
            out.tally.failures.append(seen)

    def keep(self, out: Campaign, run: Run, violation: Violation, scenario: Scenario, seed: int) -> None:
        """Shorten the scenario, write it, and keep the failure as the short one shows it."""
        shortest, found = run, violation

        def breaks(candidate: Scenario) -> bool:
            nonlocal shortest, found
            again = self.again(candidate, out.tally.policy)
            broken = (*again.violations, *again.advised) if again else ()
            same = next((v for v in broken if v.rule == violation.rule), None)
            # What has become another failure, one that is known, is not this one any more.
            if again is None or same is None or self.known.known(again.scene, [violation.rule]):
                return False
            shortest, found = again, same
            return True

        self.crashes = 0
        reduced = reduce(scenario, breaks, self.tries, self.deadline)
        if self.stopped is not None or self.crashes:
            reduced = evolve(reduced, minimal=False)
        out.scenarios[violation.rule] = reduced.scenario
        file, command = self.save(found, reduced, seed)
        where = f"{file}, event {len(shortest.events)}" if file else f"the workload of seed {seed}"
        advisory = found not in shortest.violations
        out.tally.failures.append(failure(shortest, found, where, command, reduced.note, advisory=advisory))
        if self.stopped is not None:
            raise self.stopped

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
