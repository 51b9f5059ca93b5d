"""Points at which theorems apply: where one fails, the theorem is refuted without a solver. Always the same ones."""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction

from preempt_properties.theorems.theorem import Kind, Parameter, Theorem, holds
from preempt_properties.z3.nice import significant

#: Points asked for, and how many are tried for them: most points do not meet the hypotheses.
WANTED, TRIED = 12, 120

Point = Mapping[str, Fraction]


def points(theorem: Theorem) -> list[Point]:
    """Points that meet the hypotheses; of a false theorem or a witness, the one that it names."""
    given = [{name: Fraction(x) for name, x in theorem.at.items()}] if theorem.at else []
    if theorem.kind is not Kind.PROVED:
        return list(given)
    chance = random.Random(theorem.id)
    found: list[Point] = list(given)
    for _ in range(TRIED):
        point = {name: _value(p, chance) for name, p in theorem.parameters.items()}
        if theorem.unmet(point) is None:
            found.append(point)
            if len(found) == WANTED:
                break
    return found


def stands_at(theorem: Theorem, point: Point) -> bool:
    """Whether the theorem is not refuted by a point: the claim is as asserted there, or a hypothesis is not met."""
    return theorem.unmet(point) is not None or holds(theorem.claim, point) is (theorem.kind is not Kind.FALSE)


def _value(p: Parameter, chance: random.Random) -> Fraction:
    """Of any magnitude in the usual range, or near the end of the domain."""
    low, high = p.usual or (0.0, 1.0)
    if p.most is not None or p.below is not None:
        value = Fraction(chance.randint(0, 8), 8)
    elif low > 0:
        value = significant(Fraction(low * (high / low) ** chance.random()), 3)
    else:
        value = significant(Fraction(low + (high - low) * chance.random()), 3)
    return Fraction(max(round(value), int(p.least or 0))) if p.integer else value
