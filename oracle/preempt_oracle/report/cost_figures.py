"""The figures of docs/cost.md: drawn from the registry's data by the functions that the commands call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Final

from attrs import evolve

from preempt_oracle.cost.answer import answer
from preempt_oracle.cost.curves import Points
from preempt_oracle.cost.question import Given, Question, question
from preempt_oracle.cost.regime import regime, spaced
from preempt_oracle.cost.registry import find_curve, request_times
from preempt_oracle.report.cost_map import RECOMPUTE, SWAP, draw, length_axis
from preempt_oracle.report.svg import FAINT, INK, Anchor, Axis, Plot, decades
from preempt_spec.cost.copies import Affine, effective_bandwidth
from preempt_spec.cost.decide import Setting, best_cost, recompute_cost, smooth, swap_cost
from preempt_spec.cost.fit import nearest_affine
from preempt_spec.cost.hybrid import hybrid_time, recompute_front, swap_rest
from preempt_spec.cost.number import mapped
from preempt_spec.cost.recompute import Run

MODEL, ACCELERATOR = "llama-3.1-8b", "h100-sxm"
KIB: Final = 1024.0
_GREEN, _RED, _PURPLE = "#1a7f37", "#cf222e", "#8250df"


def regime_map() -> str:
    """Who wins over bandwidth and length, with measured copies as the copy path."""
    asked = question(MODEL, Given(accelerator=ACCELERATOR, curve="h100-dma"))
    return draw(asked, regime(asked.setting, asked.longest))


def bandwidth_by_copy_size() -> str:
    """What copies reach by their size: measured, by the laws fitted to that, and by the text-book's laws."""
    marked = (4, 16, 64, 256, 1024, 4096, 16384)
    sizes = tuple((k * KIB, f"{k} KiB" if k < 1024 else f"{k // 1024} MiB") for k in marked)
    ticks = tuple((v, f"{v / 1e9:g}") for v in decades(5e8, 1e11))
    plot = Plot(
        "What copies reach, by their size",
        "host to device on an H100, PCIe 5.0: dots measured, lines laws overhead + size / bandwidth",
        Axis("size of one copy", 4 * KIB / 1.15, 16384 * KIB * 1.15, sizes),
        Axis("effective bandwidth, GB/s", 5e8, 1e11, ticks, minor=tuple(decades(5e8, 1e11, range(1, 10)))),
    )
    across = spaced(plot.x.low, plot.x.high, 120)
    for overhead, place in ((5, 22), (10, 10)):
        law = Affine(overhead * 1e-6, 50e9)
        plot.line([(size, effective_bandwidth(law, size)) for size in across], FAINT, 1.4, "5 4")
        at = place * KIB
        plot.words(at, effective_bandwidth(law, at), f"{overhead} µs + size / 50 GB/s", FAINT, 11.5, shift=(6, -13))
    fit = nearest_affine(_back("h100-dma")).law
    law = Affine(float(fit.overhead), float(fit.bandwidth))
    plot.line([(size, effective_bandwidth(law, size)) for size in across], SWAP, 1.8)
    for name, colour in (("h100-dma", SWAP), ("h100-kernel", _GREEN), ("h100-batch-100000", _RED)):
        points = [(float(p.size), float(p.size / p.seconds)) for p in _back(name)]
        if name == "h100-batch-100000":
            plot.line(points, colour, 1, "2 3")
        plot.dots(points, colour)
    fitted = f"one copy per block (h100-dma): {law.overhead * 1e6:.2g} µs + size / {law.bandwidth / 1e9:.3g} GB/s fits"
    plot.words(150 * KIB, 22e9, fitted, SWAP, 12, shift=(6, -12))
    plot.words(5 * KIB, 31e9, "one kernel for all (h100-kernel)", _GREEN, 12, shift=(0, 8))
    plot.words(29 * KIB, 60e9, "one batched call (h100-batch-100000): no such law fits", _RED, 12, shift=(0, 10))
    even = float(answer(naive(), Fraction(4096)).break_even)
    plot.line([(plot.x.low, even), (plot.x.high, even)], INK, 2.2)
    said = f"break-even of Llama-3.1-8B at 4,096 tokens: {even / 1e9:.3g} GB/s"
    plot.words(plot.x.high, even, said, INK, 12.5, "end", bold=True, shift=(-8, 7))
    plot.line([(32 * KIB, plot.y.low), (32 * KIB, plot.y.high)], INK, 1, "2 3")
    plot.words(32 * KIB, plot.y.low, "16 tokens of one layer's K or V: 32 KiB", INK, 12, shift=(7, 9))
    return plot.svg()


def time_by_length() -> str:
    """What a victim's return costs per token, by its length, by each way; and measured prefills and loads."""
    exact = naive()
    blocks, batched = (smooth(mapped(q.setting, float)) for q in (exact, _batched()))
    lengths = spaced(16.0, float(exact.longest), 160)
    ticks = tuple((v, f"{v * 1e6:g}") for v in decades(2e-6, 5e-4))
    plot = Plot(
        "What it takes to bring a victim back",
        "Llama-3.1-8B on an H100 at half of its peak, out and back; dots: measured prefills, and loads (back only)",
        length_axis(lengths[0], lengths[-1]),
        Axis("time per token, µs", 2e-6, 5e-4, ticks, minor=tuple(decades(2e-6, 5e-4, range(1, 10)))),
    )
    riding = evolve(blocks, run=Run.PIGGYBACK)
    for setting, cost, colour, dash in (
        (riding, recompute_cost, RECOMPUTE, "3 4"),
        (blocks, recompute_cost, RECOMPUTE, ""),
        (blocks, swap_cost, SWAP, ""),
        (batched, swap_cost, SWAP, "8 4"),
        (blocks, _both, _PURPLE, ""),
    ):
        plot.line([(length, cost(setting, length) / length) for length in lengths], colour, 2.2, dash)
    for x, y, text, colour in (
        (280, 50e-6, "swap, 32 KiB copies at 5 µs each", SWAP),
        (280, 5.7e-6, "swap, one copy at 50 GB/s", SWAP),
        (23, 220e-6, "recompute alone: reads the weights once", RECOMPUTE),
        (19, 27e-6, "recompute riding along", RECOMPUTE),
        (1200, 14.5e-6, "both at once: the front recomputed, the rest swapped", _PURPLE),
    ):
        plot.words(x, y, text, colour, 12.5, bold=True)
    for edge in answer(exact, Fraction(4096)).recompute_lengths:
        for length, right, up in ((edge.first, 8, 10), (edge.last, -8, 9)):
            at = float(length)
            plot.dots([(at, swap_cost(blocks, at) / at)], INK)
            anchor: Anchor = "start" if right > 0 else "end"
            plot.words(at, swap_cost(blocks, at) / at, f"{length:,} tokens", INK, 12, anchor, shift=(right, up))
    times = next(t for t in request_times() if t.model == MODEL)
    for column, colour, name, up in ((times.compute, RECOMPUTE, "prefill", -16), (times.load, SWAP, "load", -16)):
        points = [(float(n), float(t / n)) for n, t in zip(times.tokens, column, strict=True)]
        plot.dots(points, colour)
        plot.words(*points[1], f"measured {name}", colour, 11.5, "middle", shift=(0, up))
    return plot.svg()


def _both(setting: Setting[float], length: float) -> float:
    """The best division, over parts of tokens: where both parts end together."""
    low, high = 0.0, length
    for _ in range(60):
        front = (low + high) / 2
        if recompute_front(setting, front) < swap_rest(setting, length, front):
            low = front
        else:
            high = front
    return min(best_cost(setting, length), hybrid_time(setting, length, high))


def naive() -> Question:
    """Copies block by block at 5 µs each: the setting that most of the page speaks of."""
    return question(MODEL, Given(accelerator=ACCELERATOR, bandwidth="50GB/s", copy_overhead="5us"))


def _batched() -> Question:
    return question(MODEL, Given(accelerator=ACCELERATOR, bandwidth="50GB/s"))


def _back(name: str) -> Points:
    points = find_curve(name).back
    assert points is not None  # the curves drawn here were measured that way
    return points


#: File below docs/figures -> what draws it.
FIGURES: Final[Mapping[str, Callable[[], str]]] = {
    "regime-map.svg": regime_map,
    "bandwidth-by-copy-size.svg": bandwidth_by_copy_size,
    "time-by-length.svg": time_by_length,
}


def drawn() -> Iterator[tuple[str, str]]:
    """Each file and what it should hold."""
    for name, figure in FIGURES.items():
        yield name, figure()
