"""The regime map as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from preempt_oracle.cost.question import Question
from preempt_oracle.cost.regime import USUAL_OVERHEAD, Regime
from preempt_oracle.cost.units import BYTES, FLOP_RATE, SHARE
from preempt_oracle.cost.wording import show
from preempt_oracle.report.svg import FAINT, INK, XY, Axis, Plot, decades
from preempt_spec.cost.recompute import Run
from preempt_spec.cost.swap import Directions, Trip

SWAP: Final = "#0969da"
RECOMPUTE: Final = "#bf5700"
#: Factors by which a way wins, and how deep its colour is from there on.
_DEPTHS: Final = ((1.0, 0.10), (2.0, 0.10), (5.0, 0.10), (10.0, 0.10))


def draw(question: Question, regime: Regime) -> str:
    """The map as SVG."""
    plot = Plot(
        f"Swap or recompute? {question.model.name} on {question.accelerator.name}{_gpus(question)}",
        _subtitle(question),
        length_axis(regime.lengths[0], regime.lengths[-1]),
        bandwidth_axis(regime.bandwidths[0], regime.bandwidths[-1]),
    )
    edge = list(zip(regime.lengths, regime.break_even, strict=True))
    _shade(plot, edge)
    _marks(plot, regime)
    plot.line(edge, INK, 2.6)
    _names(plot, regime)
    return plot.svg()


def summary(regime: Regime) -> str:
    """The map in a line."""
    top = max(regime.break_even)
    at = regime.lengths[regime.break_even.index(top)]
    own = f"these copies reach {_range(regime)} GB/s"
    return f"break-even is at most {top / 1e9:.3g} GB/s, at {at:,.0f} tokens; {own}"


def length_axis(low: float, high: float) -> Axis:
    """Lengths in powers of two."""
    powers = [2.0**k for k in range(4, 24) if low * 0.999 <= 2**k <= high * 1.001]
    ticks = tuple((v, f"{v:.0f}" if v < 1024 else f"{v / 1024:.0f}K") for v in powers)
    if len(ticks) > 9:
        ticks = ticks[len(ticks) % 2 == 0 :: 2]
    shown = {value for value, _ in ticks}
    return Axis("length of the request, tokens (1K = 1,024)", low, high, ticks, minor=tuple(set(powers) - shown))


def bandwidth_axis(low: float, high: float) -> Axis:
    """Bandwidths in GB/s: 1, 2, 5, 10 …"""
    steps = (1, 2, 5) if high / low < 3000 else (1,)
    ticks = tuple((v, f"{v / 1e9:g}") for v in decades(low, high, steps))
    minor = tuple(v for v in decades(low, high, range(1, 10)) if all(abs(v / t - 1) > 0.01 for t, _ in ticks))
    return Axis("effective bandwidth per direction, GB/s", low, high, ticks, minor=minor)


def _gpus(question: Question) -> str:
    return f" × {question.ranks}" if question.ranks > 1 else ""


def _subtitle(question: Question) -> str:
    device, transfer = question.setting.device, question.setting.transfer
    peak = show(Fraction(device.peak_flops), FLOP_RATE)
    shares = dict.fromkeys(show(share, SHARE) for share in (device.gemm_efficiency, device.attention_efficiency))
    trip = "write-through: only the way back counts" if transfer.trip is Trip.WRITE_THROUGH else "out and back"
    if transfer.directions is Directions.OVERLAPPED:
        trip = "duplex: the slower way counts"
    run = "recompute alone" if question.setting.run is Run.ALONE else "recompute rides along"
    hit = "" if question.setting.hit is None else f", prefix hit {show(question.setting.hit, SHARE)}"
    return f"{question.kv_dtype} KV, {run} at {' / '.join(shares)} of {peak}, {trip}{hit}"


def _shade(plot: Plot, edge: Sequence[XY]) -> None:
    """Both sides, deeper where a way wins by more: by k where the bandwidth is k times the break-even one."""
    first, last = plot.x.low, plot.x.high
    for factor, depth in _DEPTHS:
        above = [(x, y * factor) for x, y in edge]
        below = [(x, y / factor) for x, y in edge]
        plot.area([*above, (last, plot.y.high), (first, plot.y.high)], SWAP, depth)
        plot.area([*below, (last, plot.y.low), (first, plot.y.low)], RECOMPUTE, depth)
        if factor > 1:
            for line, colour in ((above, SWAP), (below, RECOMPUTE)):
                plot.line(line, colour, 0.8, "2 3")
                _factor(plot, line, colour, f"{factor:g}×")


def _factor(plot: Plot, line: Sequence[XY], colour: str, text: str) -> None:
    """The factor at the right end of its line, if that is inside."""
    x, y = line[-8]
    if plot.y.low * 1.15 < y < plot.y.high / 1.15:
        plot.words(x, y, text, colour, 11.5, "end", shift=(0, 3))


def _marks(plot: Plot, regime: Regime) -> None:
    if regime.band is not None and regime.piece is not None:
        slow, quick = regime.band
        corners = [
            (x, y) for x, y in ((plot.x.low, slow), (plot.x.high, slow), (plot.x.high, quick), (plot.x.low, quick))
        ]
        plot.area(corners, INK, 0.16)
        size = show(Fraction(regime.piece), BYTES)
        low, high = (f"{overhead * 1e6:g}" for overhead in USUAL_OVERHEAD)
        text = f"copies of {size} at {low} to {high} µs each: {quick / 1e9:.2g} to {slow / 1e9:.2g} GB/s"
        plot.words(plot.x.low, (slow * quick) ** 0.5, text, INK, 12, shift=(8, -4))
    plot.line(list(zip(regime.lengths, regime.reached, strict=True)), INK, 1.6, "7 4")
    first, reached = regime.reached[0], _range(regime)
    apart = regime.link / first
    below = 1.02 < apart < 1.3
    plot.words(plot.x.low, first, f"copies as described: {reached} GB/s", INK, 12, shift=(8, -15 if below else 6))
    if abs(apart - 1) > 0.02:
        link = f"the link, copied at once: {regime.link / 1e9:.3g} GB/s"
        plot.line([(plot.x.low, regime.link), (plot.x.high, regime.link)], FAINT, 1.2, "2 4")
        plot.words(plot.x.low, regime.link, link, FAINT, 12, shift=(8, 6))


def _range(regime: Regime) -> str:
    """What the copies reach, in GB/s; from the shortest length to the longest if that differs."""
    first, last = regime.reached[0], regime.reached[-1]
    return f"{last / 1e9:.3g}" if abs(first / last - 1) < 0.02 else f"{first / 1e9:.3g} to {last / 1e9:.3g}"


def _names(plot: Plot, regime: Regime) -> None:
    """The two regions and the line between them."""
    middle = len(regime.lengths) // 2
    top = max(regime.break_even)
    peak = middle if regime.break_even[middle] > top / 2 else regime.break_even.index(top)
    x = min(max(regime.lengths[peak], regime.lengths[middle // 2]), regime.lengths[-middle // 2])
    floor = min(regime.band[0], top) if regime.band else top
    plot.words(x, (plot.y.low * floor) ** 0.5, "recompute wins", RECOMPUTE, 18, "middle", bold=True)
    plot.words(x, (plot.y.high * max(top, regime.link)) ** 0.5, "swap wins", SWAP, 18, "middle", bold=True)
    # To the right, where the marks have no words. The line falls there: above it words go on to the right, below it to
    # the left; they go below if the line of the copies is just above.
    name = f"break-even (at most {top / 1e9:.3g} GB/s)"
    above, below = len(regime.lengths) * 5 // 8, len(regime.lengths) * 3 // 4
    if 1 <= regime.reached[below] / regime.break_even[below] < 1.6:
        plot.words(regime.lengths[below], regime.break_even[below], name, INK, 12, "end", shift=(4, -18))
    else:
        plot.words(regime.lengths[above], regime.break_even[above], name, INK, 12, shift=(0, 10))
