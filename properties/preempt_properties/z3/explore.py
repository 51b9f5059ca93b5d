"""Every outcome of a function on symbolic numbers, one run per path.

A run follows a script of decisions and then goes on by itself. With a solver at hand, a way that the assumptions
exclude is not taken: the last comparison of a claim is proved false right there. The model of the way taken answers one
of the two questions for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import attrs
import z3

from preempt_properties.z3.real import RUN, Real


class TooManyPaths(Exception):
    """A function forks beyond measure: a shorter claim, or a hypothesis that decides a maximum, helps."""


@attrs.frozen(eq=False)
class Answer:
    """What a solver says of some conditions. Neither a model nor impossible: it does not know."""

    impossible: bool
    model: Any = None


class Ask(Protocol):
    """A solver, asked in passing: it may give up early."""

    def __call__(self, conditions: Sequence[Any], /) -> Answer:
        """Whether the conditions can hold together."""


@attrs.frozen(eq=False)
class Path:
    """One way through the function."""

    #: The decisions, and what defines the ceilings, in polynomials.
    conditions: tuple[Any, ...]
    #: The decisions as they were written.
    written: tuple[Any, ...]
    #: What the function returned, or the ValueError or ArithmeticError that it raised.
    value: Any
    #: A model of assumptions and conditions, if one is known.
    model: Any

    def excluded(self) -> Any:
        """The condition that it is not this way."""
        return z3.Not(z3.And(*self.conditions))


@attrs.define(eq=False)
class _Decision:
    taken: bool
    #: The other way is impossible: this one is no condition of the path.
    forced: bool
    #: The other way is still to be explored.
    open: bool
    #: A model of the other way, if one is known; of this one, once it is the other.
    model: Any


@attrs.define(eq=False)
class _Run:
    assumptions: Sequence[Any]
    ask: Ask | None
    script: list[_Decision]
    #: Of the assumptions and the path up to here. Of no use while the script is followed.
    model: Any
    #: Valid under the assumptions: each way that was found to be impossible.
    facts: list[Any]
    literal: bool
    at: int = 0
    conditions: list[Any] = attrs.Factory(list)
    written: list[Any] = attrs.Factory(list)
    #: Decided on this path, by the id of the condition; `kept` keeps the terms alive, so that an id stays theirs.
    known: dict[int, bool] = attrs.Factory(dict)
    ceilings: dict[tuple[int, int], Any] = attrs.Factory(dict)
    kept: list[Any] = attrs.Factory(list)

    def decide(self, condition: Any, written: Any) -> bool:
        id = condition.get_id()
        if id not in self.known:
            self.kept.append(condition)
            # An identity is seen at once, unless everything is to be written down as it is.
            simple = condition if self.literal and not _numerals(condition) else z3.simplify(condition)
            plain = z3.is_true(simple) or z3.is_false(simple)
            self.known[id] = z3.is_true(simple) if plain else self._fork(condition, written)
        return self.known[id]

    def _fork(self, condition: Any, written: Any) -> bool:
        if self.at == len(self.script):
            self.script.append(self._new(condition))
        elif self.at == len(self.script) - 1:  # the script ends with the way not taken before
            self.model = self.script[-1].model
        decision = self.script[self.at]
        self.at += 1
        if not decision.forced:
            self.conditions.append(condition if decision.taken else z3.Not(condition))
            self.written.append(written if decision.taken else z3.Not(written))
        return decision.taken

    def _new(self, condition: Any) -> _Decision:
        if self.ask is None:
            return _Decision(True, False, True, None)
        if self.model is not None:
            taken = z3.is_true(self.model.eval(condition, model_completion=True))
            other = self._ask(z3.Not(condition) if taken else condition)
        else:
            this, other = self._ask(condition), self._ask(z3.Not(condition))
            taken = not this.impossible
            this, other = (this, other) if taken else (other, this)
            self.model = this.model
        return _Decision(taken, other.impossible, not other.impossible, other.model)

    def _ask(self, condition: Any) -> Answer:
        assert self.ask is not None
        answer = self.ask([*self.assumptions, *self.conditions, condition])
        if answer.impossible:
            self.facts.append(z3.Not(z3.And(*self.conditions, condition)))
        return answer

    def ceiling(self, num: Any, den: Any) -> Any:
        key = (num.get_id(), den.get_id())
        if key not in self.ceilings:
            # Named after its terms: the same ceiling is the same constant on every path, in a lemma and in the claim.
            constant = z3.Int(f"ceil({num.sexpr()} / {den.sexpr()})")
            self.conditions += [den * (constant - 1) < num, num <= den * constant]
            self.kept += [num, den]
            self.ceilings[key] = constant
            if self.model is not None:
                self.model = _extended(self.model, constant, num, den)
        return self.ceilings[key]


def _numerals(condition: Any) -> bool:
    return all(z3.is_int_value(side) or z3.is_rational_value(side) for side in condition.children())


def _extended(model: Any, constant: Any, num: Any, den: Any) -> Any:
    """The model with the value of a ceiling; None if the solver cannot say it in digits."""
    above, below = model.eval(num, model_completion=True), model.eval(den, model_completion=True)
    value = z3.simplify(-z3.ToInt(-z3.ToReal(above) / below if z3.is_int(above) else -above / below))
    if not z3.is_int_value(value):
        return None
    model.update_value(constant, value)
    return model


def explore(
    function: Callable[[], Any],
    *,
    assumptions: Sequence[Any] = (),
    ask: Ask | None = None,
    model: Any = None,
    facts: list[Any] | None = None,
    limit: int = 256,
    literal: bool = False,
) -> Iterator[Path]:
    """Every path of a function of no arguments that is possible under the assumptions.

    Without `ask`, every path whatever. `model` is one of the assumptions, if known. `facts` collects what was found
    impossible. `literal`: even a comparison whose outcome is plain in algebra goes both ways. More than `limit` paths
    raise TooManyPaths. ValueError and ArithmeticError of the function end a path.
    """
    script: list[_Decision] = []
    count = 0
    while True:
        count += 1
        if count > limit:
            raise TooManyPaths(f"more than {limit} paths")
        run = _Run(assumptions, ask, script, model, [] if facts is None else facts, literal)
        token = RUN.set(run)
        value: Any
        try:
            value = function()
        except (ValueError, ArithmeticError) as e:
            value = e
        finally:
            RUN.reset(token)
        yield Path(tuple(run.conditions), tuple(run.written), value, run.model)
        while script and not script[-1].open:
            script.pop()
        if not script:
            return
        last = script[-1]
        script[-1] = _Decision(not last.taken, False, False, last.model)


def fold(function: Callable[[], Real], assumptions: Sequence[Any] = (), ask: Ask | None = None) -> Any:
    """A function's value as one term: its paths as nested if-then-else. What a path raises is raised here."""
    paths = list(explore(function, assumptions=assumptions, ask=ask))
    for path in paths:
        if isinstance(path.value, Exception):
            raise path.value
    term = paths[-1].value.term
    for path in reversed(paths[:-1]):
        term = z3.If(z3.And(*path.written), path.value.term, term)
    return term
