"""A real vLLM scheduler and its prediction side by side: they hear the same, and every event is compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from attrs import define, field, frozen

from preempt_oracle.adapters.protocol import HarnessError, Refused, Session
from preempt_oracle.drive import Drive
from preempt_oracle.lockstep.compare import REQUIRED, Line, compare
from preempt_oracle.lockstep.modes import Mode, Unmodelled
from preempt_oracle.lockstep.predicted import VERSIONS, Build, Predicted
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_oracle.verdict import policy_for
from preempt_properties.scenario import Add, Scenario
from preempt_spec import events as ev
from preempt_spec.policies.policy import Policy
from preempt_spec.state import State
from preempt_spec.view import Fate

#: Decisions after which a workload is left: some never end (F2 of docs/findings.md), and agree all the way.
MOST_STEPS = 250
#: Makes the prediction of one engine.
Predict = Callable[[ev.Header, Policy, Build], Predicted]


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
    def shadow(self) -> State:
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
                before, step = p.state, p.step()
                self.granting += bool(step.requests)
                _count(n, step, before)
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


def _count(n: Counter[str], step: ev.Step, before: State) -> None:
    n["three or more frames in flight"] += bool(step.requests) and len(before.frames) > 1
    victims = [a for a in step.acts if isinstance(a, ev.Demote)]
    n["preemption"] += len(victims)
    n["several victims in a step"] += len(victims) > 1
    n["self-preemption"] += sum(a.request in a.beneficiaries for a in victims)
    for act in step.acts:
        if isinstance(act, ev.Unplan):
            r, page = before.requests.get(act.request), before.pages[0]
            n["victim already granted"] += 1
            # What was planned would have filled a page, so that it was findable for a moment (F1).
            n["unplan after fill"] += r is not None and (r.computed + act.tokens) // page > r.computed // page
    if victims:
        holders = Counter(b for r in before.requests.values() for b in r.tables[0])
        given = {a.request: a.blocks[0] for a in step.acts if isinstance(a, ev.Release) and a.blocks}
        n["victim that yields nothing"] += sum(
            bool(blocks) and all(holders[b] > 1 for b in blocks) for blocks in given.values()
        )
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
    session: Session, mode: Mode, scenario: Scenario, reached: Counter[str], seed: int = 0, predict: Predict = Predicted
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
    else:
        if pair.due:  # whoever should have finished by then did not
            found = (Line("event", None, type(pair.due[0]).__name__.lower()),)
    if not run.dead:
        ear.stop()
    differs = any(line.differs for line in found)
    return Followed(pair, run.refused.reason if run.refused else "", found if differs else (), what)


def _predicted(pair: Pair, event: wire.Event) -> tuple[Line, ...]:
    try:
        return pair.see(event)
    except (LookupError, ValueError, AssertionError) as e:
        raise HarnessError(f"the prediction failed: {type(e).__name__}: {e}") from e
