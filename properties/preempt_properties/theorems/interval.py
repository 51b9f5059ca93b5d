"""Is the set of lengths at which recompute wins an interval? With a weight read, windows and fixed costs, it is."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

from preempt_properties.theorems.settings import ONE, alone, device, layers, link, plain, shape, transfer
from preempt_properties.theorems.theorem import (
    ATTENTION,
    BANDWIDTH,
    BYTES,
    FLOPS,
    KV,
    LENGTH,
    MEMORY,
    PARAMS,
    SECONDS,
    Kind,
    Theorem,
    nonnegative,
    positive,
)
from preempt_spec.cost.copies import Piecewise
from preempt_spec.cost.decide import Choice, Setting, choose, recompute_cost, swap_cost
from preempt_spec.cost.lengths import rates, recompute_lengths
from preempt_spec.cost.recompute import Run

WINDOW = positive("tokens", 128, 131_072)


_PLAIN = {"kv": KV, "params": PARAMS, "pair": ATTENTION, "flops": FLOPS, "bandwidth": BANDWIDTH}


_ALONE = {**_PLAIN, "weights": BYTES, "memory": MEMORY}


def _recompute_wins(setting: Setting[Any], length: Any) -> bool:
    return bool(recompute_cost(setting, length) < swap_cost(setting, length))


def _swap_wins(setting: Setting[Any], length: Any) -> bool:
    return choose(setting, length) is Choice.SWAP


def _gathered(
    kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, overhead: Any, floor: Any, window: Any = None
) -> Setting[Any]:
    """A lone pass against one copy with a fixed cost; `floor`: seconds of the weight read."""
    return Setting(
        shape=shape(params, layers(kv, pair, window=window), weights=floor),
        device=device(flops),
        transfer=transfer(link(bandwidth, overhead)),
        run=Run.ALONE,
    )


def _mixed(kv: Any, windowed: Any, params: Any, pair: Any, scores: Any, bandwidth: Any, window: Any) -> Setting[Any]:
    """Layers with a window beside layers without; 1 FLOP/s, so the rates are those of 1 FLOP/s-normalised costs."""
    return Setting(
        shape=shape(params, layers(kv, pair), layers(windowed, scores, window=window)),
        device=device(ONE),
        transfer=transfer(link(bandwidth)),
        run=Run.PIGGYBACK,
    )


def _between(setting: Setting[Any], short: Any, middle: Any, long: Any) -> bool:
    """Recompute wins at the middle length if it does at the other two."""
    if not (_recompute_wins(setting, short) and _recompute_wins(setting, long)):
        return True
    return _recompute_wins(setting, middle)


def _buffered(kv: Any, params: Any, pair: Any, flops: Any, pinned: Any, pageable: Any, buffer: Any) -> Setting[Any]:
    """One gathered copy each way: through pinned memory if it fits in the buffer, otherwise through pageable memory."""
    return Setting(
        shape=shape(params, layers(kv, pair)),
        device=device(flops),
        transfer=transfer(Piecewise(link(pinned), buffer, link(pageable))),
        run=Run.PIGGYBACK,
    )


_ORDER = {"the three lengths are in order": lambda short, middle, long: short < middle < long}


_LONGER = {"the second request is longer": lambda short, long: short < long}


def _found(params: Any, pair: Any, bandwidth: Any) -> bool:
    setting = plain(ONE, params, pair, ONE, bandwidth)
    spans = recompute_lengths(setting, 3)
    in_order = all(one.last + 1 < other.first for one, other in pairwise(spans))
    return in_order and all(
        any(span.first <= n <= span.last for span in spans) == _recompute_wins(setting, Fraction(n))
        for n in range(1, 4)
    )


THEOREMS = (
    Theorem(
        id="interval/t67-crossing-with-floor",
        kind=Kind.FALSE,
        sentence="A recompute in a pass of its own changes nothing: if swap wins at some length, it wins at every "
        "greater length.",
        parameters={**_ALONE, "short": LENGTH, "long": LENGTH},
        hypotheses={
            **_LONGER,
            "swap wins at the shorter": lambda kv, params, pair, flops, bandwidth, weights, memory, short: _swap_wins(
                alone(kv, params, pair, flops, bandwidth, weights=weights, memory=memory), short
            ),
        },
        claim=lambda kv, params, pair, flops, bandwidth, weights, memory, long: _swap_wins(
            alone(kv, params, pair, flops, bandwidth, weights=weights, memory=memory), long
        ),
        at={
            "kv": 131_072,
            "params": 8_030_000_000,
            "pair": 524_288,
            "flops": 494_500_000_000_000,
            "bandwidth": 4_000_000_000,
            "weights": 16_060_000_000,
            "memory": 3_350_000_000_000,
            "short": 64,
            "long": 4_096,
        },
        shows={
            "swap, short": (
                lambda kv, params, pair, flops, bandwidth, weights, memory, short: swap_cost(
                    alone(kv, params, pair, flops, bandwidth, weights=weights, memory=memory), short
                ),
                "s",
            ),
            "recompute, short": (
                lambda kv, params, pair, flops, bandwidth, weights, memory, short: recompute_cost(
                    alone(kv, params, pair, flops, bandwidth, weights=weights, memory=memory), short
                ),
                "s",
            ),
            "swap, long": (
                lambda kv, params, pair, flops, bandwidth, weights, memory, long: swap_cost(
                    alone(kv, params, pair, flops, bandwidth, weights=weights, memory=memory), long
                ),
                "s",
            ),
            "recompute, long": (
                lambda kv, params, pair, flops, bandwidth, weights, memory, long: recompute_cost(
                    alone(kv, params, pair, flops, bandwidth, weights=weights, memory=memory), long
                ),
                "s",
            ),
        },
    ),
    Theorem(
        id="interval/t68-interval",
        sentence="With a weight read and a fixed cost of the gathered copy, recompute still wins on an interval: what "
        "it wins at two lengths it wins in between.",
        parameters={
            **_PLAIN,
            "overhead": SECONDS,
            "floor": SECONDS,
            "short": LENGTH,
            "middle": LENGTH,
            "long": LENGTH,
        },
        hypotheses=_ORDER,
        claim=lambda kv, params, pair, flops, bandwidth, overhead, floor, short, middle, long: _between(
            _gathered(kv, params, pair, flops, bandwidth, overhead, floor), short, middle, long
        ),
    ),
    Theorem(
        id="interval/n25-interval-with-window",
        sentence="With sliding-window layers beside full-attention ones, recompute still wins on an interval of "
        "lengths.",
        parameters={
            "kv": nonnegative("B/token", 0, 4_000_000),
            "windowed": KV,
            "params": PARAMS,
            "pair": nonnegative("FLOP/pair", 0, 1e7),
            "scores": nonnegative("FLOP/pair", 0, 1e7),
            "bandwidth": BANDWIDTH,
            "window": WINDOW,
            "short": LENGTH,
            "middle": LENGTH,
            "long": LENGTH,
        },
        hypotheses=_ORDER,
        claim=lambda kv, windowed, params, pair, scores, bandwidth, window, short, middle, long: _between(
            _mixed(kv, windowed, params, pair, scores, bandwidth, window), short, middle, long
        ),
    ),
    Theorem(
        id="interval/n26-interval-with-switch",
        kind=Kind.FALSE,
        sentence="Recompute wins on an interval of lengths over any copy path, also one that falls back to pageable "
        "memory above some size.",
        parameters={
            "kv": KV,
            "params": PARAMS,
            "pair": ATTENTION,
            "flops": FLOPS,
            "pinned": BANDWIDTH,
            "pageable": BANDWIDTH,
            "buffer": BYTES,
            "short": LENGTH,
            "middle": LENGTH,
            "long": LENGTH,
        },
        hypotheses=_ORDER,
        claim=lambda kv, params, pair, flops, pinned, pageable, buffer, short, middle, long: _between(
            _buffered(kv, params, pair, flops, pinned, pageable, buffer), short, middle, long
        ),
        at={
            "kv": 131_072,
            "params": 8_030_000_000,
            "pair": 524_288,
            "flops": 494_500_000_000_000,
            "pinned": 6_000_000_000,
            "pageable": 4_000_000_000,
            "buffer": 4_294_967_296,
            "short": 8_192,
            "middle": 32_000,
            "long": 40_000,
        },
        shows={
            "swap, short": (
                lambda kv, params, pair, flops, pinned, pageable, buffer, short: swap_cost(
                    _buffered(kv, params, pair, flops, pinned, pageable, buffer), short
                ),
                "s",
            ),
            "recompute, short": (
                lambda kv, params, pair, flops, pinned, pageable, buffer, short: recompute_cost(
                    _buffered(kv, params, pair, flops, pinned, pageable, buffer), short
                ),
                "s",
            ),
            "swap, middle": (
                lambda kv, params, pair, flops, pinned, pageable, buffer, middle: swap_cost(
                    _buffered(kv, params, pair, flops, pinned, pageable, buffer), middle
                ),
                "s",
            ),
            "recompute, middle": (
                lambda kv, params, pair, flops, pinned, pageable, buffer, middle: recompute_cost(
                    _buffered(kv, params, pair, flops, pinned, pageable, buffer), middle
                ),
                "s",
            ),
            "swap, long": (
                lambda kv, params, pair, flops, pinned, pageable, buffer, long: swap_cost(
                    _buffered(kv, params, pair, flops, pinned, pageable, buffer), long
                ),
                "s",
            ),
            "recompute, long": (
                lambda kv, params, pair, flops, pinned, pageable, buffer, long: recompute_cost(
                    _buffered(kv, params, pair, flops, pinned, pageable, buffer), long
                ),
                "s",
            ),
        },
    ),
    Theorem(
        id="interval/t69-lower-edge",
        sentence="Below the lower edge a lone recompute loses: its weight read alone takes longer than the swap.",
        parameters={**_ALONE, "length": LENGTH},
        hypotheses={
            "the request is shorter than the lower edge": lambda kv, bandwidth, weights, memory, length: (
                length * rates(plain(kv, ONE, ONE, ONE, bandwidth)).swap < weights / memory
            )
        },
        claim=lambda kv, params, pair, flops, bandwidth, weights, memory, length: _swap_wins(
            alone(kv, params, pair, flops, bandwidth, weights=weights, memory=memory), length
        ),
    ),
    Theorem(
        id="interval/n98-search",
        sentence="The search over whole lengths finds exactly those at which recompute wins (run symbolically, up to "
        "three tokens, recompute riding along).",
        parameters={"params": PARAMS, "pair": ATTENTION, "bandwidth": BANDWIDTH},
        claim=_found,
    ),
)
