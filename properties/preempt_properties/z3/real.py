"""Reals and whole numbers of the solver with a Python number's face: shipped functions run on them unchanged.

A comparison returns a real `bool`: the run that evaluates the function decides which (`explore`), and the function is
run again for every other way it could have gone. So `if`, `and`, `max`, `abs` and `math.ceil` all mean what they mean.
A number is kept twice: as the term that was written (exported), and as a fraction of polynomials whose denominator is a
product of factors that are positive on this path. Solving compares the fractions crosswise: without division the solver
is quick and complete.
"""

from __future__ import annotations

from contextvars import ContextVar
from fractions import Fraction
from typing import Any, NoReturn, Protocol, TypeAlias

import z3


class Run(Protocol):
    """One evaluation of a function, along one path."""

    def decide(self, condition: Any, written: Any) -> bool:
        """Which way a comparison goes: in polynomials, and as it was written."""

    def ceiling(self, num: Any, den: Any) -> Any:
        """The whole number that is the ceiling of num/den (den > 0), as a constant; what defines it joins the path."""


#: The evaluation in progress.
RUN: ContextVar[Run] = ContextVar("run")

_ZERO, _ONE = z3.IntVal(0), z3.IntVal(1)

Factors: TypeAlias = tuple[Any, ...]


class Real:
    """A symbolic number. Never compared with `==`, never a condition: both raise TypeError."""

    __slots__ = ("den", "num", "sign", "term")

    def __init__(self, term: Any, num: Any, den: Factors = (), sign: int | None = None) -> None:
        """`sign` 1: above zero; 0: not below; None: not known without the solver."""
        self.term, self.num, self.den, self.sign = term, num, den, sign

    def __add__(self, other: object) -> Real:
        right = _real(other)
        if right is None:
            return NotImplemented
        num, den = _sum(self, right)
        return Real(self.term + right.term, num, den, _sign_of_sum(self.sign, right.sign))

    __radd__ = __add__

    def __neg__(self) -> Real:
        return Real(-self.term, self.num if _zero(self) else -self.num, self.den)

    def __pos__(self) -> Real:
        return self

    def __sub__(self, other: object) -> Real:
        right = _real(other)
        if right is None:
            return NotImplemented
        num, den = _sum(self, -right)
        return Real(self.term - right.term, num, den)

    def __rsub__(self, other: object) -> Real:
        left = _real(other)
        return NotImplemented if left is None else left - self

    def __mul__(self, other: object) -> Real:
        right = _real(other)
        if right is None:
            return NotImplemented
        sign = _sign_of_product(self.sign, right.sign)
        if sign is None and right.term.eq(self.term):
            sign = 0  # a square
        return Real(self.term * right.term, *_cancelled(_factors(self.num, right.num), self.den + right.den), sign)

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Real:
        right = _real(other)
        if right is None:
            return NotImplemented
        # The sign of a divisor belongs to the path, like any comparison; zero is what Python makes of it.
        negative = right.sign != 1 and right < 0
        if not negative and right.sign != 1 and not right > 0:
            raise ZeroDivisionError("division by zero")
        # In a product of unknown sign the factors may be negative, two at a time: it stays one factor.
        divisor = (-right.num,) if negative else _factors(right.num) if right.sign == 1 else (right.num,)
        num = (-self.num, *right.den) if negative else (*_factors(self.num), *right.den)
        above, below = _cancelled(num, self.den + divisor)
        return Real(self.term / right.term, above, below, None if negative else self.sign)

    def __rtruediv__(self, other: object) -> Real:
        left = _real(other)
        return NotImplemented if left is None else left / self

    def __pow__(self, exponent: object) -> Real:
        if type(exponent) is not int or exponent < 0:
            return NotImplemented
        result = number(1)
        for _ in range(exponent):
            result = result * self
        return result

    def __abs__(self) -> Real:
        return -self if self < 0 else self

    def __lt__(self, other: object) -> bool:
        right = _real(other)
        return NotImplemented if right is None else _less(self, right)

    def __gt__(self, other: object) -> bool:
        right = _real(other)
        return NotImplemented if right is None else _less(right, self)

    def __le__(self, other: object) -> bool:
        right = _real(other)
        return NotImplemented if right is None else not _less(right, self)

    def __ge__(self, other: object) -> bool:
        right = _real(other)
        return NotImplemented if right is None else not _less(self, right)

    def __ceil__(self) -> Real:
        written = z3.ToReal(-z3.ToInt(-self.term))
        if not self.den and z3.is_int(self.num):
            return Real(written, self.num, (), self.sign)
        # The ceiling of what is above zero is at least 1.
        return Real(written, _run().ceiling(self.num, _product(self.den)), (), self.sign)

    def __floor__(self) -> Real:
        return -((-self).__ceil__())

    def __floordiv__(self, other: object) -> Real:
        right = _real(other)
        return NotImplemented if right is None else (self / right).__floor__()

    def __rfloordiv__(self, other: object) -> Real:
        left = _real(other)
        return NotImplemented if left is None else left // self

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError("numbers of the cost model are compared with < and >, never with == or !=")

    # Defined, or Python would answer `!=` by itself.
    __ne__ = __eq__
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> NoReturn:
        raise TypeError("a number of the cost model is no condition: compare it with 0")

    def __float__(self) -> NoReturn:
        raise TypeError("a number of the cost model stays exact: no float, and of the math module only ceil and floor")

    def __repr__(self) -> str:
        return f"Real({self.term})"


def real(name: str, sign: int | None = None) -> Real:
    """A parameter. `sign` as in Real: the caller must state it as an assumption too."""
    constant = z3.Real(name)
    return Real(constant, constant, (), sign)


def integer(name: str, sign: int | None = None) -> Real:
    """A whole parameter: polynomials of such stay whole numbers to the solver."""
    constant = z3.Int(name)
    return Real(z3.ToReal(constant), constant, (), sign)


def number(value: int | Fraction) -> Real:
    """A constant."""
    exact = Fraction(value)
    sign = 1 if exact > 0 else 0 if exact == 0 else None
    term = z3.RealVal(f"{exact.numerator}/{exact.denominator}")
    if exact.denominator == 1:
        return Real(term, z3.IntVal(exact.numerator), (), sign)
    return Real(term, z3.IntVal(exact.numerator), (z3.IntVal(exact.denominator),), sign)


def _real(value: object) -> Real | None:
    match value:
        case Real():
            return value
        case bool():
            return None
        case int() | Fraction():
            return number(value)
        case float():
            raise TypeError(f"the float {value} in exact arithmetic: write a Fraction")
    return None


def _run() -> Run:
    try:
        return RUN.get()
    except LookupError:
        raise TypeError("symbolic numbers are compared and rounded only where a prover explores the outcomes") from None


def _less(left: Real, right: Real) -> bool:
    if left.sign is not None and _zero(right):
        return False
    if right.sign == 1 and _zero(left):
        return True
    num, other, _ = _common(left, right)
    return _run().decide(num < other, left.term < right.term)


def _zero(value: Real) -> bool:
    return not value.den and value.num.eq(_ZERO)


def _factors(*terms: Any) -> Factors:
    """Terms that are products, taken apart. Of a number whose sign is known to be 1, each factor is above zero."""
    found: list[Any] = []
    for term in terms:
        found += _factors(*term.children()) if z3.is_mul(term) else (term,)
    return tuple(found)


def _product(factors: Factors) -> Any:
    """Their product; `0 * x` is an idiom of generic code."""
    if any(factor.eq(_ZERO) for factor in factors):
        return _ZERO
    found = _ONE
    for factor in factors:
        found = factor if found.eq(_ONE) else found if factor.eq(_ONE) else found * factor
    return found


def _without(factors: Factors, others: Factors) -> Factors:
    """The factors that are not among the others, each as often as it is missing there."""
    left, unused = [], list(others)
    for factor in factors:
        match = next((i for i, other in enumerate(unused) if factor.eq(other)), None)
        if match is None:
            left.append(factor)
        else:
            del unused[match]
    return tuple(left)


def _cancelled(num: Factors, den: Factors) -> tuple[Any, Factors]:
    """A fraction in fewer factors: `x / x` is another idiom."""
    above = _product(_without(num, den))
    return above, () if above.eq(_ZERO) else tuple(f for f in _without(den, num) if not f.eq(_ONE))


def _common(left: Real, right: Real) -> tuple[Any, Any, Factors]:
    """The numerators of both over a common denominator."""
    missing = _without(right.den, left.den)
    above = _product((left.num, *missing)) if missing else left.num
    other = _without(left.den, right.den)
    return above, _product((right.num, *other)) if other else right.num, left.den + missing


def _sum(left: Real, right: Real) -> tuple[Any, Factors]:
    if _zero(left):
        return right.num, right.den
    if _zero(right):
        return left.num, left.den
    above, other, den = _common(left, right)
    return above + other, den


def _sign_of_sum(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else max(left, right)


def _sign_of_product(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else min(left, right)
