"""Drive a scheduler through a scenario, and judge every event as it comes.

The harness plays the rest of the engine: it queues and cancels requests, runs frames, and makes up the tokens, by a
deterministic function of the seed, the salt and everything the request has said so far. Equal contexts get equal
tokens, so that prefixes are shared beyond the prompt; a different context gets a different token.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import field, frozen, mutable

from preempt_oracle.adapters.protocol import HarnessError, Refused, Session
from preempt_oracle.known import Scene, Scenery
from preempt_oracle.monitor import Monitor
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_oracle.verdict import UnknownPolicy, policy_for
from preempt_properties.scenario import Abort, Add, Scenario, ScenarioError, Step
from preempt_spec import SPEC_VERSION
from preempt_spec.policies.functions import patience
from preempt_spec.policies.policy import Policy
from preempt_spec.policies.profiles import Deviation
from preempt_spec.rules import Violation
from preempt_spec.system import Malformed

VOCABULARY = 1000  # outputs are 1 … 1000: small enough to repeat, never an end-of-sequence id
_MASK = (1 << 64) - 1


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


def drive(
    session: Session, scenario: Scenario, seed: int = 0, policy: str | None = None, spec: str = SPEC_VERSION
) -> Run | Refused:
    """Run a scenario to its end, or to the first violation. `spec`: the version of the specification to judge by.

    Refused: the engine does not take this configuration or one of these requests, so that they are outside its
    contract. Raises HarnessError; ScenarioError for a script that adds a request which is still alive.
    """
    started = session.start(scenario.config, seed)
    if isinstance(started, Refused):
        return started
    if isinstance(started, wire.EngineError):
        raise HarnessError(f"{session.transport.name} could not start: {started.kind}: {started.message}")
    try:
        chosen, deviations = policy_for(started.header, policy)
    except UnknownPolicy as e:
        raise HarnessError(f"{session.transport.name}: policy {e}") from None
    try:
        run = _Drive(session, scenario, seed, Monitor(to_spec(started.header), chosen, spec))
    except Malformed as e:
        raise HarnessError(f"{session.transport.name}: header: {e}") from None
    scenery, advised = Scenery(run.monitor.shadow), dict[str, Violation]()
    try:
        for event in run.events():
            run.seen.append(event)
            scenery.see(event)
            broken = run.monitor.feed(event)
            for violation in run.monitor.advised:
                advised.setdefault(violation.rule, violation)
            if broken:
                break
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
        tuple(run.monitor.violations),
        run.monitor,
        scenery.scene(started.header, policy or started.header.policy),
        tuple(advised.values()),
    )


@mutable
class _Drive:
    session: Session
    scenario: Scenario
    seed: int
    monitor: Monitor
    seen: list[wire.Event] = field(factory=list)
    said: dict[str, int] = field(factory=dict)  # request -> state of its token function
    dead: bool = False
    refused: Refused | None = None

    def events(self) -> Iterator[wire.Event]:
        """Everything that happens, one event at a time; each is judged before the next is asked for."""
        flying: list[str] = []
        for command in self.scenario.script:
            match command:
                case Add():
                    yield from self._add(command)
                case Abort(request, "before"):
                    yield from self._abort(request)
                case Abort(request):
                    flying.append(request)
                case Step(count):
                    for _ in range(count):
                        yield from self._step(flying)
                        flying = []
            if self.dead or self.refused is not None:
                return
        # One poll with nobody left shows that the engine's books are clean; a stuck engine breaks live/progress first.
        limit = 2000 + 4 * patience(self.monitor.shadow.policy, self.monitor.shadow.limits)
        for _ in range(limit):
            idle = not self.monitor.shadow.requests
            yield from self._step([])
            if idle or self.dead:
                return
        left = len(self.monitor.shadow.requests)
        raise HarnessError(f"{self.session.transport.name}: still {left} live after {limit} steps")

    def _add(self, add: Add) -> Iterator[wire.Event]:
        if add.request in self.monitor.shadow.requests:
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
        if request in self.monitor.shadow.requests:
            event = self.session.abort(request)
            if not isinstance(event, Refused):  # some engines cannot abort; the request then just goes on
                yield self._last(event)

    def _step(self, flying: list[str]) -> Iterator[wire.Event]:
        event = self.session.step()
        if isinstance(event, Refused):
            raise HarnessError(f"{self.session.transport.name} refused a step: {event.reason}")
        yield self._last(event)
        for request in flying:
            yield from self._abort(request)
        if self.dead or not isinstance(event, wire.Step) or event.frame not in self.monitor.shadow.frames:
            return
        live = self.monitor.shadow.requests
        due = [r for r, ends in self.monitor.shadow.frames[event.frame].items() if ends and r in live]
        for told in self.session.deliver(event.frame, due, [(self._token(r),) for r in due]):
            yield self._last(told)

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


def _mix(state: int, *values: int) -> int:
    """A small multiplicative hash: tokens need to be reproducible in any language, not unpredictable."""
    for v in values:
        state = ((state ^ (v & _MASK)) * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) & _MASK
        state ^= state >> 29
    return state
