"""Which policy an engine follows, found out by driving it: `preempt-oracle infer`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from time import monotonic
from typing import Any

from attrs import Factory, define, evolve, field, frozen

from preempt_oracle.adapters.protocol import HarnessError, Refused, Session, Started
from preempt_oracle.campaign import Opened, generated, probe
from preempt_oracle.drive import drive
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_oracle.verdict import Verdict, policy_for
from preempt_properties.inference import Case, Conflict, Unexplained, causes, explain
from preempt_properties.scenario import Add, Scenario
from preempt_properties.telling import Knob, Ran, narrowed
from preempt_spec.policies.policy import Oversize, Policy
from preempt_spec.policies.profiles import PROFILES, Deviation


@frozen
class Told:
    """A knob, and how it compares with the profile."""

    knob: Knob
    declared: Any  # of the contract
    deviation: Deviation | None = None  # what is declared of this version instead

    @property
    def expected(self) -> Any:
        """The value that the profile has for this version."""
        return self.declared if self.deviation is None else self.deviation.value

    @property
    def agrees(self) -> bool | None:
        """Whether what was seen is what is declared; None if it is undetermined, what is declared being possible."""
        if self.expected not in self.knob.possible:
            return False
        return True if self.knob.value is not None else None


@define
class Inference:
    """What came of it, also when it ended early."""

    engine: str
    version: str
    policy: str
    seed: int
    contract: Policy
    as_built: Policy  # the contract, or what is declared of this version instead
    workloads: int = 0
    steps: int = 0
    preemptions: int = 0
    seconds: float = 0.0
    outside: Counter[str] = Factory(Counter)
    told: tuple[Told, ...] = ()
    causes: frozenset[str] = frozenset()
    unexplained: tuple[tuple[Case, Conflict], ...] = ()  # what no policy explains
    known: frozenset[str] = frozenset()  # rules that this engine is known to break
    scenarios: dict[str, Scenario] = field(factory=dict)  # name of a run -> what was run
    interrupted: bool = False
    broken: str = ""

    @property
    def new(self) -> tuple[tuple[Case, Conflict], ...]:
        """What no policy explains, and no finding."""
        if not self.told:  # each run can be explained, but not all of them: that is no single fault
            return self.unexplained
        return tuple((case, c) for case, c in self.unexplained if c.rule not in self.known)

    @property
    def verdict(self) -> Verdict:
        """Conforms: a policy explains everything but known faults, and whatever was told is what is declared."""
        if self.broken:
            return Verdict.BROKEN
        if self.new or any(t.agrees is False for t in self.told):
            return Verdict.VIOLATES
        if self.causes - self.as_built.causes:
            return Verdict.VIOLATES
        return Verdict.CONFORMS if any(t.agrees for t in self.told) and self.preemptions else Verdict.INCONCLUSIVE


def infer(
    connect: Callable[[], Session],
    policy: str,
    seed: int,
    workloads: int,
    known: frozenset[str] = frozenset(),
    progress: Callable[[int, float, int], None] = lambda *_: None,
) -> Inference:
    """Drive the engine through workloads of one profile's kind, and tell what its policy may be.

    `known`: rules that it is known to break. A run is followed to where it breaks one; what came before tells.

    Raises NoStart, HarnessError, UnknownPolicy before the first workload only: later, `broken` says why.
    """
    began, session = monotonic(), connect()
    try:
        opened = probe(session, policy)
        header = opened.started.header
        as_built, deviations = policy_for(header, policy)
        out = Inference(header.engine, header.version, policy, seed, PROFILES[policy].contract, as_built, known=known)
        runs: list[Ran] = []
        try:
            for n in range(workloads):
                _run(session, out, runs, seed + n, opened)
                progress(n + 1, monotonic() - began, out.preemptions)
        except KeyboardInterrupt:
            out.interrupted = True
        except HarnessError as e:
            out.broken = f"the workload of seed {seed + out.workloads}: {e}"
        _conclude(out, runs, deviations, None if out.broken else _oversize(session, opened))
    finally:
        session.close()
    out.seconds = monotonic() - began
    return out


def _run(session: Session, out: Inference, runs: list[Ran], seed: int, opened: Opened) -> None:
    scenario = _mixed(Random(seed), generated(seed, out.policy, opened.started.capabilities))
    run = drive(session, scenario)
    out.workloads += 1
    if isinstance(run, Refused):
        out.outside[run.reason] += 1
        return
    events = tuple(map(to_spec, run.events))
    case = Case(f"seed {seed}", to_spec(run.header), events, out.as_built)
    out.steps += sum(type(e) is wire.Step for e in run.events)
    out.preemptions += sum(type(a) is wire.Demote for e in run.events for a in getattr(e, "acts", ()))
    out.scenarios[case.name] = scenario
    runs.append(Ran(scenario, case))


def _mixed(random: Random, scenario: Scenario) -> Scenario:
    """With priorities also where nobody is said to look at them."""
    adds = [c for c in scenario.script if isinstance(c, Add)]
    if any(a.priority for a in adds):
        return scenario
    script = (evolve(c, priority=random.choice((0, 0, 1, 2))) if isinstance(c, Add) else c for c in scenario.script)
    return evolve(scenario, script=tuple(script))


def _oversize(session: Session, opened: Opened) -> Oversize | None:
    """Who refuses a request that can never fit; None if nobody does."""
    if not isinstance(session.start(opened.config), Started):
        return None
    answer = session.add(Add("too-long", (1,) * (opened.config.max_length - 1), 2))
    if isinstance(answer, wire.EngineError):
        return None  # and nothing is left to be stopped
    session.stop()
    if isinstance(answer, Refused):
        return Oversize.FRONT_END
    return Oversize.SCHEDULER if isinstance(answer, wire.Reject) else None


def _conclude(out: Inference, runs: list[Ran], deviations: tuple[Deviation, ...], oversize: Oversize | None) -> None:
    out.causes = frozenset().union(*(causes(run.case.events) for run in runs))
    found = explain([run.case for run in runs], out.as_built)
    if isinstance(found, Unexplained):
        out.unexplained = found.conflicts
        return
    out.unexplained = found.cut
    declared = {d.knob: d for d in deviations}
    told = []
    for knob in narrowed(found, runs, out.as_built):
        if knob.name == "oversize" and oversize in knob.possible:
            knob = evolve(knob, possible=(oversize,))
        told.append(Told(knob, getattr(out.contract, knob.name), declared.get(knob.name)))
    out.told = tuple(told)
