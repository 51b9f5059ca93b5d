"""Drive a scheduler through a scenario, and judge every event as it comes.

The harness plays the rest of the engine: it queues and cancels requests, runs frames, and makes up the tokens, by a
deterministic function of the seed, the salt and everything the request has said so far. Equal contexts get equal
tokens, so that prefixes are shared beyond the prompt; a different context gets a different token. What is sampled for
nobody (the request was reset, or is over) is no token that anybody gets when the position is computed anew.

Several frames may fly: a step is a decision, and behind it the oldest frames come back until one more may leave.
Which drafts are accepted is made up, too, but never of those that an engine pads an admission with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol
from zlib import crc32

from attrs import field, frozen, mutable

from preempt_oracle.adapters.protocol import HarnessError, Refused, Session, Started
from preempt_oracle.known import Scene, Scenery
from preempt_oracle.monitor import Monitor
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_oracle.verdict import UnknownPolicy, policy_for
from preempt_properties.scenario import Abort, Add, Config, Control, Deliver, Scenario, ScenarioError, Step
from preempt_spec import SPEC_VERSION
from preempt_spec import events as ev
from preempt_spec.micro import Malformed
from preempt_spec.policies.policy import Policy
from preempt_spec.policies.profiles import Deviation
from preempt_spec.policies.progress import patience
from preempt_spec.rules import Violation
from preempt_spec.view import Due, Fate, View

VOCABULARY = 1000  # outputs are 1 … 1000: small enough to repeat, never an end-of-sequence id
_MASK = (1 << 64) - 1
#: Settings that go beyond one frame at a time: the capabilities of which each needs one, and the value that asks for
#: nothing.
_BEYOND: Mapping[str, tuple[tuple[str, ...], object]] = {
    "frames": (("frames",), 1),
    "drafts": (("drafts",), 0),
    "host_blocks": (("host", "offload"), 0),
    "groups": (("groups",), "full"),
    "lookahead": (("lookahead",), 0),
    "threshold": (("threshold",), 0),
}


class Judge(Protocol):
    """What the harness asks of a monitor while it drives."""

    @property
    def shadow(self) -> View:
        """The shadow state: what the harness knows of the scheduler. To be asked for anew after each event."""


@frozen
class Run:
    """What came of one scenario."""

    header: wire.Header
    policy: Policy
    deviations: tuple[Deviation, ...]
    events: tuple[wire.Event, ...]
    violations: tuple[Violation, ...]
    monitor: Monitor
    scene: Scene
    advised: tuple[Violation, ...] = ()  # the first of each advisory rule that broke; the run went on
    early: int = 0  # frames that a command of the script brought back


def drive(
    session: Session,
    scenario: Scenario,
    seed: int = 0,
    policy: str | None = None,
    spec: str = SPEC_VERSION,
    judge: Callable[[ev.Header, Policy, str], Monitor] = Monitor,
    watch: Callable[[View, wire.Step], None] = lambda *_: None,
) -> Run | Refused:
    """Run a scenario to its end, or to the first violation. `spec`: the version of the specification to judge by.

    `watch` is shown the shadow state behind each step that broke nothing.

    Refused: the engine does not take this configuration or one of these requests or commands, so that they are outside
    its contract. Raises HarnessError; ScenarioError for a script that adds a request which is still alive.
    """
    started = session.start(scenario.config, seed)
    if isinstance(started, Refused):
        return started
    if isinstance(started, wire.EngineError):
        raise HarnessError(f"{session.transport.name} could not start: {started.kind}: {started.message}")
    if lacks := _lacks(scenario.config, started):
        session.stop()
        return Refused(lacks)
    try:
        chosen, deviations = policy_for(started.header, policy)
    except UnknownPolicy as e:
        raise HarnessError(f"{session.transport.name}: policy {e}") from None
    try:
        monitor = judge(to_spec(started.header), chosen, spec)
        run = Drive(session, scenario, seed, monitor)
    except Malformed as e:
        raise HarnessError(f"{session.transport.name}: header: {e}") from None
    scenery, advised = Scenery(monitor.shadow), dict[str, Violation]()
    try:
        for event in run.events():
            run.seen.append(event)
            scenery.see(event)
            broken = monitor.feed(event)
            for violation in monitor.advised:
                advised.setdefault(violation.rule, violation)
            if broken:
                break
            if type(event) is wire.Step:
                watch(monitor.shadow, event)
    except Malformed as e:
        raise HarnessError(f"{session.transport.name}: event {len(run.seen)}: {e}") from None
    if run.refused is not None:
        session.stop()
        return run.refused
    if not run.dead:
        session.stop()
    return Run(
        started.header,
        chosen,
        deviations,
        tuple(run.seen),
        tuple(monitor.violations),
        monitor,
        scenery.scene(started.header, policy or started.header.policy),
        tuple(advised.values()),
        run.early,
    )


def actions(run: Run) -> int:
    """What it took to come to the end of a run: arrivals, cancellations, controls, steps and early deliveries.

    The deliveries that follow a step by themselves are part of it.
    """
    kinds = (wire.Arrive, wire.Abort, wire.Control, wire.Step, wire.EngineError)
    return sum(isinstance(e, kinds) for e in run.events) + run.early


def _lacks(config: Config, started: Started) -> str:
    """Why the scheduler that started is not what was asked for: it never heard of a setting, and would pass it over."""
    for name, (wanted, nothing) in _BEYOND.items():
        value = getattr(config, name)
        if value != nothing and not started.capabilities.intersection(wanted):
            return f"{name} = {value!r}: {started.header.engine} has no capability {' or '.join(map(repr, wanted))}"
    frames = started.header.limits.frames
    return "" if frames == config.frames else f"frames = {config.frames}: the engine flies {frames}"


@mutable
class Drive:
    """A scenario on its way through an engine. `judge`: whoever keeps the shadow state, told of each event first."""

    session: Session
    scenario: Scenario
    seed: int
    judge: Judge
    seen: list[wire.Event] = field(factory=list)
    said: dict[str, int] = field(factory=dict)  # request -> state of its token function
    dead: bool = False
    refused: Refused | None = None
    early: int = 0  # deliveries asked for

    def events(self) -> Iterator[wire.Event]:
        """Everything that happens, one event at a time; each is judged before the next is asked for."""
        doomed: list[str] = []  # to be aborted while the next frame flies
        for command in self.scenario.script:
            match command:
                case Add():
                    yield from self._add(command)
                case Abort(request, "before"):
                    yield from self._abort(request)
                case Abort(request):
                    doomed.append(request)
                case Control(kind):
                    yield from self._control(kind)
                case Deliver():
                    self.early += 1
                    yield from self._deliver()
                case Step(count):
                    for _ in range(count):
                        yield from self._step(doomed)
                        doomed = []
            if self._over():
                return
        if self.judge.shadow.paused:
            yield from self._control("resume")
        # One poll with nobody left shows that the engine's books are clean; a stuck engine breaks live/progress first.
        limit = 2000 + 4 * patience(self.judge.shadow.policy, self.judge.shadow.limits)
        for _ in range(limit):
            if self._over():
                return
            idle = not self.judge.shadow.live()
            yield from self._step([])
            if idle and not self.judge.shadow.frames:
                return
        left = len(self.judge.shadow.live())
        raise HarnessError(f"{self.session.transport.name}: still {left} live after {limit} steps")

    def _over(self) -> bool:
        return self.dead or self.refused is not None

    def _live(self) -> Collection[str]:
        return self.judge.shadow.live()

    def _add(self, add: Add) -> Iterator[wire.Event]:
        if add.request in self._live():
            raise ScenarioError(f"{add.request} is added while it is still alive")
        event = self.session.add(add)
        if isinstance(event, Refused):
            self.refused = Refused(f"{add.request}: {event.reason}")
            return
        if isinstance(event, wire.Reject):
            yield wire.Arrive(add.request, add.prompt, add.max_tokens, add.priority, add.arrival, add.salt)
        elif isinstance(event, wire.Arrive):
            state = _mix(self.seed, *add.salt.encode())
            self.said[add.request] = _mix(state, *event.prompt)
        yield self._last(event)

    def _abort(self, request: str) -> Iterator[wire.Event]:
        if request in self._live():
            event = self.session.abort(request)
            if not isinstance(event, Refused):  # some engines cannot abort; the request then just goes on
                yield self._last(event)

    def _control(self, kind: str) -> Iterator[wire.Event]:
        event = self.session.control(kind)
        if isinstance(event, Refused):
            self.refused = Refused(f"{kind}: {event.reason}")
            return
        yield self._last(event)

    def _step(self, doomed: list[str]) -> Iterator[wire.Event]:
        event = self.session.step()
        if isinstance(event, Refused):
            raise HarnessError(f"{self.session.transport.name} refused a step: {event.reason}")
        later = self.session.later
        yield from self.session.earlier
        yield self._last(event)
        yield from later
        for request in doomed:
            if not self.dead:
                yield from self._abort(request)
        if not isinstance(event, wire.Step):
            return
        while not self.dead and self._comes_back(event):
            yield from self._deliver()

    def _comes_back(self, step: wire.Step) -> bool:
        """Whether the oldest frame that flies is delivered behind this step: there must be room for one more.

        An empty step has nothing to wait for but what flies; unless somebody was only passed over, and goes on sooner.
        """
        frames = self.judge.shadow.frames
        if not frames:
            return False
        idle = not step.requests and not any(isinstance(act, wire.Skip) for act in step.acts)
        return idle or min(frames) <= step.frame - (self.judge.shadow.limits.frames - 1)

    def _deliver(self) -> Iterator[wire.Event]:
        """The oldest frame comes back, with what the worker sampled: for everybody, whoever is still interested."""
        if not self.judge.shadow.frames:
            return
        frame = min(self.judge.shadow.frames)
        due = {r: x for r, x in self.judge.shadow.frames[frame].items() if x.outputs}
        tokens = [self._sampled(frame, r, x) for r, x in due.items()]
        delivered = self.session.deliver(frame, [*due], tokens, self._proposed(frame, due))
        later = self.session.later
        yield from self.session.earlier
        for told in delivered:
            yield self._last(told)
        yield from later

    def _proposed(self, frame: int, due: Collection[str]) -> list[int] | None:
        """Drafts for the next grant of each, where they do not follow unasked."""
        most = self.scenario.config.drafts
        if not most or self.judge.shadow.limits.frames > 1:
            return None
        return [_pick(self.seed, "propose", frame, r) % (most + 1) for r in due]

    def _sampled(self, frame: int, request: str, x: Due) -> tuple[int, ...]:
        """The accepted drafts and the token behind them."""
        accepted = min(_pick(self.seed, "accept", frame, request) % x.outputs, self._drafted(frame, request))
        if x.fate in (Fate.LIVE, Fate.DELIVER):
            return tuple(self._token(request) for _ in range(accepted + 1))
        return tuple(VOCABULARY + 1 + (frame + i) % VOCABULARY for i in range(accepted + 1))

    def _drafted(self, frame: int, request: str) -> int:
        """How many drafts of a grant somebody proposed: what an engine pads an admission with is never accepted."""
        step = next((e for e in reversed(self.seen) if type(e) is wire.Step and e.frame == frame), None)
        if step is None or any(s.request == request and s.full for s in step.sent):
            return 0
        return next((d.tokens for d in step.drafts if d.request == request), 0)

    def _token(self, request: str) -> int:
        state = self.said[request]
        token = (state >> 33) % VOCABULARY + 1
        self.said[request] = _mix(state, token)
        return token

    def _last(self, event: wire.Event) -> wire.Event:
        if isinstance(event, wire.EngineError):
            self.dead = True
            if event.origin != "engine":
                raise HarnessError(
                    f"{self.session.transport.name}: the {event.origin} raised {event.kind} "
                    f"({event.where}): {event.message}"
                )
        return event


def _pick(seed: int, what: str, frame: int, request: str) -> int:
    """A choice of the harness, the same in every run of a scenario."""
    return crc32(f"{what}:{seed}:{frame}:{request}".encode())


def _mix(state: int, *values: int) -> int:
    """A small multiplicative hash: tokens need to be reproducible in any language, not unpredictable."""
    for v in values:
        state = ((state ^ (v & _MASK)) * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) & _MASK
        state ^= state >> 29
    return state
