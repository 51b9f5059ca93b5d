"""What may kill a mutant, in stages, the quickest first: each runs in a fork of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from preempt_properties.mutants.children import Work
from preempt_properties.mutants.operators import Mutant


@attrs.frozen
class Killer:
    """What killed a mutant; nothing did: both are empty."""

    #: "theorem" or "test".
    kind: str = ""
    #: The theorem's or the test's id, and how it ended.
    name: str = ""


@attrs.frozen
class Stage:
    """Something that may kill a mutant."""

    kind: str
    #: Puts the mutant in place and says what killed it, or "".
    look: Callable[[Mutant], str]
    #: Whether running out of time is a death: it is not where a solver may need long for what is true.
    endless: bool = False


def staged(mutant: Mutant, stages: Sequence[Stage], tell: Callable[[Mutant, Killer], None]) -> Work:
    """The work that a mutant is: one stage, and behind it the others until it is dead. Then it is told of."""
    first, *rest = stages

    def then(answer: str | None) -> Work | None:
        if answer is None and first.endless:
            answer = "does not end"
        if answer or not rest:
            tell(mutant, Killer(first.kind, answer) if answer else Killer())
            return None
        return staged(mutant, rest, tell)

    return (lambda: first.look(mutant)), then
