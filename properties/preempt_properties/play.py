"""A scenario played against the reference scheduler or one of its known-bad relatives: the events it shows.

The world keeps no books but one: how many tokens each request has. It alone decides who sampled (a pass that reached
the last known token) and what (`token`), so that a scheduler cannot talk itself out of a fault.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from zlib import crc32

from preempt_properties.scenario import Abort, Add, Config, Scenario, Step
from preempt_spec import events as ev
from preempt_spec.policies.functions import blocks_for, patience
from preempt_spec.reference import OBSERVES, Reference


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

    `pages`: tokens per block of further KV-cache groups, each with a pool that holds as many tokens as the first.
    `reserved`: blocks on top of the usable ones (vLLM's null block).
    """
    room = config.blocks * config.page_size
    sizes = (config.page_size, *pages)
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
        ),
        tuple(ev.Group(f"group {g}", "full", page) for g, page in enumerate(sizes)),
        tuple(ev.Pool(ev.DEVICE, g, blocks_for(room, page) + reserved, reserved) for g, page in enumerate(sizes)),
        observes,
    )


def play(scenario: Scenario, engine: Reference) -> Iterator[ev.Event]:
    """Every event, in order: the script, then steps until nobody is left or nothing moves for longer than allowed.

    What the scheduler raises becomes an `engine_error`, and ends the play.
    """
    world = _World(engine)
    try:
        for command in scenario.script:
            match command:
                case Add():
                    yield from world.add(command)
                case Abort(when="flying"):
                    world.flying.append(command.request)
                case Abort():
                    yield from world.abort(command.request)
                case Step():
                    for _ in range(command.count):
                        yield from world.step()
        still, enough = 0, patience(engine.policy, engine.header.limits) + 3
        while world.known and still <= enough:
            before = sum(world.known.values()), len(world.known)
            yield from world.step()
            still = 0 if (sum(world.known.values()), len(world.known)) != before else still + 1
    except Exception as e:
        last = traceback.extract_tb(e.__traceback__)[-1]
        yield ev.EngineError("engine", type(e).__name__, str(e), f"{last.name}")


class _World:
    """Arrivals, cancellations, sampling."""

    def __init__(self, engine: Reference) -> None:
        self.engine = engine
        self.known: dict[str, int] = {}  # live requests: tokens, prompt and outputs
        self.flying: list[str] = []  # to be aborted while the next frame flies

    def add(self, add: Add) -> Iterator[ev.Event]:
        """A request arrives; the scheduler may refuse it."""
        if add.request in self.known:
            return
        self.known[add.request] = len(add.prompt)
        arrive = ev.Arrive(add.request, add.prompt, add.max_tokens, add.priority, add.arrival, add.salt)
        for event in self.engine.arrive(arrive):
            if isinstance(event, ev.Reject):
                del self.known[event.request]
            yield event

    def abort(self, request: str) -> Iterator[ev.Event]:
        """A user cancels; nothing happens if the request is over by then."""
        if self.known.pop(request, None) is not None:
            yield self.engine.abort(request)

    def step(self) -> Iterator[ev.Event]:
        """A decision, whatever happens while its frame flies, and its delivery."""
        step = self.engine.step()
        yield step
        for request in self.flying:
            yield from self.abort(request)
        self.flying.clear()
        if not step.requests:
            return
        start = step.start or ()
        ends = {r: at + n for r, at, n in zip(step.requests, start, step.tokens, strict=True)}
        due = tuple(r for r, end in ends.items() if self.known.get(r) == end)
        sampled = tuple((token(r, self.known[r]),) for r in due)
        for r in due:
            self.known[r] += 1
        for event in self.engine.deliver(ev.Deliver(step.frame, due, sampled)):
            if isinstance(event, ev.Finish):
                self.known.pop(event.request, None)
            yield event
