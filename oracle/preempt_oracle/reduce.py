"""Make a failing scenario short: greedily, inside the contract, as long as the same rule breaks.

Every candidate is admissible by construction: it asks no more of an engine than the scenario it came from. Requests get
shorter, the pool gets smaller only together with the longest sequence allowed, features are switched off, and a request
id is never used twice at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any

from attrs import evolve, frozen

from preempt_properties.scenario import Abort, Add, Command, Config, Control, Deliver, Scenario, Step
from preempt_spec.policies.functions import blocks_for
from preempt_spec.policies.policy import Phase
from preempt_spec.policies.profiles import PROFILES

TRIES = 300  # runs spent on one failure


@frozen
class Reduced:
    """The shortest scenario found. `minimal`: no single step of the reduction makes it any shorter."""

    scenario: Scenario
    tries: int
    minimal: bool

    @property
    def note(self) -> str:
        """How it came to be, in words."""
        if self.minimal:
            return f"locally minimal, {self.tries} tries"
        if not self.tries:
            return "not shortened"
        return f"shortened in {self.tries} tries, then given up: it may not be minimal"


def reduce(
    scenario: Scenario, breaks: Callable[[Scenario], bool], tries: int = TRIES, deadline: float = float("inf")
) -> Reduced:
    """Shorten `scenario` while `breaks` holds, for at most `tries` runs or until `deadline` (monotonic seconds)."""
    used = 0
    while True:
        for candidate in candidates(scenario):
            if used >= tries or monotonic() > deadline:
                return Reduced(scenario, used, False)
            used += 1
            if breaks(candidate):
                scenario = candidate
                break
        else:
            return Reduced(scenario, used, True)


def candidates(scenario: Scenario) -> Iterator[Scenario]:
    """Shorter scenarios, the boldest first."""
    script = scenario.script
    size = len(script) // 2
    while size:
        for at in range(len(script) - size, -1, -size):
            yield from _if_valid(scenario, (*script[:at], *script[at + size :]))
        size //= 2
    for request in {c.request: None for c in script if isinstance(c, Add)}:
        yield from _if_valid(scenario, [c for c in script if getattr(c, "request", None) != request])
    for i, command in enumerate(script):
        for shorter in _shorter(command):
            yield from _if_valid(scenario, (*script[:i], shorter, *script[i + 1 :]))
    for smaller in (*(evolve(scenario, config=c) for c in _smaller(scenario.config, script)), *_thinner(scenario)):
        # vLLM pads an admission to one token and all drafts: a threshold that cuts that is another failure.
        if not 0 < smaller.config.long_prefill <= smaller.config.drafts:
            yield smaller
    for plain in ({"arrival": 0}, {"priority": 0}, {"salt": ""}):
        level = tuple(evolve(c, **plain) if isinstance(c, Add) else c for c in script)
        if level != script:
            yield evolve(scenario, script=level)


def _if_valid(scenario: Scenario, script: Sequence[Command]) -> Iterator[Scenario]:
    """The script, less commands that lost their meaning; nothing if an id is used twice at a time or nobody is left."""
    alive: set[str] = set()
    leaving: set[str] = set()
    kept: list[Command] = []
    for c in script:
        if isinstance(c, Add):
            if c.request in alive:
                return
            alive.add(c.request)
        elif isinstance(c, Step):
            alive -= leaving
            leaving.clear()
            if kept and isinstance(kept[-1], Step):
                kept[-1] = Step(kept[-1].count + c.count)
                continue
        elif isinstance(c, Control | Deliver):
            pass
        elif c.request not in alive:
            continue
        elif c.when == "before":
            alive.discard(c.request)
        else:
            leaving.add(c.request)
        kept.append(c)
    if any(isinstance(c, Add) for c in kept):
        yield evolve(scenario, script=tuple(kept))


def _thinner(scenario: Scenario) -> Iterator[Scenario]:
    """A block less, and a page of tokens less for one request or for all: the pressure stays what it was."""
    script, config = scenario.script, scenario.config
    page, adds = config.page_size, [i for i, c in enumerate(script) if isinstance(c, Add)]

    def thin(command: Command, which: str) -> Command:
        if not isinstance(command, Add):
            return command
        if which == "prompt" and len(command.prompt) > page:
            return evolve(command, prompt=command.prompt[:-page])
        if which == "outputs" and command.max_tokens > page:
            return evolve(command, max_tokens=command.max_tokens - page)
        return command

    for which in ("prompt", "outputs"):
        for chosen in (adds, *([i] for i in adds if len(adds) > 1)):
            thinner = tuple(thin(c, which) if i in chosen else c for i, c in enumerate(script))
            longest = max((len(c.prompt) + c.max_tokens for c in thinner if isinstance(c, Add)), default=0)
            length = config.max_length - page
            if thinner != script and config.blocks > 1 and longest <= length and length >= 2:
                smaller = evolve(
                    config, blocks=config.blocks - 1, max_length=length, long_prefill=min(config.long_prefill, length)
                )
                yield evolve(scenario, script=thinner, config=smaller)


def _shorter(command: Command) -> Iterator[Command]:
    match command:
        case Step(count):
            for n in dict.fromkeys((count // 2, count - 1)):
                if 0 < n < count:
                    yield Step(n)
        case Add():
            for n in dict.fromkeys((len(command.prompt) // 2, len(command.prompt) - 1)):
                if 0 < n < len(command.prompt):
                    yield evolve(command, prompt=command.prompt[:n])
            for n in dict.fromkeys((command.max_tokens // 2, command.max_tokens - 1)):
                if 0 < n < command.max_tokens:
                    yield evolve(command, max_tokens=n)
        case Abort(request, "flying"):
            yield Abort(request)


def _smaller(config: Config, script: Sequence[Command]) -> Iterator[Config]:
    longest = max((len(c.prompt) + c.max_tokens for c in script if isinstance(c, Add)), default=2)
    prefill_first = PROFILES[config.policy].contract.phase is Phase.PREFILL_FIRST
    plain: dict[str, Any] = {"frames": 1, "drafts": 0, "host_blocks": 0, "groups": "full"}
    plain |= {"watermark": 0, "long_prefill": 0, "caching": False, "whole_fit": True}
    if not prefill_first:
        plain["chunked"] = True
    for name, value in plain.items():
        if getattr(config, name) != value:
            yield evolve(config, **{name: value})
    for name, least in (("frames", 1), ("drafts", 0), ("host_blocks", 0)):
        if getattr(config, name) > least + 1:
            yield evolve(config, **{name: getattr(config, name) - 1})
    if longest <= config.max_length:  # a request that is to be refused stays one
        # Such engines hold the watermark back from a lone request too.
        least = blocks_for(longest, config.page_size) + (config.watermark if prefill_first else 0)
        for blocks in dict.fromkeys((least, config.blocks - 1)):
            if least <= blocks < config.blocks:
                room = blocks * config.page_size - (config.watermark * config.page_size if prefill_first else 0)
                fits = max(min(config.max_length, room), 2)
                yield evolve(config, blocks=blocks, max_length=fits, long_prefill=min(config.long_prefill, fits))
        if max(longest, 2, config.long_prefill) < config.max_length:
            yield evolve(config, max_length=max(longest, 2, config.long_prefill))
    adds = sum(isinstance(c, Add) for c in script)
    if adds < config.max_running:  # a tighter limit would be no simplification
        yield evolve(config, max_running=adds)
