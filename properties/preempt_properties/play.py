"""A scenario played against the reference scheduler or one of its known-bad relatives: the events it shows.

The world keeps no books but one: how many tokens each request has. It alone decides who sampled (a pass that reached
the last known token) and what (`token`), so that a scheduler cannot talk itself out of a fault.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from zlib import crc32

from attrs import define

from preempt_properties.scenario import Abort, Add, Config, Control, Deliver, Scenario, Step
from preempt_spec import events as ev
from preempt_spec.offload import Offloading
from preempt_spec.policies.blocks import blocks_for
from preempt_spec.policies.policy import Stale
from preempt_spec.policies.progress import patience
from preempt_spec.reference import OBSERVES, Reference
from preempt_spec.view import Fate


def token(request: str, position: int) -> int:
    """The token sampled at a position: a few values only, so that outputs repeat what other requests hold."""
    return crc32(f"{request}:{position}".encode()) % 5


def header(
    config: Config,
    *,
    pages: Sequence[int] = (),
    reserved: int = 0,
    observes: frozenset[str] = OBSERVES,
) -> ev.Header:
    """The header of a trace of this configuration.

    `pages`: tokens per block of further full groups, each with a pool that holds as many tokens as the first.
    `reserved`: blocks on top of the usable ones (vLLM's null block).
    """
    page, blocks = config.page_size, config.blocks
    # A sliding group has as many blocks as the first; a recurrent one holds one state per running request.
    kinds = {"full": (page, blocks), "sliding": (page, blocks), "recurrent": (1, config.max_running)}
    sizes = [(kind, *kinds[kind]) for kind in config.groups.split("+")]
    sizes += [("full", p, blocks_for(blocks * page, p)) for p in pages]
    return ev.Header(
        "reference",
        "",
        config.policy,
        ev.Limits(
            config.max_running,
            config.budget,
            config.max_length,
            config.long_prefill,
            config.chunked,
            config.caching,
            config.whole_fit,
            config.watermark,
            config.frames,
            config.drafts if config.frames > 1 else 0,
            config.lookahead,
            config.threshold,
        ),
        tuple(
            ev.Group(f"group {g}", kind, p, 2 * p if kind == "sliding" else 0) for g, (kind, p, _) in enumerate(sizes)
        ),
        (
            *(ev.Pool(ev.DEVICE, g, total + reserved, reserved) for g, (_, _, total) in enumerate(sizes)),
            *(ev.Pool(ev.HOST, g, config.host_blocks) for g in range(len(sizes)) if config.host_blocks),
        ),
        observes,
    )


def play(scenario: Scenario, engine: Reference) -> Iterator[ev.Event]:
    """Every event, in order: the script, then steps until nobody is left or nothing moves for longer than allowed.

    What the scheduler raises becomes an `engine_error`, and ends the play.
    """
    world = _World(engine, scenario.config)
    try:
        for command in scenario.script:
            match command:
                case Add():
                    yield from world.add(command)
                case Abort(when="flying"):
                    world.doomed.append(command.request)
                case Abort():
                    yield from world.abort(command.request)
                case Control():
                    yield from world.control(command.kind)
                case Deliver():
                    yield from world.deliver()
                case Step():
                    for _ in range(command.count):
                        yield from world.step()
        if engine.state.paused:
            yield from world.control("resume")
        still, enough = 0, patience(engine.policy, engine.header.limits) + 3
        while world.known and still <= enough:
            before = sum(world.known.values()), len(world.known)
            yield from world.step()
            still = 0 if (sum(world.known.values()), len(world.known)) != before else still + 1
        while world.flying:
            yield from world.deliver()
    except Exception as e:
        last = traceback.extract_tb(e.__traceback__)[-1]
        yield ev.EngineError("engine", type(e).__name__, str(e), f"{last.name}")


@define
class _Sample:
    """What a flying frame samples for a request: at most so many tokens, 0 in mid-prefill; what becomes of them."""

    most: int
    fate: Fate = Fate.LIVE


class _World:
    """Arrivals, cancellations, frames and what they sample.

    A frame samples for each request whose grant reached the end of what is known and of what frames that still fly are
    sure to bring. Preemptions make what flies stale, by the policy's word and not by the scheduler's.
    """

    def __init__(self, engine: Reference, config: Config) -> None:
        self.engine, self.config = engine, config
        self.known: dict[str, int] = {}  # live requests: tokens, prompt and outputs
        self.doomed: list[str] = []  # to be aborted while the next frame flies
        self.flying: dict[int, dict[str, _Sample]] = {}
        self.copying: dict[int, tuple[int, bool]] = {}  # copies: done behind which frame, and how

    def add(self, add: Add) -> Iterator[ev.Event]:
        """A request arrives; the scheduler may refuse it."""
        if add.request in self.known:
            return
        self.known[add.request] = len(add.prompt)
        arrive = ev.Arrive(add.request, add.prompt, add.max_tokens, add.priority, add.arrival, add.salt)
        for event in self.engine.arrive(arrive):
            if isinstance(event, ev.Reject):
                self._over(event.request)
            yield event

    def abort(self, request: str) -> Iterator[ev.Event]:
        """A user cancels; nothing happens if the request is over by then."""
        if request in self.known:
            self._over(request)
            yield self.engine.abort(request)

    def control(self, kind: str) -> Iterator[ev.Event]:
        """The operator acts."""
        event = self.engine.control(kind)
        self._preempted(event.acts)
        yield event

    def step(self) -> Iterator[ev.Event]:
        """A decision, whatever happens while its frame flies, and the delivery of the frames that are due."""
        step = self.engine.step()
        yield step
        yield from self.copies()
        self._preempted(step.acts)
        if step.requests:
            self.flying[step.frame] = self._sampled(step)
        for request in self.doomed:
            yield from self.abort(request)
        self.doomed.clear()
        # An empty step has nothing to wait for but what flies.
        while len(self.flying) >= self.config.frames or (self.flying and not step.requests):
            yield from self.deliver()

    def deliver(self) -> Iterator[ev.Event]:
        """The oldest frame comes back."""
        if not self.flying:
            return
        frame = min(self.flying)
        samples = {r: x for r, x in self.flying.pop(frame).items() if x.most}
        tokens = tuple(self._tokens(frame, r, x) for r, x in samples.items())
        for (r, x), new in zip(samples.items(), tokens, strict=True):
            if x.fate in (Fate.LIVE, Fate.DELIVER):
                self.known[r] += len(new)
        drafts = self.config.drafts
        proposed = tuple(crc32(f"{r}:{frame}".encode()) % (drafts + 1) for r in samples)
        told = ev.Deliver(
            frame,
            tuple(samples),
            tokens,
            tuple(len(new) - 1 for new in tokens) if drafts else None,
            proposed=proposed if drafts and self.config.frames == 1 else None,
        )
        for event in self.engine.deliver(told):
            if isinstance(event, ev.Finish):
                self._over(event.request)
            yield event

    def copies(self) -> Iterator[ev.Event]:
        """Copies that were started take a step or more, end in any order, and fail now and then."""
        if not isinstance(self.engine, Offloading):
            return
        for copy, ok in [(c, ok) for c, (at, ok) in self.copying.items() if at <= self.engine.state.last_frame]:
            del self.copying[copy]
            yield self.engine.copy_done(copy, ok)
        for event in self.engine.copies():
            yield event
            if isinstance(event, ev.CopyStart):
                takes = crc32(f"copy {event.copy}".encode()) % 12
                self.copying[event.copy] = (self.engine.state.last_frame + takes % 4, takes != 11)

    def _sampled(self, step: ev.Step) -> dict[str, _Sample]:
        drafts = {d.request: d.tokens for d in step.drafts}
        out = {}
        for r, start, tokens in zip(step.requests, step.start or (), step.tokens, strict=True):
            live = (f[r].most for f in self.flying.values() if r in f and f[r].fate is Fate.LIVE)
            # One that samples nothing is kept as well: what a reset made of it decides what comes of later ones.
            sampling = start + tokens - drafts.get(r, 0) == self.known.get(r, 0) + sum(live)
            out[r] = _Sample(1 + drafts.get(r, 0) if sampling else 0)
        return out

    def _tokens(self, frame: int, request: str, x: _Sample) -> tuple[int, ...]:
        """Accepted drafts and the token behind them; what is dropped is sampled otherwise when it is computed anew."""
        accepted = crc32(f"{frame}:{request}".encode()) % x.most
        if x.fate in (Fate.LIVE, Fate.DELIVER):
            return tuple(token(request, self.known[request] + i) for i in range(accepted + 1))
        return tuple(10 + frame + i for i in range(accepted + 1))

    def _over(self, request: str) -> None:
        del self.known[request]
        self._settle(request, Fate.GONE)

    def _preempted(self, acts: tuple[ev.Act, ...]) -> None:
        for act in acts:
            if isinstance(act, ev.Demote):
                stale = any(f[act.request].fate is Fate.DROP for f in self.flying.values() if act.request in f)
                dropped = stale or act.cause == "reset" or self.engine.policy.stale is Stale.DROP
                self._settle(act.request, Fate.DROP if dropped else Fate.DELIVER)

    def _settle(self, request: str, fate: Fate) -> None:
        for frame in self.flying.values():
            if request in frame and frame[request].fate is not Fate.GONE:
                frame[request].fate = fate
