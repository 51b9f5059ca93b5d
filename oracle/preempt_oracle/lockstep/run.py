"""Lockstep campaigns: workload after workload through the modes; the first divergence is shortened and kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from attrs import Factory, define, frozen

from preempt_oracle.adapters.protocol import HarnessError, Session
from preempt_oracle.lockstep.compare import Line
from preempt_oracle.lockstep.modes import Mode, generated
from preempt_oracle.lockstep.pair import Followed, Predict, follow
from preempt_oracle.lockstep.predicted import Predicted
from preempt_oracle.reduce import Weight, reduce, weight
from preempt_properties.scenario import Scenario

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
    reached: Counter[str] = Factory(Counter)  # what workloads came to


@define
class Lockstep:
    """What came of a campaign, also when it ended early."""

    engine: str
    version: str
    seed: int
    cells: dict[Mode, Cell] = Factory(dict)
    refusals: Counter[str] = Factory(Counter)
    first: Divergence | None = None
    seconds: float = 0.0
    interrupted: bool = False
    broken: str = ""

    @property
    def reached(self) -> Counter[str]:
        """What workloads came to."""
        return sum((c.reached for c in self.cells.values()), Counter())

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
    predict: Predict = Predicted,
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


def _workload(session: Session, out: Lockstep, mode: Mode, seed: int, tries: int, predict: Predict) -> None:
    scenario = generated(seed, mode)
    cell = out.cells[mode]
    followed = follow(session, mode, scenario, cell.reached, predict=predict)
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
            out.first = _divergence(mode, seed, scenario, followed)  # should the shortening be interrupted
            out.first = _shortest(session, mode, seed, scenario, followed, tries, predict)


def _shortest(
    session: Session, mode: Mode, seed: int, scenario: Scenario, followed: Followed, tries: int, predict: Predict
) -> Divergence:
    """The divergence, in the shortest scenario that still shows one in the same field."""
    assert followed.pair is not None
    best = followed
    start = lightest = weight(scenario, followed.pair.events)
    field = next(line.field for line in followed.lines if line.differs)

    def weigh(candidate: Scenario) -> Weight | None:
        nonlocal best, lightest
        try:
            again = follow(session, mode, candidate, Counter(), predict=predict)
        except HarnessError:
            return None
        if again.pair is None or not any(line.field == field and line.differs for line in again.lines):
            return None
        found = weight(candidate, again.pair.events)
        if found < lightest:
            best, lightest = again, found
        return found

    return _divergence(mode, seed, reduce(scenario, start, weigh, tries).scenario, best)


def _divergence(mode: Mode, seed: int, scenario: Scenario, followed: Followed) -> Divergence:
    assert followed.pair is not None
    return Divergence(mode, seed, scenario, followed.pair.events, followed.pair.steps, followed.what, followed.lines)


def reached(out: Lockstep) -> Mapping[str, int]:
    """What workloads came to, most frequent first."""
    return {name: count for name, count in out.reached.most_common() if count}
