"""Faults in a real engine: does the adapter see enough of it for the right rule to speak?

An adapter whose observations all stem from one structure would let every fault of that structure pass. So its engine
is broken on purpose, one fault at a time (`engines/faults.py`), and driven through generated workloads until a rule
is broken: it must be the rule the fault was meant for. The same workloads without any fault are the control: they
must break nothing but what is known of this engine, and one that does shows no fault. Workload i of seed S is
`conform`'s of seed S + i.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import msgspec
from attrs import Factory, define, field, frozen

from preempt_oracle.adapters.protocol import HarnessError, Refused, Session, Started, Transport
from preempt_oracle.campaign import generated, probe
from preempt_oracle.drive import Run, drive
from preempt_oracle.verdict import Verdict, out_of_contract
from preempt_properties.scenario import Abort, Add, Config, Control, Scenario
from preempt_spec.events import OBSERVABLE
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.rules import RULES, Violation

LIMIT = 300  # workloads that fit a fault, before it counts as not caught


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault as its adapter tells of it: see `engines.faults.Fault`."""

    name: str
    does: str
    rules: tuple[str, ...]
    also: tuple[str, ...] = ()
    why: str = ""
    policies: tuple[str, ...] = ()
    config: dict[str, Any] = {}
    script: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    def fits(self, scenario: Scenario) -> bool:
        """Whether this fault can act in that workload, as far as its settings and its script tell."""
        for name, wanted in self.config.items():
            value = getattr(scenario.config, name)
            if (bool(value) if isinstance(wanted, bool) else value) != wanted:
                return False
        adds = [c for c in scenario.script if isinstance(c, Add)]
        has = {
            "abort": any(isinstance(c, Abort) for c in scenario.script),
            "salt": len({a.salt for a in adds}) > 1,
            "priority": len({a.priority for a in adds}) > 1,
            "reset": Control("reset") in scenario.script,
            "pause": Control("pause") in scenario.script,
        }
        return all(has[word] for word in self.script)


class Outcome(Enum):
    """What became of a fault."""

    CAUGHT = "caught"
    OTHER = "caught by another rule"
    MISSED = "not caught"
    UNSEEN = "cannot be seen"  # the adapter lacks an observation, and says so
    IDLE = "never acted"
    BROKE = "broke the harness"

    @property
    def verdict(self) -> Verdict:
        """What it makes of the whole."""
        match self:
            case Outcome.CAUGHT | Outcome.UNSEEN:
                return Verdict.CONFORMS
            case Outcome.IDLE:
                return Verdict.INCONCLUSIVE
            case Outcome.BROKE:
                return Verdict.BROKEN
        return Verdict.VIOLATES


@frozen
class Row:
    """One fault, and how it ended."""

    fault: Fault
    outcome: Outcome
    fired: int  # times it acted, in all its workloads
    acted: int  # workloads in which it acted
    seed: int  # of the workload that ended the search
    frame: int = -1  # the step in which the rule was broken
    named: tuple[Violation, ...] = ()
    note: str = ""


@define
class Injected:
    """The table: every fault of an adapter under one policy, and the control."""

    engine: str
    version: str
    policy: str
    seed: int
    rows: list[Row] = Factory(list)
    controls: int = 0  # workloads driven without a fault
    alarms: dict[int, tuple[Violation, ...]] = Factory(dict)  # seed -> what broke there without any fault
    elsewhere: tuple[str, ...] = ()  # faults that make no sense under this policy
    known: dict[int, tuple[Violation, ...]] = Factory(dict)  # as `alarms`, of rules that are known to break

    @property
    def verdict(self) -> Verdict:
        """3 harness broken, 1 a fault was missed or named wrongly or the control broke a rule, 4 one never acted."""
        found = {row.outcome.verdict for row in self.rows}
        if self.alarms:
            found.add(Verdict.VIOLATES)
        if not self.rows:
            found.add(Verdict.INCONCLUSIVE)
        order = (Verdict.BROKEN, Verdict.VIOLATES, Verdict.INCONCLUSIVE)
        return next((v for v in order if v in found), Verdict.CONFORMS)


class NoFaults(Exception):
    """The adapter has no faults to inject. The message has its words."""


class _Counting:
    """A transport that keeps for itself what replies tell of faults."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.fired = 0
        self.faults: Any = None

    @property
    def name(self) -> str:
        return self.inner.name

    def exchange(self, command: dict[str, Any]) -> dict[str, Any]:
        reply = self.inner.exchange(command)
        fired = reply.pop("fired", 0)
        if type(fired) is not int or fired < 0:
            raise HarnessError(f"{self.name}: fired: expected a count, not {fired!r}")
        self.fired = fired
        self.faults = reply.pop("faults", self.faults)
        return reply

    def close(self) -> None:
        self.inner.close()


Progress = Callable[[Row], None]


def injected(
    connect: Callable[[], Session],
    policy: str,
    seed: int = 0,
    limit: int | None = None,
    only: frozenset[str] = frozenset(),
    progress: Progress = lambda _: None,
    known: frozenset[str] = frozenset(),
) -> Injected:
    """Put every fault of an adapter (or `only` those) into its engine, one after the other.

    `limit`: workloads that fit a fault, before it counts as not caught; by default `LIMIT`. `known`: rules that this
    version breaks without any fault, as somebody has found.

    Raises NoFaults, NoStart, UnknownPolicy; HarnessError if it is not a fault that broke the harness.
    """
    bench = _Bench(connect, policy, seed, known)
    try:
        faults = bench.open()
        unknown = sorted(only - {f.name for f in faults})
        if unknown:
            raise NoFaults(f"there is no fault {unknown[0]!r}; there are {', '.join(f.name for f in faults)}")
        wanted = [f for f in faults if not only or f.name in only]
        header = bench.started.header
        out = Injected(header.engine, header.version, policy, seed)
        out.elsewhere = tuple(f.name for f in wanted if f.policies and policy not in f.policies)
        for fault in wanted:
            if fault.name not in out.elsewhere:
                out.rows.append(bench.search(fault, LIMIT if limit is None else limit))
                progress(out.rows[-1])
        out.controls = bench.controls
        out.alarms, out.known = bench.alarms, bench.expected
        return out
    finally:
        bench.close()


@define
class _Bench:
    """One session at a time, the workloads of one seed, and which of them break nothing by themselves."""

    connect: Callable[[], Session]
    policy: str
    seed: int
    known: frozenset[str]
    session: Session = field(init=False)
    counting: _Counting = field(init=False)
    options: Mapping[str, Any] = field(init=False)
    started: Started = field(init=False)
    config: Config = field(init=False)  # one it starts with
    clean: dict[int, bool] = Factory(dict)  # seed -> usable: the control run broke nothing
    controls: int = 0  # of which so many were driven, the rest refused
    alarms: dict[int, tuple[Violation, ...]] = Factory(dict)
    expected: dict[int, tuple[Violation, ...]] = Factory(dict)
    workloads: dict[int, Scenario] = Factory(dict)

    def open(self) -> tuple[Fault, ...]:
        """Connect, and hear of the faults."""
        self._connect()
        opened = probe(self.session, self.policy)  # without the option: does it start at all?
        self.started, self.config = opened.started, opened.config
        self._choose("")
        answer = self.session.start(self.config)
        if not isinstance(answer, Started) or self.counting.faults is None:
            reason = answer.reason if isinstance(answer, Refused) else "it lists none"
            raise NoFaults(f"{self.session.transport.name} has no faults to inject: {reason}")
        self.session.stop()
        try:
            faults = msgspec.convert(self.counting.faults, tuple[Fault, ...])
        except msgspec.ValidationError as e:
            raise HarnessError(f"{self.session.transport.name}: faults: {e}") from None
        for fault in faults:
            self._check(fault, answer.header.observes)
        return faults

    def _check(self, fault: Fault, observes: frozenset[str]) -> None:
        name = f"{self.session.transport.name}: fault {fault.name}"
        for rule in (*fault.rules, *fault.also):
            if rule not in RULES:
                raise HarnessError(f"{name}: there is no rule {rule!r}")
        if not fault.rules:
            raise HarnessError(f"{name}: names no rule")
        for policy in fault.policies:
            if policy not in PROFILES:
                raise HarnessError(f"{name}: there is no profile {policy!r}")
        for what in fault.lacks:
            if what not in OBSERVABLE or what in observes:
                raise HarnessError(f"{name}: lacks {what!r}, which is no observation or one that the header has")

    def search(self, fault: Fault, limit: int) -> Row:
        """Drive workloads with this fault until a rule is broken, or the limit is reached."""
        tried = fired = acted = 0
        index = self.seed - 1
        # Few workloads may have what a fault needs; all of them are looked at, some are driven.
        while tried < limit and index < self.seed + 20 * limit:
            index += 1
            scenario = self._workload(index)
            if not fault.fits(scenario) or not self._control(index, scenario):
                continue
            tried += 1
            try:
                run = self._drive(scenario, fault.name)
            except HarnessError as e:
                return Row(fault, Outcome.BROKE, fired + self.counting.fired, acted + 1, index, note=str(e))
            if isinstance(run, Refused):
                return Row(fault, Outcome.BROKE, fired, acted, index, note=f"refused with the fault: {run.reason}")
            fired += self.counting.fired
            acted += self.counting.fired > 0
            if run.violations:
                named = {v.rule for v in run.violations}
                right = named & {*fault.rules} and named <= {*fault.rules, *fault.also}
                outcome = Outcome.CAUGHT if right and self.counting.fired else Outcome.OTHER
                frame = run.monitor.shadow.last_frame
                return Row(fault, outcome, fired, acted, index, frame, run.violations)
        if not fired:
            return Row(fault, Outcome.IDLE, 0, 0, index, note=f"in {tried} workloads")
        if fault.lacks:
            return Row(fault, Outcome.UNSEEN, fired, acted, index, note=f"lacks {', '.join(fault.lacks)}")
        return Row(fault, Outcome.MISSED, fired, acted, index, note=self._unobserved(fault))

    def _unobserved(self, fault: Fault) -> str:
        """What the intended rules would need and this adapter does not observe."""
        seen = self.started.header.observes
        gaps = [sorted(needs - seen) for rule in fault.rules for needs in RULES[rule].needs if not needs <= seen]
        return f"not observed: {', '.join(sorted({g for gap in gaps for g in gap}))}" if gaps else ""

    def _workload(self, index: int) -> Scenario:
        if index not in self.workloads:
            self.workloads[index] = generated(index, self.policy, self.started.capabilities)
        return self.workloads[index]

    def _control(self, index: int, scenario: Scenario) -> bool:
        """Whether this workload is inside the contract and breaks nothing without a fault."""
        if index not in self.clean:
            run = self._drive(scenario, "")
            self.clean[index] = False
            if not isinstance(run, Refused) and not out_of_contract(run.monitor.shadow):
                self.controls += 1
                self.clean[index] = not run.violations
                if run.violations:
                    known = {v.rule for v in run.violations} <= self.known
                    (self.expected if known else self.alarms)[index] = run.violations
        return self.clean[index]

    def _drive(self, scenario: Scenario, fault: str) -> Run | Refused:
        self._choose(fault)
        try:
            return drive(self.session, scenario, policy=self.policy)
        except HarnessError:
            fired = self.counting.fired
            self._recover()
            self.counting.fired = fired
            raise

    def _recover(self) -> None:
        """After nonsense the process may be as good as before, and some take half a minute to start."""
        try:
            self._choose("")
            if isinstance(self.session.start(self.config), Started):
                self.session.stop()
                return
        except HarnessError:
            pass
        self.session.close()
        self._connect()

    def _choose(self, fault: str) -> None:
        self.session.options = {**self.options, "fault": fault}

    def _connect(self) -> None:
        self.session = self.connect()
        self.options = self.session.options
        self.counting = _Counting(self.session.transport)
        self.session.transport = self.counting

    def close(self) -> None:
        """End the session."""
        self.session.close()
