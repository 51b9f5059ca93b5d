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
from preempt_oracle.report.figure import FAINT, INK, begin, decades, dots, line, logarithmic, settings, svg, words
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
    title = "What copies reach, by their size"
    subtitle = "host to device on an H100, PCIe 5.0: dots measured, lines laws overhead + size / bandwidth"
    marked = (4, 16, 64, 256, 1024, 4096, 16384)
    sizes = [(k * KIB, f"{k} KiB" if k < 1024 else f"{k // 1024} MiB") for k in marked]
    least, most = 4 * KIB / 1.15, 16384 * KIB * 1.15
    low, high = 5e8, 1e11
    across = spaced(least, most, 120)
    fit = nearest_affine(_back("h100-dma")).law
    law = Affine(float(fit.overhead), float(fit.bandwidth))
    even = float(answer(naive(), Fraction(4096)).break_even)
    with settings():
        axes = begin(title, subtitle)
        logarithmic(axes, "x", "size of one copy", (least, most), sizes)
        ticks = [(v, f"{v / 1e9:g}") for v in decades(low, high)]
        minor = decades(low, high, range(1, 10))
        logarithmic(axes, "y", "effective bandwidth, GB/s", (low, high), ticks, minor)
        for overhead in (5, 10):
            usual = Affine(overhead * 1e-6, 50e9)
            line(axes, across, [effective_bandwidth(usual, size) for size in across], FAINT, 1, (3.75, 3))
        line(axes, across, [effective_bandwidth(law, size) for size in across], SWAP, 1.4)
        for name, colour in (("h100-dma", SWAP), ("h100-kernel", _GREEN), ("h100-batch-100000", _RED)):
            points = _back(name)
            x, y = [float(p.size) for p in points], [float(p.size / p.seconds) for p in points]
            if name == "h100-batch-100000":
                line(axes, x, y, colour, 0.75, (1.5, 2.25))
            dots(axes, x, y, colour)
        line(axes, (least, most), (even, even), INK, 1.7)
        line(axes, (32 * KIB, 32 * KIB), (low, high), INK, 0.75, (1.5, 2.25))
        fitted = f"{law.overhead * 1e6:.2g} µs + size / {law.bandwidth / 1e9:.3g} GB/s fits"
        said = f"break-even of Llama-3.1-8B at 4,096 tokens: {even / 1e9:.3g} GB/s"
        for text, place, colour, size in (
            ("5 µs", (6.7 * KIB, effective_bandwidth(Affine(5e-6, 50e9), 6.7 * KIB), 0, 0), FAINT, 8.6),
            ("10 µs", (6.7 * KIB, effective_bandwidth(Affine(10e-6, 50e9), 6.7 * KIB), 0, 0), FAINT, 8.6),
            ("dashed: 5 or 10 µs + size / 50 GB/s", (32 * KIB, 1.05e9, 6, 3), FAINT, 9),
            (f"one copy per block (h100-dma): {fitted}", (200 * KIB, 19e9, 6, -3), SWAP, 9),
            ("one kernel (h100-kernel)", (25 * KIB, 33e9, -0.1, 3), _GREEN, 9),
            ("one batched call (h100-batch-100000): no such law fits", (32 * KIB, 58e9, 6, 3), _RED, 9),
            ("16 tokens of one layer's K or V: 32 KiB", (32 * KIB, low, 6, 5), INK, 9),
        ):
            words(axes, text, [place], colour, size)
        words(axes, said, [(most, even, -6, 3)], INK, 9.4, bold=True)
        return svg(axes, title, subtitle)


def time_by_length() -> str:
    """What a victim's return costs per token, by its length, by each way; and measured prefills and loads."""
    title = "What it takes to bring a victim back"
    subtitle = (
        "Llama-3.1-8B on an H100 at half of its peak, out and back; dots: measured prefills, and loads (back only)"
    )
    exact = naive()
    blocks, batched = (smooth(mapped(q.setting, float)) for q in (exact, _batched()))
    riding = evolve(blocks, run=Run.PIGGYBACK)
    lengths = spaced(16.0, float(exact.longest), 160)
    low, high = 2e-6, 5e-4
    times = next(t for t in request_times() if t.model == MODEL)
    with settings():
        axes = begin(title, subtitle)
        length_axis(axes, lengths[0], lengths[-1])
        ticks = [(v, f"{v * 1e6:g}") for v in decades(low, high)]
        logarithmic(axes, "y", "time per token, µs", (low, high), ticks, decades(low, high, range(1, 10)))
        for setting, cost, colour, dash in (
            (riding, recompute_cost, RECOMPUTE, (2.25, 3)),
            (blocks, recompute_cost, RECOMPUTE, ()),
            (blocks, swap_cost, SWAP, ()),
            (batched, swap_cost, SWAP, (6, 3)),
            (blocks, _both, _PURPLE, ()),
        ):
            line(axes, lengths, [cost(setting, length) / length for length in lengths], colour, 1.65, dash)
        for column, colour, name, up in ((times.compute, RECOMPUTE, "prefill", -0.1), (times.load, SWAP, "load", 0.1)):
            prompts = [float(n) for n in times.tokens]
            each = [float(t / n) for n, t in zip(times.tokens, column, strict=True)]
            dots(axes, prompts, each, colour)
            words(axes, f"measured {name}", [(prompts[0], each[0], 6, up)], colour, 8.6)
        for edge in answer(exact, Fraction(4096)).recompute_lengths:
            for length, right in ((edge.first, 5), (edge.last, -5)):
                at = float(length)
                dots(axes, [at], [swap_cost(blocks, at) / at], INK)
                words(axes, f"{length:,} tokens", [(at, swap_cost(blocks, at) / at, right, 4)])
        for x, y, text, colour in (
            (280, 46e-6, "swap, 32 KiB copies at 5 µs each", SWAP),
            (280, 5.3e-6, "swap, one copy at 50 GB/s", SWAP),
            (24, 205e-6, "recompute alone: reads the weights once", RECOMPUTE),
            (19, 25e-6, "recompute riding along", RECOMPUTE),
            (1200, 13.5e-6, "both at once: the front recomputed, the rest swapped", _PURPLE),
        ):
            words(axes, text, [(x, y, 0.1, 3)], colour, 9.4, bold=True)
        return svg(axes, title, subtitle)


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
