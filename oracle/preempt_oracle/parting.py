"""Two engines over the same workload: the first event in which they part, and the rules that tell them apart.

Both hear the same commands and get the same tokens for the same contexts. What is compared is what they decide: whom
they grant how much, whom they preempt, what they hit, how their queues and free counts stand. Block ids are each
engine's own and are not compared, and neither is what only one of the two lets us observe.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from attrs import define, field, frozen

from preempt_oracle.adapters.protocol import HarnessError, Refused, Session
from preempt_oracle.campaign import Budget, NotDeterministic, Opened, Progress, probe
from preempt_oracle.drive import Run, actions, drive
from preempt_oracle.fuzz.search import Search
from preempt_oracle.lockstep.compare import Line, compare
from preempt_oracle.reduce import TRIES, Reduced, Weight, weight
from preempt_oracle.shortest import shortest
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_properties.scenario import Scenario

#: What is compared -> the observation that both must make of it; "": any engine shows it.
DECIDED = {
    "event": "",
    "frame": "",
    "requests": "",
    "tokens": "",
    "start": "start",
    "drafts": "",
    "victims": "demote",
    "hits": "hits",
    "resumed": "sent",
    "emitted": "emitted",
    "disposition": "",
    "kind": "",
    "request": "",
    "running": "queues",
    "waiting": "queues",
    "free": "free",
    "preemptions": "stats",
}


@frozen
class Parting:
    """Where two runs part. `lines`: every field compared there, those that differ among them."""

    event: int  # from 1
    step: int  # the frame; -1 before the first step
    what: str
    lines: tuple[Line, ...]
    before: tuple[wire.Event, ...]  # the last events that both had
    only: tuple[tuple[str, ...], tuple[str, ...]]  # rules that only the first, only the second broke in its run

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that differ."""
        return tuple(line.field for line in self.lines if line.differs)

    def like(self, other: Parting) -> bool:
        """Whether it is the same one, whatever the values: what a crash says may have an address in it."""
        return (self.event, self.step, self.fields) == (other.event, other.step, other.fields)


def part(one: Run, other: Run) -> Parting | None:
    """The first event in which two runs of one scenario part; None if they never do."""
    both = one.header.observes & other.header.observes
    step = -1
    mine, theirs = (
        [e for e in run.events if not isinstance(e, wire.CopyStart | wire.CopyDone)] for run in (one, other)
    )
    for i, (a, b) in enumerate(zip(mine, theirs, strict=False)):
        if isinstance(a, wire.Step):
            step = a.frame
        lines = tuple(x for x in compare(to_spec(a), to_spec(b)) if _compared(x, both))
        if any(x.differs for x in lines):
            rules = [{v.rule: None for v in (*run.violations, *run.advised)} for run in (one, other)]
            only = tuple(r for r in rules[0] if r not in rules[1]), tuple(r for r in rules[1] if r not in rules[0])
            return Parting(i + 1, step, type(a).__name__.lower(), lines, tuple(mine[max(0, i - 6) : i]), only)
    return None


def _compared(line: Line, both: frozenset[str]) -> bool:
    needs = DECIDED.get(line.field)
    if needs is None or (needs and needs not in both):
        return False
    return line.field == "event" or None not in (line.engine, line.predicted)


@define
class Difference:
    """What came of comparing two engines."""

    workloads: int = 0
    steps: int = 0
    seconds: float = 0.0
    outside: int = 0  # workloads that one of them refused
    interrupted: bool = False
    broken: str = ""
    parting: Parting | None = None
    reduced: Reduced | None = None
    headers: tuple[wire.Header, wire.Header] | None = field(default=None)


def difference(
    connect: tuple[Callable[[], Session], Callable[[], Session]],
    policy: str,
    seed: int,
    budget: Budget,
    progress: Progress = lambda *_: None,
    given: Scenario | None = None,
    tries: int = TRIES,
) -> Difference:
    """Search for a workload on which two engines part, and shorten it; or run the one `given`.

    Raises NoStart, HarnessError, UnknownPolicy before the first workload.
    """
    began = monotonic()
    deadline = float("inf") if budget.seconds is None else began + budget.seconds
    sessions = [make() for make in connect]
    out = Difference()
    try:
        opened: list[Opened] = [probe(s, policy) for s in sessions]
        out.headers = opened[0].started.header, opened[1].started.header
        search = Search(seed, policy, opened[0].started.capabilities & opened[1].started.capabilities)
        try:
            while (budget.workloads is None or out.workloads < budget.workloads) and monotonic() < deadline:
                scenario = given or search.scenario()
                runs = _both(sessions, scenario, policy, None if given else search)
                out.workloads += 1
                if runs is None:
                    out.outside += 1
                else:
                    out.steps += runs[0].monitor.steps
                    out.parting = part(*runs)
                if out.parting is not None and runs is not None:
                    _shorten(out, sessions, scenario, runs, policy, tries if given is None else 0)
                progress(out.workloads, monotonic() - began, int(out.parting is not None))
                if out.parting is not None or given is not None:
                    break
        except KeyboardInterrupt:
            out.interrupted = True
        except HarnessError as e:
            out.broken = str(e)
        out.seconds = monotonic() - began
        return out
    finally:
        for session in sessions:
            session.close()


def _both(sessions: list[Session], scenario: Scenario, policy: str, search: Search | None) -> tuple[Run, Run] | None:
    if search is None:
        one = drive(sessions[0], scenario, policy=policy)
    else:
        one = drive(sessions[0], scenario, policy=policy, watch=search.watch)
        if isinstance(one, Run):
            search.ran(one)
    if isinstance(one, Refused):
        return None
    other = drive(sessions[1], scenario, policy=policy)
    return None if isinstance(other, Refused) else (one, other)


def _shorten(
    out: Difference, sessions: list[Session], scenario: Scenario, runs: tuple[Run, Run], policy: str, tries: int
) -> None:
    """To the shortest scenario in which they part in the same field first."""
    assert out.parting is not None
    first, start = out.parting.fields[0], _weight(scenario, runs, out.parting)
    best, again = start, _both(sessions, scenario, policy, None)
    same = part(*again) if again is not None else None
    if same is None or not same.like(out.parting):
        raise NotDeterministic("one of the two is not deterministic: the same scenario parted them otherwise")

    def weigh(candidate: Scenario) -> Weight | None:
        nonlocal best
        try:
            tried = _both(sessions, candidate, policy, None)
        except HarnessError:
            return None
        parting = part(*tried) if tried else None
        if tried is None or parting is None or parting.fields[0] != first:
            return None
        found = _weight(candidate, tried, parting)
        if found < best:
            best, out.parting = found, parting
        return found

    out.reduced = shortest(scenario, start, weigh, tries)


def _weight(scenario: Scenario, runs: tuple[Run, Run], parting: Parting) -> Weight:
    """Actions until they part, not until either run ends."""
    kinds = (wire.Arrive, wire.Abort, wire.Control, wire.Step, wire.EngineError)
    later = sum(isinstance(e, kinds) for e in runs[0].events[parting.event :])
    return weight(scenario, actions(runs[0]) - later)
