"""Quantities of the cost model for people."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from . import quantities
from .units import Dimension

_UNIT: Final = re.compile(r"(?<=[0-9])(?=[^0-9.%])")


def show(value: Fraction, dimension: Dimension, digits: int = 4) -> str:
    """A quantity with a space before its unit; lengths with separators of thousands."""
    if dimension.whole:
        return f"{round(value):,}"
    return _UNIT.sub(" ", quantities.show(value, dimension, digits), count=1)


def show_factor(factor: Fraction) -> str:
    """A ratio to four digits."""
    if factor < 10_000:
        return f"{float(factor):.4g}"
    return f"{float(factor):,.0f}" if factor < 10**12 else f"{float(factor):.1e}"
