"""Drive a real vLLM scheduler and its prediction with the same commands and the same tokens, comparing every event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any

from attrs import Factory, define, field, frozen

from preempt_oracle.adapters.protocol import HarnessError, Refused, Session
from preempt_oracle.drive import Drive
from preempt_oracle.lockstep.compare import REQUIRED, Line, compare
from preempt_oracle.lockstep.modes import Mode, Unmodelled, generated
from preempt_oracle.lockstep.predicted import VERSIONS, Predicted
from preempt_oracle.reduce import reduce
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_oracle.verdict import policy_for
from preempt_properties.scenario import Add, Scenario
from preempt_spec import events as ev
from preempt_spec.view import Fate

#: Decisions after which a workload is left: some never end (F2 of docs/findings.md), and agree all the way.
MOST_STEPS = 250
TRIES = 200  # runs spent on shortening the first divergence


@frozen
class Divergence:
    """Where the prediction was wrong: the engine's event and the predicted one, field by field."""

    mode: Mode
    seed: int
    scenario: Scenario
    event: int  # counted from 1, as in a trace without its header
    step: int  # decisions so far
    what: str
    lines: tuple[Line, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that differ."""
        return tuple(line.field for line in self.lines if line.differs)


@define
class Cell:
    """What was seen of one mode."""

    workloads: int = 0
    steps: int = 0
    granting: int = 0  # of them, those that granted somebody tokens
    events: int = 0
    divergences: int = 0
    outside: int = 0  # workloads that the engine refused


@define
class Lockstep:
    """What came of a campaign, also when it ended early."""

    engine: str
    version: str
    seed: int
    cells: dict[Mode, Cell] = Factory(dict)
    reached: Counter[str] = Factory(Counter)
    refusals: Counter[str] = Factory(Counter)
    first: Divergence | None = None
    seconds: float = 0.0
    interrupted: bool = False
    broken: str = ""

    @property
    def steps(self) -> int:
        """Decisions compared."""
        return sum(c.steps for c in self.cells.values())

    @property
    def granting(self) -> int:
        """Of them, those that granted somebody tokens."""
        return sum(c.granting for c in self.cells.values())

    @property
    def workloads(self) -> int:
        """Workloads run."""
        return sum(c.workloads for c in self.cells.values())

    @property
    def divergences(self) -> int:
        """Workloads in which the prediction was wrong."""
        return sum(c.divergences for c in self.cells.values())


class Listening(Session):
    """A session that remembers its last command: the prediction hears that, and not what the engine echoes of it."""

    told: Add | str | ev.Deliver = ""

    def add(self, add: Add) -> wire.Arrive | wire.Reject | wire.EngineError | Refused:
        """Remember, and go on."""
        self.told = add
        return super().add(add)

    def abort(self, request: str) -> wire.Abort | wire.EngineError | Refused:
        """Remember, and go on."""
        self.told = request
        return super().abort(request)

    def control(self, kind: str) -> wire.Control | wire.EngineError | Refused:
        """Remember, and go on."""
        self.told = kind
        return super().control(kind)

    def deliver(
        self,
        frame: int,
        requests: Sequence[str],
        tokens: Sequence[Sequence[int]],
        proposed: Sequence[int] | None = None,
    ) -> tuple[wire.Event, ...]:
        """Remember, and go on."""
        self.told = ev.Deliver(
            frame,
            tuple(requests),
            tuple(tuple(t) for t in tokens),
            proposed=None if proposed is None else tuple(proposed),
        )
        return super().deliver(frame, requests, tokens, proposed)


@define
class Pair:
    """The prediction of one run, and the comparison with what the engine shows."""

    predicted: Predicted
    session: Listening
    reached: Counter[str]
    events: int = 0
    steps: int = 0
    granting: int = 0
    due: list[ev.Event] = field(factory=list)  # predicted, and not seen of the engine yet

    @property
    def shadow(self) -> Any:
        """What the harness goes by: the prediction, which is the engine's state as long as they agree."""
        return self.predicted.state

    def see(self, event: wire.Event) -> tuple[Line, ...]:
        """Compare one event of the engine; the lines, of which some may differ."""
        self.events += 1
        real = to_spec(event)
        if not self.due:
            self.due = list(self._next(real))
        elif not isinstance(real, ev.Finish):
            return compare(real, self.due[0])
        if not self.due:
            return (Line("event", type(real).__name__.lower(), None),)
        return compare(real, self.due.pop(0))

    def _next(self, real: ev.Event) -> Iterator[ev.Event]:
        p, n, told = self.predicted, self.reached, self.session.told
        match real, told:
            case ev.Arrive(), Add():
                # vLLM's front end clips what could never be emitted.
                most = min(told.max_tokens, p.state.limits.max_length - len(told.prompt))
                yield from p.arrive(ev.Arrive(told.request, told.prompt, most, told.priority, told.arrival, told.salt))
            case ev.Abort(), str():
                flies = any(told in f for f in p.state.frames.values())
                n[f"abort of a {p.state.request(told).place.value} request" + " in flight" * flies] += 1
                yield p.abort(told)
            case ev.Control(), str():
                n[f"control: {told}" + " with frames in flight" * bool(p.state.frames)] += 1
                yield p.control(told)
            case ev.Deliver(), ev.Deliver():
                yield from self._delivered(p, told)
            case ((ev.Step() | ev.EngineError()), _):
                self.steps += 1
                step = p.step()
                self.granting += bool(step.requests)
                _count(n, step)
                yield step

    def _delivered(self, p: Predicted, told: ev.Deliver) -> Iterator[ev.Event]:
        fates = [x.fate for r, x in p.state.frames.get(told.frame, {}).items() if r in told.requests]
        self.reached["stale output appended"] += fates.count(Fate.DELIVER)
        self.reached["stale output dropped"] += fates.count(Fate.DROP)
        running = set(p.state.running)
        for event in p.deliver(told):
            if isinstance(event, ev.Finish) and event.request not in running:
                self.reached["finished while preempted"] += 1
            yield event


def _count(n: Counter[str], step: ev.Step) -> None:
    victims = [a for a in step.acts if isinstance(a, ev.Demote)]
    n["preemption"] += len(victims)
    n["several victims in a step"] += len(victims) > 1
    n["self-preemption"] += sum(a.request in a.beneficiaries for a in victims)
    n["victim already granted"] += sum(isinstance(a, ev.Unplan) for a in step.acts)
    n["resume"] += len(step.resumed)
    hit = {h.request for h in step.hits if h.tokens}
    n["resume with a prefix hit"] += sum(r.request in hit for r in step.resumed)
    n["prefix hit"] += len(hit)
    n["passed over by cadence"] += sum(isinstance(a, ev.Skip) for a in step.acts)
    n["drafts"] += sum(d.tokens for d in step.drafts)


@frozen
class Followed:
    """One run. `lines` empty: no divergence."""

    pair: Pair | None
    refused: str = ""
    lines: tuple[Line, ...] = ()
    what: str = ""


def follow(
    session: Session, mode: Mode, scenario: Scenario, reached: Counter[str], seed: int = 0, predict: Any = Predicted
) -> Followed:
    """Run a scenario on both, to its end or to the first divergence. `predict`: makes the prediction.

    Raises HarnessError, Unmodelled.
    """
    ear = Listening(session.transport, {**session.options, **mode.options})
    started = ear.start(scenario.config, seed)
    if isinstance(started, Refused):
        return Followed(None, started.reason)
    if isinstance(started, wire.EngineError):
        raise HarnessError(f"{ear.transport.name} could not start: {started.kind}: {started.message}")
    told = started.header
    if told.engine != "vllm" or told.version not in VERSIONS:
        ear.stop()
        raise Unmodelled(f"{told.engine} {told.version} is not predicted; vllm {' and '.join(VERSIONS)} are")
    if lacks := sorted(REQUIRED - told.observes):
        raise HarnessError(f"{ear.transport.name}: lockstep needs to observe {', '.join(lacks)}")
    header = to_spec(told)
    policy, _ = policy_for(told, mode.policy)
    pair = Pair(predict(header, policy, mode.build(told.version, scenario.config.drafts)), ear, reached)
    run = Drive(ear, scenario, seed, pair)
    found: tuple[Line, ...] = ()
    what = ""
    for event in run.events():
        run.seen.append(event)
        found = _predicted(pair, event)
        what = type(event).__name__.lower()
        if any(line.differs for line in found) or pair.steps >= MOST_STEPS:
            break
        found = ()
    found = tuple(found) if any(line.differs for line in found) else ()
    if not run.dead:
        ear.stop()
    return Followed(pair, run.refused.reason if run.refused else "", found, what)


def _predicted(pair: Pair, event: wire.Event) -> tuple[Line, ...]:
    try:
        return pair.see(event)
    except (LookupError, ValueError, AssertionError) as e:
        raise HarnessError(f"the prediction failed: {type(e).__name__}: {e}") from e


@frozen
class Budget:
    """When to stop, whichever comes first."""

    workloads: int | None = None
    seconds: float | None = None


def lockstep(
    connect: Callable[[], Session],
    modes: Sequence[Mode],
    seed: int,
    budget: Budget,
    progress: Callable[[int, float, int], None] = lambda *_: None,
    tries: int = TRIES,
    predict: Any = Predicted,
) -> Lockstep:
    """A campaign: workload i is that of seed + i, in mode (seed + i) modulo their number. Raises Unmodelled.

    A workload ends at its first divergence, and the campaign goes on; the first of all is shortened and kept.
    """
    began, i = monotonic(), 0
    session = connect()
    out = Lockstep("vllm", "", seed, {mode: Cell() for mode in modes})
    try:
        while (budget.workloads is None or i < budget.workloads) and (
            budget.seconds is None or monotonic() - began < budget.seconds
        ):
            mode = modes[(seed + i) % len(modes)]
            _workload(session, out, mode, seed + i, tries, predict)
            i += 1
            progress(i, monotonic() - began, out.divergences)
    except KeyboardInterrupt:
        out.interrupted = True
    except HarnessError as e:
        out.broken = f"workload of seed {seed + i}: {e}"
    finally:
        out.seconds = monotonic() - began
        session.close()
    return out


def _workload(session: Session, out: Lockstep, mode: Mode, seed: int, tries: int, predict: Any) -> None:
    scenario = generated(seed, mode)
    cell = out.cells[mode]
    followed = follow(session, mode, scenario, out.reached, predict=predict)
    cell.workloads += 1
    if followed.refused:
        cell.outside += 1
        out.refusals[followed.refused] += 1
    if followed.pair is None:
        return
    out.version = followed.pair.predicted.build.version
    cell.steps += followed.pair.steps
    cell.granting += followed.pair.granting
    cell.events += followed.pair.events
    if followed.lines:
        cell.divergences += 1
        if out.first is None:
            out.first = _shortest(session, mode, seed, scenario, followed, tries, predict)


def _shortest(
    session: Session, mode: Mode, seed: int, scenario: Scenario, followed: Followed, tries: int, predict: Any
) -> Divergence:
    """The divergence, in the shortest scenario that still shows one in the same field."""
    best = followed
    field = next(line.field for line in followed.lines if line.differs)

    def diverges(candidate: Scenario) -> bool:
        nonlocal best
        try:
            again = follow(session, mode, candidate, Counter(), predict=predict)
        except HarnessError:
            return False
        same = any(line.field == field and line.differs for line in again.lines)
        best = again if same else best
        return same

    shorter = reduce(scenario, diverges, tries).scenario
    assert best.pair is not None
    return Divergence(mode, seed, shorter, best.pair.events, best.pair.steps, best.what, best.lines)


def reached(out: Lockstep) -> Mapping[str, int]:
    """What workloads came to, most frequent first."""
    return {name: count for name, count in out.reached.most_common() if count}
