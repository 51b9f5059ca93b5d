"""A changed monitor, fed streams of which the pure system has said before what is right: event by event, all of it.

And event by event as much is judged clause by clause as before: a short cut taken less often costs speed that nobody
would see, and one taken more often was proved for less than it is used for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any

from attrs import evolve, frozen

from preempt_oracle.equality import crowds, drawn, fed, lockstep, pure_slots, quiet, readable, slots_of, state_of
from preempt_oracle.monitor import Monitor, cohort, mixed, monitor
from preempt_properties.mutants.apply import Function, Package
from preempt_properties.mutants.children import time_left
from preempt_properties.mutants.session import NotReady
from preempt_properties.strategies import Stream, stream
from preempt_spec.micro import Malformed
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.state import initial
from preempt_spec.system import clauses, judge, run

MONITOR_CODE = Package("preempt_oracle.monitor")
#: Streams of each profile: valid or corrupted ones of anybody, uncorrupted ones, those of the reference as engines show
#: them, crowds, and corrupted copies of each crowd.
DRAWN, VALID, QUIET, CROWDS, LIES = 200, 60, 30, 2, 3
#: Of each kind, those in which a changed rule is looked for: both sides are to be computed then.
BOTH = 2
#: Processor seconds for one stream.
STREAM_FOR = 20.0


@frozen
class Said:
    """What the pure system says of one event."""

    malformed: str
    broken: tuple[str, ...]
    exercised: Counter[str]
    state: Mapping[str, Any] | None  # after it, if it goes on
    slots: Mapping[str, Any] | None = None  # behind the last event: what every slot then holds


@frozen(eq=False)
class Told:
    """A stream, what is right of it, and what of the monitor it calls."""

    stream: Stream
    said: tuple[Said, ...]
    calls: frozenset[Function] = frozenset()
    judged: tuple[int, ...] = ()  # micro-events that went through the clauses, so far, behind each event

    def noted(self) -> Told:
        """With what the monitor, as it is now, judges clause by clause. Raises NotReady if it says otherwise."""
        judged: list[int] = []
        if where := self.differs(judged):
            raise NotReady(f"the monitor differs as it is: {where}")
        return evolve(self, judged=tuple(judged))

    def differs(self, note: list[int] | None = None) -> str:
        """Where the monitor, as it is now, says or does otherwise; "" if nowhere. `note`: take down what is judged."""
        watching = Monitor(self.stream.header, self.stream.policy)
        with judging() as times:
            for n, (event, said) in enumerate(zip(self.stream.events, self.said, strict=False)):
                before = Counter(watching.exercised)
                malformed, broken = fed(watching, event)
                if malformed != said.malformed or tuple(sorted(map(str, broken or ()))) != said.broken:
                    return f"another judgement of event {n} of {self.who}"
                if malformed:
                    return ""
                if watching.exercised - before != said.exercised:
                    return f"other exercise counts in event {n} of {self.who}"
                if said.state is not None and state_of(watching.shadow) != said.state:
                    return f"another state behind event {n} of {self.who}"
                if said.slots is not None and not _same(said.slots, watching):
                    return f"other slots behind event {n} of {self.who}"
                if note is not None:
                    note.append(times[0])
                elif self.judged and times[0] != self.judged[n]:
                    less = "less" if times[0] < self.judged[n] else "more"
                    return f"{less} is judged clause by clause in event {n} of {self.who}"
        return ""

    @property
    def who(self) -> str:
        """In words."""
        return f"a stream of {self.stream.scheduler}"


def _same(slots: Mapping[str, Any], judge: Monitor) -> bool:
    return not judge.shadow.tracks or all(slots[where] == ours for where, ours in slots_of(judge).items())


@contextmanager
def judging() -> Iterator[list[int]]:
    """How many micro-events the monitor puts to their clauses, meanwhile."""
    times, kept = [0], judge

    def counting(*args: Any) -> Any:
        times[0] += 1
        return kept(*args)

    modules: tuple[Any, ...] = (cohort, mixed, monitor)
    for module in modules:
        module.judge = counting
    try:
        yield times
    finally:
        for module in modules:
            module.judge = kept


def told(one: Stream) -> Told:
    """The pure system's word."""
    state, active, out = initial(one.header, one.policy), clauses(one.header.observes), []
    for event in one.events:
        try:
            outcome = run(state, event, active)
        except Malformed as e:
            out.append(Said(str(e), (), Counter(), None))
            break
        broken = tuple(sorted(map(str, outcome.violations)))
        out.append(Said("", broken, Counter(outcome.exercised), None if broken else state_of(outcome.state)))
        if broken:
            break
        state = outcome.state
    if out and out[-1].state is not None:
        out[-1] = evolve(out[-1], slots=pure_slots(state))
    return Told(one, tuple(out))


@frozen(eq=False)
class ByStreams:
    """All of them."""

    streams: tuple[Told, ...]

    def killed(self, function: Function) -> str:
        """Where the changed monitor says otherwise; "" if nowhere. Streams that call little else come first."""
        for one in sorted((t for t in self.streams if function in t.calls), key=lambda t: len(t.calls)):
            time_left(STREAM_FOR)
            try:
                if where := one.differs():
                    return where
            except Exception as e:  # whatever a change raises, a test would have noticed
                return f"{type(e).__name__} in {one.who}"
        return ""


def drawn_from(policy: str, each: int | None = None) -> Iterator[Stream]:
    """The streams of a profile; `each`: no more of any kind."""
    yield from drawn(policy, range(each or DRAWN))
    yield from (stream(Random(seed), policy, readable, False) for seed in range(1_000, 1_000 + (each or VALID)))
    yield from quiet(policy, range(each or QUIET))
    if each is None:
        yield from crowds(policy, range(CROWDS), LIES)


def streams() -> ByStreams:
    """Streams, and what each calls. Raises NotReady if the monitor differs as it is."""
    found = []
    with MONITOR_CODE.recorded() as called:
        for policy in PROFILES:
            for one in drawn_from(policy):
                right = told(one)
                called.clear()
                right = right.noted()
                found.append(evolve(right, calls=frozenset(called)))
    return ByStreams(tuple(found))


def few() -> list[Stream]:
    """Those in which a changed rule is looked for."""
    return [one for policy in PROFILES for one in drawn_from(policy, BOTH)]


def both_sides(some: Iterable[Stream]) -> str:
    """Where a changed rule and the monitor's short cuts part; "" if nowhere."""
    for one in some:
        time_left(STREAM_FOR)
        try:
            lockstep(one)
        except AssertionError:
            return f"the monitor's short cuts say otherwise of a stream of {one.scheduler}"
        except Exception as e:
            return f"{type(e).__name__} in a stream of {one.scheduler}"
    return ""
