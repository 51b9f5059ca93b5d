"""The regime map as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Final

from matplotlib.axes import Axes

from preempt_oracle.cost.question import Question
from preempt_oracle.cost.regime import USUAL_OVERHEAD, Regime, spaced
from preempt_oracle.cost.units import BYTES
from preempt_oracle.cost.wording import show
from preempt_oracle.report import cost_regime
from preempt_oracle.report.figure import (
    FAINT,
    INK,
    Place,
    area,
    begin,
    decades,
    line,
    logarithmic,
    settings,
    svg,
    words,
)

SWAP: Final = "#0969da"
RECOMPUTE: Final = "#bf5700"
#: Factors by which a way wins; from each on its colour is deeper by `_DEPTH`.
_FACTORS: Final = (1, 2, 5, 10)
_DEPTH: Final = 0.1


def draw(question: Question, regime: Regime) -> str:
    """The map as SVG."""
    title, subtitle = cost_regime.title(question), cost_regime.subtitle(question)
    with settings():
        axes = begin(title, subtitle)
        length_axis(axes, regime.lengths[0], regime.lengths[-1])
        bandwidth_axis(axes, regime.bandwidths[0], regime.bandwidths[-1])
        _shade(axes, regime)
        _lines(axes, regime)
        _names(axes, regime)
        return svg(axes, title, subtitle)


def length_axis(axes: Axes, low: float, high: float) -> None:
    """Lengths in powers of two."""
    powers = [2.0**k for k in range(4, 24) if low * 0.999 <= 2**k <= high * 1.001]
    ticks = [(v, f"{v:.0f}" if v < 1024 else f"{v / 1024:.0f}K") for v in powers]
    if len(ticks) > 9:
        ticks = ticks[len(ticks) % 2 == 0 :: 2]
    shown = {value for value, _ in ticks}
    minor = [v for v in powers if v not in shown]
    logarithmic(axes, "x", "length of the request, tokens (1K = 1,024)", (low, high), ticks, minor)


def bandwidth_axis(axes: Axes, low: float, high: float) -> None:
    """Bandwidths in GB/s: 1, 2, 5, 10 …"""
    steps = (1, 2, 5) if high / low < 3000 else (1,)
    ticks = [(v, f"{v / 1e9:g}") for v in decades(low, high, steps)]
    minor = [v for v in decades(low, high, range(1, 10)) if all(abs(v / t - 1) > 0.01 for t, _ in ticks)]
    logarithmic(axes, "y", "effective bandwidth per direction, GB/s", (low, high), ticks, minor)


def _shade(axes: Axes, regime: Regime) -> None:
    """Both sides, deeper where a way wins by more: by k where the bandwidth is k times the break-even one."""
    x = regime.lengths
    low, high = axes.get_ylim()
    for factor in _FACTORS:
        above, below = _winning(regime, factor)
        area(axes, x, above, max(high, *above), SWAP, _DEPTH)
        area(axes, x, below, min(low, *below), RECOMPUTE, _DEPTH)
        if factor > 1:
            line(axes, x, above, SWAP, 0.6, (1.5, 2.25))
            line(axes, x, below, RECOMPUTE, 0.6, (1.5, 2.25))


def _winning(regime: Regime, factor: float) -> tuple[list[float], list[float]]:
    """The bandwidths, per length, from which on swap wins by a factor, and up to which recompute does."""
    return [y * factor for y in regime.break_even], [y / factor for y in regime.break_even]


def _lines(axes: Axes, regime: Regime) -> None:
    """Where the answer turns, what copies reach, and the band of the usual copies."""
    ends = axes.get_xlim()
    if regime.band is not None:
        slow, quick = regime.band
        area(axes, ends, (slow, slow), quick, INK, 0.16)
    if _link_apart(regime):
        line(axes, ends, (regime.link, regime.link), FAINT, 0.9, (1.5, 3))
    line(axes, regime.lengths, regime.reached, INK, 1.2, (5.25, 3))
    line(axes, regime.lengths, regime.break_even, INK, 2)


def _link_apart(regime: Regime) -> bool:
    return abs(regime.link / regime.reached[0] - 1) > 0.02


def _names(axes: Axes, regime: Regime) -> None:
    """Every region and line by its name, where there is room for it."""
    low, high = axes.get_ylim()
    top = max(regime.break_even)
    quick, slow = max(top, regime.link), min(top, *(regime.band or ()))
    words(axes, "swap wins", _within(axes, quick, high), SWAP, 13.5, bold=True)
    words(axes, "recompute wins", _within(axes, low, slow), RECOMPUTE, 13.5, bold=True)
    for factor in _FACTORS[1:]:
        for ys, colour in zip(_winning(regime, factor), (SWAP, RECOMPUTE), strict=True):
            inside = [(x, y, 0, 0) for x, y in zip(regime.lengths, ys, strict=True) if low < y < high]
            if places := inside[-8::-8]:  # on the line, from the right
                words(axes, f"{factor}×", places, colour, 8.5)
    words(axes, f"copies as described: {cost_regime.reach(regime)} GB/s", _along(regime, regime.reached, range(7)))
    if regime.band is not None and regime.piece is not None:
        slow, quick = regime.band
        size = show(Fraction(regime.piece), BYTES)
        least, most = (f"{overhead * 1e6:g}" for overhead in USUAL_OVERHEAD)
        text = f"copies of {size} at {least} to {most} µs each: {quick / 1e9:.2g} to {slow / 1e9:.2g} GB/s"
        words(axes, text, _band(regime, slow, quick))
    words(axes, f"break-even (at most {top / 1e9:.3g} GB/s)", _along(regime, regime.break_even, (5, 6, 4, 3, 2)))
    if _link_apart(regime):
        link = f"the link, copied at once: {regime.link / 1e9:.3g} GB/s"
        words(axes, link, _along(regime, [regime.link] * len(regime.lengths), range(7)), FAINT)


def _within(axes: Axes, low: float, high: float) -> Iterator[Place]:
    """Places between two bandwidths, from the middle outwards."""
    for up in (4, 5, 3, 6, 2):
        for across in (4, 3, 5, 2, 6):
            yield spaced(*axes.get_xlim(), 9)[across], spaced(low, high, 9)[up], 0, 0


def _band(regime: Regime, slow: float, quick: float) -> Iterator[Place]:
    """Places in the band, or just outside of it if the line of the copies runs through it."""
    low, lower, _, middle, _, upper, high = spaced(slow, quick, 7)
    starts = spaced(regime.lengths[0], regime.lengths[-1], 17)[:11]
    yield from ((x, y, 6, 0) for y in (middle, lower, upper) for x in starts)
    if slow < regime.reached[0] < quick:
        yield from ((x, y, 6, up) for y, up in ((high, 3), (low, -3)) for x in starts)


def _along(regime: Regime, ys: Sequence[float], eighths: Iterable[int]) -> Iterator[Place]:
    """Places just above and below a line, so many eighths of the way along it."""
    for eighth in eighths:
        at = eighth * (len(ys) - 1) // 8
        for right, up in ((6, 3), (6, -3), (-6, -3), (-6, 3)):
            yield regime.lengths[at], ys[at], right, up
