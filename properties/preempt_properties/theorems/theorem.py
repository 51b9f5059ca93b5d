"""What a theorem of the cost model is: a sentence, named parameters and hypotheses, and a claim.

Hypotheses and claim are ordinary Python functions that CALL the functions of `preempt_spec.cost`. The prover runs them
on symbolic reals, where every comparison forks; the same functions run on `Fraction`s, and that is how every model and
every counterexample of the solver is checked again. Nothing in this module needs a solver.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from fractions import Fraction
from typing import Any, TypeAlias

import attrs

#: A function of parameters, named by its own argument names; it may take fewer than there are.
Proposition: TypeAlias = Callable[..., bool]
Values: TypeAlias = Mapping[str, Any]
Point: TypeAlias = Mapping[str, Fraction]


class Kind(Enum):
    """What is asserted of a claim."""

    #: It holds wherever the hypotheses do.
    PROVED = "proved"
    #: It is tempting and does not: it holds at some points and fails at others, of which one is shown.
    FALSE = "false"
    #: It holds somewhere, and not everywhere: one point is shown.
    WITNESS = "witness"


@attrs.frozen(kw_only=True)
class Parameter:
    """A quantity, its unit, and the domain it is drawn from (part of the statement, like a type).

    `usual` is where real values lie. It never restricts a proof; a counterexample is first looked for in there, so that
    it reads like hardware and not like algebra.
    """

    #: As printed: "B/s", "s", "FLOP/s", "tokens", "B/token", "" for a ratio.
    unit: str
    integer: bool = False
    #: Bounds of the domain; None: there is none on this side.
    above: Fraction | None = attrs.field(default=None, converter=attrs.converters.optional(Fraction))
    least: Fraction | None = attrs.field(default=None, converter=attrs.converters.optional(Fraction))
    below: Fraction | None = attrs.field(default=None, converter=attrs.converters.optional(Fraction))
    most: Fraction | None = attrs.field(default=None, converter=attrs.converters.optional(Fraction))
    usual: tuple[float, float] | None = None

    def bounds(self, value: Any) -> Iterable[Any]:
        """The conditions of the domain on a value (a number or a symbolic real), one by one."""
        if self.above is not None:
            yield value > self.above
        if self.least is not None:
            yield value >= self.least
        if self.below is not None:
            yield value < self.below
        if self.most is not None:
            yield value <= self.most


def positive(unit: str, *usual: float) -> Parameter:
    """Any real above zero. `usual`: low, high."""
    return Parameter(unit=unit, above=Fraction(0), usual=_range(usual))


def nonnegative(unit: str, *usual: float) -> Parameter:
    """Any real from zero. `usual`: low, high."""
    return Parameter(unit=unit, least=Fraction(0), usual=_range(usual))


def share() -> Parameter:
    """A real from 0 to 1, both included."""
    return Parameter(unit="", least=Fraction(0), most=Fraction(1))


def whole(unit: str, *usual: float, least: int = 1) -> Parameter:
    """A whole number from `least`. `usual`: low, high."""
    return Parameter(unit=unit, integer=True, least=Fraction(least), usual=_range(usual))


def _range(usual: tuple[float, ...]) -> tuple[float, float] | None:
    if not usual:
        return None
    low, high = usual
    return low, high


# The parameters that most theorems have, with where they lie on hardware and models of today.
KV = positive("B/token", 2_048, 4_000_000)  # KV-cache bytes of one token, all layers
PARAMS = positive("parameters", 1e8, 1e12)  # active parameters
ATTENTION = positive("FLOP/pair", 1e4, 1e7)  # FLOPs per pair of tokens, all layers
FLOPS = positive("FLOP/s", 1e13, 5e15)  # achieved, not peak
BANDWIDTH = positive("B/s", 1e9, 1e12)  # per direction, achieved
MEMORY = positive("B/s", 5e11, 1e13)  # HBM
BYTES = positive("B", 1_024, 1e12)
SECONDS = positive("s", 1e-7, 10)
LENGTH = positive("tokens", 1, 1e6)  # a length as a real: no block rounding in sight
TOKENS = whole("tokens", 1, 1e6)
BLOCK = whole("tokens", 1, 1_024)  # tokens a block holds
RANKS = whole("ranks", 1, 64)


def equal(left: Any, right: Any) -> bool:
    """Whether two numbers are the same. A symbolic real refuses `==`, since Python needs it for other things."""
    return not (left < right or right < left)


@attrs.frozen(kw_only=True)
class Theorem:
    """One statement about the shipped functions.

    Invalid ones are refused when they are made: an id that is not `family/name`, a function that asks for a parameter
    which does not exist, a parameter that nothing asks for, a reason for a hypothesis that is not there.
    """

    #: `family/name`.
    id: str
    #: What it says, in a sentence of plain English.
    sentence: str
    parameters: Mapping[str, Parameter]
    claim: Proposition
    kind: Kind = Kind.PROVED
    #: Name -> condition. Of a proved theorem each must be necessary: without it, the claim fails somewhere.
    hypotheses: Mapping[str, Proposition] = attrs.field(factory=dict)
    #: Hypotheses stated although the claim would hold without them -> why. Found necessary, they are a failure.
    assumed: Mapping[str, str] = attrs.field(factory=dict)
    #: Proved first, in this order, from the hypotheses, and then used: an integer lemma about block counts, after which
    #: the claim is finished over the reals. Counts (`ceil`) are the same wherever their arguments are the same term.
    lemmas: Mapping[str, Proposition] = attrs.field(factory=dict)
    #: A point in base units (bytes, seconds): the counterexample of a false theorem or the point of a witness that a
    #: reader should see; of a proved one a point at which it applies. Without it, the solver finds one.
    at: Mapping[str, Any] = attrs.field(factory=dict)
    #: What to print at that point: name -> (function of the parameters, unit).
    shows: Mapping[str, tuple[Callable[..., Any], str]] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        def refuse(what: str) -> None:
            raise ValueError(f"theorem {self.id!r}: {what}")

        if not re.fullmatch(r"[a-z][a-z0-9-]*/[a-z0-9][a-z0-9.-]*", self.id):
            refuse("an id is family/name, in lower case")
        if not self.sentence.endswith("."):
            refuse("the sentence must end with a full stop")
        functions = {"claim": self.claim, **self.hypotheses, **self.lemmas}
        asked = {n: names(f) for n, f in (functions | {n: f for n, (f, _) in self.shows.items()}).items()}
        for name, wanted in asked.items():
            if unknown := wanted - self.parameters.keys():
                refuse(f"{name} asks for {sorted(unknown)}, which are no parameters")
        if idle := set(self.parameters) - set().union(*asked.values()):
            refuse(f"nothing asks for the parameters {sorted(idle)}")
        if len(functions) != 1 + len(self.hypotheses) + len(self.lemmas):
            refuse("hypotheses, lemmas and 'claim' must have different names")
        if unknown := self.assumed.keys() - self.hypotheses.keys():
            refuse(f"assumed names {sorted(unknown)}, which are no hypotheses")
        if self.at and set(self.at) != set(self.parameters):
            refuse(f"'at' must give every parameter and no other: {sorted(set(self.at) ^ set(self.parameters))}")
        if self.kind is not Kind.PROVED and (self.lemmas or self.assumed):
            refuse(f"lemmas and assumed hypotheses belong to proved theorems, not to a {self.kind.value} one")

    @property
    def family(self) -> str:
        """The part before the slash."""
        return self.id.partition("/")[0]

    @property
    def number(self) -> str:
        """The first word after the slash."""
        return self.id.partition("/")[2].partition("-")[0]

    def unmet(self, point: Point, but: str = "") -> str | None:
        """The first condition that a point does not meet, of a domain or of the hypotheses (`but` one). None: none."""
        for name, parameter in self.parameters.items():
            if parameter.integer and Fraction(point[name]).denominator != 1:
                return f"{name} is whole"
            if not all(parameter.bounds(point[name])):
                return f"the domain of {name}"
        unmet = (name for name, condition in self.hypotheses.items() if name != but and not holds(condition, point))
        return next(unmet, None)


def names(function: Callable[..., Any]) -> set[str]:
    """The parameters that a function asks for."""
    return set(inspect.signature(function).parameters)


def call(function: Callable[..., Any], values: Values) -> Any:
    """Call a function with those of the values that it asks for."""
    return function(**{name: values[name] for name in inspect.signature(function).parameters})


def holds(proposition: Proposition, point: Values) -> bool:
    """Whether a proposition is true at a point. Where a function refuses its input or divides by 0, it is not.

    Raises TypeError if it says neither.
    """
    try:
        found = call(proposition, point)
    except (ValueError, ArithmeticError):
        return False
    if not isinstance(found, bool):
        raise TypeError(f"a proposition must return a bool, not {type(found).__name__}")
    return found


class Registry(Mapping[str, Theorem]):
    """Theorems by id, in the order given."""

    def __init__(self, theorems: Iterable[Theorem]) -> None:
        """An id that stands twice raises ValueError."""
        self._theorems: dict[str, Theorem] = {}
        for theorem in theorems:
            if theorem.id in self._theorems:
                raise ValueError(f"two theorems have the id {theorem.id!r}")
            self._theorems[theorem.id] = theorem

    def __getitem__(self, id: str) -> Theorem:
        return self._theorems[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._theorems)

    def __len__(self) -> int:
        return len(self._theorems)

    def select(self, wanted: str) -> tuple[Theorem, ...]:
        """The theorem of an id, those of a family, or those of a number (`t04`, of `break-even/t04-is-one`)."""
        low = wanted.lower()
        return tuple(t for t in self._theorems.values() if low in (t.id, t.family, t.number))
