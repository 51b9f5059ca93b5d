"""A changed monitor, fed streams of which the pure system has said before what is right: event by event, all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any

from attrs import frozen

from preempt_oracle.equality import drawn, fed, lockstep, quiet, readable, state_of
from preempt_oracle.monitor import Monitor
from preempt_properties.mutants.apply import Function, Package
from preempt_properties.mutants.children import time_left
from preempt_properties.mutants.session import NotReady
from preempt_properties.strategies import Stream, stream
from preempt_spec.micro import Malformed
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.state import initial
from preempt_spec.system import clauses, run

MONITOR_CODE = Package("preempt_oracle.monitor")
#: Streams of each profile: valid or corrupted ones of anybody, uncorrupted ones, and those of the reference as engines
#: show them.
DRAWN, VALID, QUIET = 40, 20, 10
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


@frozen(eq=False)
class Told:
    """A stream, what is right of it, and what of the monitor it calls."""

    stream: Stream
    said: tuple[Said, ...]
    calls: frozenset[Function] = frozenset()

    def differs(self) -> str:
        """Where the monitor, as it is now, says otherwise; "" if nowhere."""
        monitor = Monitor(self.stream.header, self.stream.policy)
        for n, (event, said) in enumerate(zip(self.stream.events, self.said, strict=False)):
            before = Counter(monitor.exercised)
            malformed, broken = fed(monitor, event)
            if malformed != said.malformed or tuple(sorted(map(str, broken or ()))) != said.broken:
                return f"another judgement of event {n} of {self.who}"
            if malformed:
                return ""
            if monitor.exercised - before != said.exercised:
                return f"other exercise counts in event {n} of {self.who}"
            if said.state is not None and state_of(monitor.shadow) != said.state:
                return f"another state behind event {n} of {self.who}"
        return ""

    @property
    def who(self) -> str:
        """In words."""
        return f"a stream of {self.stream.scheduler}"


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


def streams() -> ByStreams:
    """Streams, and what each calls. Raises NotReady if the monitor differs as it is."""
    found = []
    with MONITOR_CODE.recorded() as called:
        for policy in PROFILES:
            for one in drawn_from(policy):
                right = told(one)
                called.clear()
                if where := right.differs():
                    raise NotReady(f"the monitor differs as it is: {where}")
                found.append(Told(one, right.said, frozenset(called)))
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
