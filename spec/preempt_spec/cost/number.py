"""What the cost functions ask of a number, and the two roundings they use.

`Fraction` makes them exact, `float` fast, and a wrapper around a solver's reals makes them provable: its comparisons
fork. Hence the rules of this package: compare with < and > only (an == cannot fork), never ask for a number's truth or
type, convert nothing, and write integer literals only (0.5 would make a fraction a float).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol, Self, TypeVar

import attrs


class Number(Protocol):
    """A real number. `int` is none: its division leaves the integers, and a half of one would be a float."""

    def __add__(self, other: Self | int, /) -> Self: ...
    def __radd__(self, other: int, /) -> Self: ...
    def __sub__(self, other: Self | int, /) -> Self: ...
    def __rsub__(self, other: int, /) -> Self: ...
    def __mul__(self, other: Self | int, /) -> Self: ...
    def __rmul__(self, other: int, /) -> Self: ...
    def __truediv__(self, other: Self | int, /) -> Self: ...
    def __rtruediv__(self, other: int, /) -> Self: ...
    def __neg__(self) -> Self: ...
    def __lt__(self, other: Self | int, /) -> bool: ...
    def __le__(self, other: Self | int, /) -> bool: ...
    def __gt__(self, other: Self | int, /) -> bool: ...
    def __ge__(self, other: Self | int, /) -> bool: ...
    def __ceil__(self) -> Any: ...


N = TypeVar("N", bound=Number)


def round_up(x: N) -> N:
    """Return the least whole number that is not below `x`, as a number of the same kind."""
    # math.ceil of a fraction or a float is an int, and int / int would be a float: the sum brings it back.
    rounded: N = math.ceil(x) + 0 * x
    return rounded


def round_down(x: N) -> N:
    """Return the greatest whole number that is not above `x`, as a number of the same kind."""
    return -round_up(-x)


def mapped(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Return `value` (any class of this package, or a tuple of them) with every number put through `convert`.

    `mapped(setting, float)` is the fast twin of an exact setting, `mapped(setting, Fraction)` the exact twin of a fast
    one. Flags, enumerations and text stay as they are.
    """
    if value is None or isinstance(value, bool | str | Enum):
        return value
    if isinstance(value, tuple):
        return tuple(mapped(item, convert) for item in value)
    if attrs.has(type(value)):
        fields = attrs.fields(type(value))
        return type(value)(**{f.name: mapped(getattr(value, f.name), convert) for f in fields})
    return convert(value)
