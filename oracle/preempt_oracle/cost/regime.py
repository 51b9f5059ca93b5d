"""The regime map: which way is cheaper over effective bandwidth and length, and where the answer turns.

In the smooth model (block rounding aside), in floats: it is looked at. Bandwidth is the effective one, so that one map
serves every way to copy: what a copy path reaches is a line in it. Swap wins exactly above the break-even line.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from attrs import evolve, frozen

from preempt_spec.cost.copies import Affine, Law, copy_time, effective_bandwidth
from preempt_spec.cost.decide import (
    Setting,
    achieved_bandwidth,
    break_even_bandwidth,
    recompute_cost,
    smooth,
    swap_cost,
)
from preempt_spec.cost.number import mapped
from preempt_spec.cost.swap import Copies, batches

POINTS: Final = 200
SHORTEST: Final = 16.0  # tokens
#: Fixed costs of a copy, in seconds, between which engines of today lie that copy piece by piece.
USUAL_OVERHEAD: Final = (5e-6, 10e-6)


@frozen
class Regime:
    """A map. Bandwidths in bytes/s per direction, effective; lengths in tokens."""

    bandwidths: tuple[float, ...]
    lengths: tuple[float, ...]
    break_even: tuple[float, ...]
    """Per length: above it swap wins."""
    reached: tuple[float, ...]
    """Per length: what the setting's own copies reach."""
    piece: float | None
    """Bytes of one block of one layer's K or V; None: there is none."""
    band: tuple[float, float] | None
    """What copies of that size reach at the slow and the quick end of `USUAL_OVERHEAD`."""
    link: float
    """What copies reach that cost nothing but their bytes."""
    setting: Setting[float]

    def speed_up(self) -> tuple[tuple[float, ...], ...]:
        """How many times faster swap is than recompute: a row per length, a column per bandwidth."""
        columns = [over(self.setting, bandwidth) for bandwidth in self.bandwidths]
        rows = []
        for length in self.lengths:
            again = recompute_cost(self.setting, length)
            rows.append(tuple(again / swap_cost(column, length) for column in columns))
        return tuple(rows)


def regime(exact: Setting[Fraction], longest: float, points: int = POINTS) -> Regime:
    """The map of a setting for lengths up to `longest` tokens, `points` each way."""
    setting: Setting[float] = smooth(mapped(exact, float))
    lengths = spaced(min(SHORTEST, longest / 2), longest, points)
    break_even = tuple(break_even_bandwidth(setting, length) for length in lengths)
    reached = tuple(achieved_bandwidth(setting, length) for length in lengths)
    link = _link(setting, longest)
    piece = _piece(setting)
    band = None
    if piece is not None:
        quick, slow = (effective_bandwidth(Affine(overhead, link), piece) for overhead in USUAL_OVERHEAD)
        band = slow, quick
    marks = [max(break_even), break_even[-1], reached[-1], link, *(band or ())]
    low, high = 10 ** math.floor(math.log10(min(marks) / 2)), _ceiling(max(marks) * 2)
    return Regime(spaced(low, high, points), lengths, break_even, reached, piece, band, link, setting)


def over(setting: Setting[float], bandwidth: float) -> Setting[float]:
    """The setting over copies that reach an effective `bandwidth` each way, whatever their size."""
    law = Affine(0.0, bandwidth)
    return evolve(setting, transfer=evolve(setting.transfer, out=law, back=law))


def spaced(low: float, high: float, points: int) -> tuple[float, ...]:
    """Values from low to high at equal ratios, both included."""
    inner = (low * (high / low) ** (i / (points - 1)) for i in range(1, points - 1))
    return (low, *inner, high)


def _ceiling(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _link(setting: Setting[float], length: float) -> float:
    """The effective bandwidth without fixed costs: of affine laws their own, of measured ones that of huge copies."""
    out, back = (_free(law) for law in (setting.transfer.out, setting.transfer.back))
    return achieved_bandwidth(evolve(setting, transfer=evolve(setting.transfer, out=out, back=back)), length)


def _free(law: Law[float]) -> Affine[float]:
    if isinstance(law, Affine):
        return Affine(0.0, law.bandwidth)
    huge = 1e12
    return Affine(0.0, huge / copy_time(law, huge))


def _piece(setting: Setting[float]) -> float | None:
    if not setting.shape.layers:
        return None
    transfer = evolve(setting.transfer, copies=Copies.PER_TENSOR)
    return batches(setting.shape, transfer, setting.transfer.block)[0].size
