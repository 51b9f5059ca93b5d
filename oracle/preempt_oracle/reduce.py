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

from preempt_properties.scenario import Abort, Add, Command, Config, Control, Deliver, Scenario, Step, dumps
from preempt_properties.workload import LEAST_PAGE
from preempt_spec.policies.blocks import blocks_for
from preempt_spec.policies.policy import Phase
from preempt_spec.policies.profiles import PROFILES

TRIES = 500  # runs spent on one failure


#: What is made smaller, most important first: actions, commands, tokens, features, sizes, and how plain the rest is.
Weight = tuple[int, ...]


def weight(scenario: Scenario, actions: int) -> Weight:
    """How far from simple a scenario is. `actions`: what it takes until the rule breaks (`drive.actions`)."""
    c, adds = scenario.config, [x for x in scenario.script if isinstance(x, Add)]
    features = c.chunked is False, c.caching, not c.whole_fit, c.watermark, c.long_prefill, c.groups != "full"
    sizes = c.blocks + c.page_size + c.max_running + c.budget + c.max_length + c.long_prefill + c.watermark
    plain = sum(x.priority + x.arrival + len(x.salt) + sum(x.prompt) for x in adds)
    flying = sum(isinstance(x, Abort) and x.when == "flying" for x in scenario.script)
    return (
        actions,
        sum(x.count if isinstance(x, Step) else 1 for x in scenario.script),
        sum(len(x.prompt) + x.max_tokens for x in adds),
        sum(map(bool, features)) + c.frames - 1 + c.drafts + bool(c.host_blocks) + flying,
        sizes + c.host_blocks,
        plain,
        sum(ord(letter) for x in adds for letter in x.request),
    )


@frozen
class Reduced:
    """The shortest scenario found. `minimal`: no single step of the reduction makes it any shorter."""

    scenario: Scenario
    tries: int
    minimal: bool
    actions: int = 0  # until the rule breaks: arrivals, cancellations, controls and steps; 0: not counted
    bounds: str = ""  # within which every shorter scenario was tried, and none breaks the rule; "" if they were not

    @property
    def note(self) -> str:
        """How it came to be, in words."""
        tries = f"{self.tries:,} tr{'y' if self.tries == 1 else 'ies'}"
        size = f"{self.actions} actions, " * bool(self.actions)
        if self.bounds:
            return f"{size}shortest in these bounds: {self.bounds}; {tries}"
        if self.minimal:
            return f"{size}locally minimal, {tries}"
        if not self.tries:
            return "not shortened"
        return f"{size}shortened in {tries}, then given up: it may not be minimal"


def reduce(
    scenario: Scenario,
    start: Weight,
    weigh: Callable[[Scenario], Weight | None],
    tries: int = TRIES,
    deadline: float = float("inf"),
) -> Reduced:
    """Make `scenario` lighter, for at most `tries` runs or until `deadline` (monotonic seconds).

    `start` is its weight; `weigh` runs a candidate: its weight if it fails alike, else None.
    """
    used, tried = 0, set[str]()
    while True:
        for candidate in candidates(scenario):
            if (text := dumps(candidate)) in tried:
                continue
            tried.add(text)
            if used >= tries or monotonic() > deadline:
                return Reduced(scenario, used, False, start[0])
            used += 1
            found = weigh(candidate)
            if found is not None and found < start:
                scenario, start = candidate, found
                break
        else:
            return Reduced(scenario, used, True, start[0])


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
    yield from _finer(scenario)
    yield from _sooner(scenario)
    yield from _plainer(scenario)
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


def _finer(scenario: Scenario) -> Iterator[Scenario]:
    """Smaller pages, everything in tokens cut down alike: as many pages, fewer steps from one to the next."""
    config, script = scenario.config, scenario.script
    prefill_first = PROFILES[config.policy].contract.phase is Phase.PREFILL_FIRST
    for page in range(LEAST_PAGE.get(config.policy, 1), config.page_size):

        def cut(tokens: int, page: int = page) -> int:
            return max(1, -(-tokens * page // config.page_size))

        adds = []
        for c in script:
            if isinstance(c, Add):
                prompt = cut(len(c.prompt))
                whole = max(prompt + 1, cut(len(c.prompt) + c.max_tokens))
                adds.append(evolve(c, prompt=c.prompt[:prompt], max_tokens=whole - prompt))
        longest = max((len(c.prompt) + c.max_tokens for c in adds), default=2)
        room = (config.blocks - (config.watermark if prefill_first else 0)) * page
        length = max(min(config.max_length, room), 2)
        if longest <= length <= room:
            rest = iter(adds)
            smaller = evolve(config, page_size=page, max_length=length, long_prefill=min(config.long_prefill, length))
            shorter = tuple(next(rest) if isinstance(c, Add) else c for c in script)
            if not 0 < smaller.long_prefill <= smaller.drafts:
                yield evolve(scenario, config=smaller, script=shorter)


def _sooner(scenario: Scenario) -> Iterator[Scenario]:
    """Outputs that are part of the prompt from the start need no steps."""
    script = scenario.script
    adds = [i for i, c in enumerate(script) if isinstance(c, Add)]
    for chosen in (adds, *([i] for i in adds if len(adds) > 1)):
        for n in (4, 2, 1):
            moved = list(script)
            for i in chosen:
                c = moved[i]
                if isinstance(c, Add) and c.max_tokens > n:
                    moved[i] = evolve(c, prompt=(c.prompt + c.prompt[-1:] * n), max_tokens=c.max_tokens - n)
            if tuple(moved) != script:
                yield evolve(scenario, script=tuple(moved))


def _plainer(scenario: Scenario) -> Iterator[Scenario]:
    """Prompts of small numbers, alike or in counting order; requests a, b, c; a budget that nobody notices."""
    script = scenario.script
    adds = [c for c in script if isinstance(c, Add)]
    names = dict(zip(dict.fromkeys(c.request for c in adds), "abcdefghij", strict=False))
    if len(names) == len({c.request for c in adds}):
        yield from _told(
            scenario, [evolve(c, request=names[c.request]) if isinstance(c, Add | Abort) else c for c in script]
        )
    yield from _told(scenario, [evolve(c, prompt=(0,) * len(c.prompt)) if isinstance(c, Add) else c for c in script])
    small = {t: i for i, t in enumerate(dict.fromkeys(t for c in adds for t in c.prompt))}
    yield from _told(
        scenario, [evolve(c, prompt=tuple(small[t] for t in c.prompt)) if isinstance(c, Add) else c for c in script]
    )
    budget = scenario.config.max_length + scenario.config.max_running
    if budget < scenario.config.budget:
        yield evolve(scenario, config=evolve(scenario.config, budget=budget))


def _told(scenario: Scenario, script: list[Command]) -> Iterator[Scenario]:
    if tuple(script) != scenario.script:
        yield evolve(scenario, script=tuple(script))


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
