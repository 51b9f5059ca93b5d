"""The shortest counterexample: what delta debugging left, set against every shorter scenario within stated bounds.

Delta debugging ends at a scenario of which nothing can be taken away. Another one, built otherwise, may still be
shorter. So all scenarios of fewer actions are tried that are made of what the reduced one is made of: its
configuration, requests no longer than its own, the same kinds of commands, in every order, at every step. If one of
them breaks the rule, it is reduced in turn; if none does, the reduced one is shortest in these bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from time import monotonic

from attrs import evolve, frozen

from preempt_oracle.reduce import TRIES, Reduced, Weight, reduce
from preempt_properties.scenario import Abort, Add, Command, Control, Deliver, Scenario, Step

MOST = 600  # scenarios tried one by one; if there are more within the bounds, none is
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
        alphabet = _alphabet(reduced)
        if alphabet.size > MOST:
            return reduced
        for candidate in alphabet.scenarios(reduced.scenario):
            if monotonic() > deadline:
                return reduced
            used += 1
            found = weigh(candidate)
            if found is not None and found[0] < reduced.actions:
                scenario, start = candidate, found
                break
        else:
            return evolve(reduced, tries=used, bounds=alphabet.words)


@frozen
class _Alphabet:
    """What shorter scenarios are made of. `actions`: that of the scenario to be undercut."""

    actions: int
    adds: tuple[Add, ...]  # every request, nameless
    others: tuple[Command, ...]  # commands besides arrivals and steps; an abort without a name is of anybody
    requests: int  # at once, at most

    @property
    def size(self) -> int:
        """How many scenarios there are, at most."""
        return sum(
            (len(self.adds) + self._choices(most)) ** most * len([*_gaps(most, self.actions - 2 - most)])
            for most in range(1, self.actions - 1)
        )

    def _choices(self, most: int) -> int:
        return sum(most if isinstance(c, Abort) else 1 for c in self.others)

    def scenarios(self, model: Scenario) -> Iterator[Scenario]:
        """All of them, those of fewest commands first."""
        for most in range(1, self.actions - 1):
            for kinds in product((*self.adds, *self.others), repeat=most):
                if not isinstance(kinds[0], Add) or sum(isinstance(k, Add) for k in kinds) > self.requests:
                    continue
                for named in _named(kinds):
                    for gaps in _gaps(most, self.actions - 2 - most):
                        yield evolve(model, script=tuple(_spaced(named, gaps)))

    @property
    def words(self) -> str:
        """The bounds."""
        prompt, outputs = max(len(a.prompt) for a in self.adds), max(a.max_tokens for a in self.adds)
        many = f"up to {self.requests} requests" if self.requests > 1 else "one request"
        told = f"this configuration, {many} of up to {prompt} + {outputs} tokens"
        kinds = {_kind(c): None for c in self.others}
        return told + (f", {', '.join(kinds)}" if kinds else "")


def _kind(command: Command) -> str:
    return command.kind if isinstance(command, Control) else type(command).__name__.lower()


def _alphabet(reduced: Reduced) -> _Alphabet:
    """From what the reduced scenario has: lengths up to its longest, the priorities, salts and contents it uses."""
    script, config = reduced.scenario.script, reduced.scenario.config
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
    return _Alphabet(reduced.actions, every, tuple(others), min(len(NAMES), max(reduced.actions - 2, 1)))


def _gaps(most: int, spare: int) -> Iterator[tuple[int, ...]]:
    """Steps in front of each command but the first: all ways to spend at most `spare`; one step follows anyway."""
    if spare < 0:
        return
    for gaps in product(range(spare + 1), repeat=most - 1):
        if sum(gaps) <= spare:
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
