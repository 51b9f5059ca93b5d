"""A changed monitor, fed streams of which the pure system has said before what is right: event by event, all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from preempt_oracle.equality import drawn, fed, lockstep, quiet, state_of
from preempt_oracle.monitor import Monitor
from preempt_properties.mutants.apply import Function, Package
from preempt_properties.mutants.children import time_left
from preempt_properties.mutants.session import NotReady
from preempt_properties.strategies import Stream
from preempt_spec.micro import Malformed
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.state import initial
from preempt_spec.system import clauses, run

MONITOR_CODE = Package("preempt_oracle.monitor")
#: Streams of each profile: valid or corrupted ones of anybody, and those of the reference as engines show them.
DRAWN, QUIET = 40, 10
#: Of each, those in which a changed rule is looked for: both sides are to be computed then.
BOTH = 3
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


def told(stream: Stream) -> Told:
    """The pure system's word."""
    state, active, out = initial(stream.header, stream.policy), clauses(stream.header.observes), []
    for event in stream.events:
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
    return Told(stream, tuple(out))


@frozen(eq=False)
class ByStreams:
    """All of them."""

    streams: tuple[Told, ...]

    def some(self) -> list[Stream]:
        """A few of each kind and profile."""
        kinds = dict.fromkeys(t.stream.header.policy for t in self.streams)
        few = []
        for kind in kinds:
            mine = [t.stream for t in self.streams if t.stream.header.policy == kind]
            few += [*mine[:BOTH], *mine[DRAWN : DRAWN + BOTH]]
        return few

    def killed(self, function: Function) -> str:
        """Where the changed monitor says otherwise; "" if nowhere. Streams that call little else come first."""
        for stream in sorted((t for t in self.streams if function in t.calls), key=lambda t: len(t.calls)):
            time_left(STREAM_FOR)
            try:
                if where := stream.differs():
                    return where
            except Exception as e:  # whatever a change raises, a test would have noticed
                return f"{type(e).__name__} in {stream.who}"
        return ""


def streams() -> ByStreams:
    """Streams, and what each calls. Raises NotReady if the monitor differs as it is."""
    found = []
    with MONITOR_CODE.recorded() as called:
        for policy in PROFILES:
            for one in (*drawn(policy, range(DRAWN)), *quiet(policy, range(QUIET))):
                right = told(one)
                called.clear()
                if where := right.differs():
                    raise NotReady(f"the monitor differs as it is: {where}")
                found.append(Told(one, right.said, frozenset(called)))
    return ByStreams(tuple(found))


def both_sides(some: Iterable[Stream]) -> str:
    """Where a changed rule and the monitor's short cuts part; "" if nowhere."""
    for stream in some:
        time_left(STREAM_FOR)
        try:
            lockstep(stream)
        except AssertionError:
            return f"the monitor's short cuts say otherwise of a stream of {stream.scheduler}"
        except Exception as e:
            return f"{type(e).__name__} in a stream of {stream.scheduler}"
    return ""
