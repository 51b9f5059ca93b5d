"""The shortest counterexample: what delta debugging left, set against every shorter scenario within stated bounds.

Delta debugging ends at a scenario of which nothing can be taken away. Another one, built otherwise, may still be
shorter. So scenarios of fewer actions are tried that are made of what the reduced one is made of: its configuration,
and the same with a tiny pool; requests no longer than its own; the same kinds of commands, in every order, at every
step; those of fewest actions first. If one of them breaks the rule, it is reduced in turn. If all were tried and none
does, the reduced one is shortest in these bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, product
from time import monotonic

from attrs import evolve, frozen

from preempt_oracle.reduce import TRIES, Reduced, Weight, reduce
from preempt_properties.scenario import Abort, Add, Command, Config, Control, Deliver, Scenario, Step

MOST = 400  # scenarios tried one by one, of each kind of pool; if there are more within the bounds, nothing is claimed
TINY = (2, 3, 4)  # blocks
NAMES = "abcdefgh"


def shortest(
    scenario: Scenario,
    start: Weight,
    weigh: Callable[[Scenario], Weight | None],
    tries: int = TRIES,
    deadline: float = float("inf"),
) -> Reduced:
    """Reduce, then search for a shorter one, until neither finds any. As `reduce`; the search has `MOST` runs more."""
    used = 0
    while True:
        reduced = reduce(scenario, start, weigh, tries, deadline)
        used += reduced.tries
        reduced = evolve(reduced, tries=used)
        if not reduced.minimal or tries <= 0:
            return reduced
        own, *tiny = [_alphabet(reduced, config) for config in _configs(reduced.scenario)]
        every = True
        # A tiny pool first: there are few scenarios for it, and of its own configuration there may be very many.
        for alphabets in (tiny, [own]):
            found, ran, all_ran = _search(reduced, alphabets, weigh, deadline)
            used += ran
            every = every and all_ran
            if found is not None:
                scenario, start = found
                break
        else:
            more = ", or a pool of 2 to 4 blocks" * bool(tiny)
            bounds = f"this configuration{more}, {own.words}" if every else ""
            return evolve(reduced, tries=used, bounds=bounds)


def _search(
    reduced: Reduced, alphabets: Sequence[_Alphabet], weigh: Callable[[Scenario], Weight | None], deadline: float
) -> tuple[tuple[Scenario, Weight] | None, int, bool]:
    """A scenario of fewer actions, if there is one; how many were run; whether those were all."""
    sizes = range(2, reduced.actions)
    candidates = chain.from_iterable(a.scenarios(reduced.scenario, size) for size in sizes for a in alphabets)
    ran = 0
    for ran, candidate in enumerate(candidates, 1):
        if ran > MOST or monotonic() > deadline:
            return None, ran - 1, False
        found = weigh(candidate)
        if found is not None and found[0] < reduced.actions:
            return (candidate, found), ran, False
    return None, ran, True


def _configs(scenario: Scenario) -> list[Config]:
    """Its own, and the same with a tiny pool, in which little is enough for pressure."""
    own = scenario.config
    out = [own]
    page = 2 if own.policy == "nano-vllm" else 1
    for blocks in TINY:
        room = (blocks - own.watermark) * page
        if room >= 2 and (blocks, page) != (own.blocks, own.page_size) and room <= own.max_length:
            cut = min(own.long_prefill, room)
            if not 0 < cut <= own.drafts:
                out.append(evolve(own, blocks=blocks, page_size=page, max_length=room, long_prefill=cut))
    return out


@frozen
class _Alphabet:
    """What shorter scenarios are made of."""

    config: Config
    adds: tuple[Add, ...]  # every request, nameless
    others: tuple[Command, ...]  # commands besides arrivals and steps; an abort without a name is of anybody

    def scenarios(self, model: Scenario, size: int) -> Iterator[Scenario]:
        """All that break something within `size` actions, the last of which is a step, if they break it at all."""
        for most in range(1, size):
            for kinds in product((*self.adds, *self.others), repeat=most):
                if not isinstance(kinds[0], Add) or sum(isinstance(k, Add) for k in kinds) > len(NAMES):
                    continue
                for named in _named(kinds):
                    for gaps in _gaps(most, size - 1 - most):
                        yield evolve(model, config=self.config, script=tuple(_spaced(named, gaps)))

    @property
    def words(self) -> str:
        """The bounds."""
        prompt, outputs = max(len(a.prompt) for a in self.adds), max(a.max_tokens for a in self.adds)
        told = f"requests of up to {prompt} + {outputs} tokens"
        kinds = {_kind(c): None for c in self.others}
        return told + (f", {', '.join(kinds)}" if kinds else "")


def _kind(command: Command) -> str:
    return command.kind if isinstance(command, Control) else type(command).__name__.lower()


def _alphabet(reduced: Reduced, config: Config) -> _Alphabet:
    """From what the reduced scenario has: lengths up to its longest, the priorities, salts and contents it uses."""
    script = reduced.scenario.script
    adds = [c for c in script if isinstance(c, Add)]
    prompts, outputs = max(len(a.prompt) for a in adds), max(a.max_tokens for a in adds)
    texts = list(dict.fromkeys(a.prompt for a in adds)) if config.caching else [(0,) * prompts]
    contents = dict.fromkeys(tuple((text * prompts)[:n]) for text in texts for n in range(1, prompts + 1))
    ranks = sorted({(a.priority, a.arrival, a.salt) for a in adds})
    every = tuple(
        Add("", prompt, most, priority, arrival, salt)
        for prompt, most, (priority, arrival, salt) in product(contents, range(1, outputs + 1), ranks)
        if len(prompt) + most <= config.max_length
    )
    others: dict[Command, None] = {}
    for c in script:
        if isinstance(c, Abort):
            others[Abort("", c.when)] = None
        elif isinstance(c, Control | Deliver):
            others[c] = None
    return _Alphabet(config, every, tuple(others))


def _gaps(most: int, steps: int) -> Iterator[tuple[int, ...]]:
    """Steps in front of each command: all ways to have so many before the last one.

    Nothing is gained by steps in front of the first. A run goes on behind its script: the steps behind the last command
    are not spelled out, and scenarios that differ in them alone are one.
    """
    for gaps in product(range(steps + 1), repeat=most - 1):
        if sum(gaps) == steps:
            yield (0, *gaps)


def _named(kinds: Sequence[Command]) -> Iterator[list[Command]]:
    """Requests a, b, c in order of arrival; an abort is of any that arrived before it."""
    slots: list[list[Command]] = []
    names: list[str] = []
    for kind in kinds:
        if isinstance(kind, Add):
            names.append(NAMES[len(names)])
            slots.append([evolve(kind, request=names[-1])])
        elif isinstance(kind, Abort):
            slots.append([evolve(kind, request=name) for name in names])
        else:
            slots.append([kind])
    for chosen in product(*slots):
        yield list(chosen)


def _spaced(commands: Sequence[Command], gaps: Sequence[int]) -> Iterator[Command]:
    for command, gap in zip(commands, gaps, strict=True):
        if gap:
            yield Step(gap)
        yield command
