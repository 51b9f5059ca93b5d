"""Points that a person can read: a solver likes 1/7 of a byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction


def rounded(point: Mapping[str, Fraction], good: Callable[[Mapping[str, Fraction]], bool]) -> Mapping[str, Fraction]:
    """Return a point with as few significant digits as keep it good, one parameter after another."""
    found = dict(point)
    for name, exact in point.items():
        for digits in (1, 2, 3, 4):
            candidate = {**found, name: significant(exact, digits)}
            if good(candidate):
                found = candidate
                break
    return found


def significant(exact: Fraction, digits: int) -> Fraction:
    """Return the number with so many significant decimal digits."""
    return Fraction(f"{float(exact):.{digits - 1}e}") if -(10**300) < exact < 10**300 else exact
