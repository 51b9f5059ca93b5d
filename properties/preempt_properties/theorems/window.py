"""Layers that keep a bounded amount: sliding windows and recurrent states."""

from __future__ import annotations

from typing import Any

from preempt_properties.theorems.settings import ONE, device, layers, link, shape, transfer
from preempt_properties.theorems.theorem import (
    ATTENTION,
    BANDWIDTH,
    BLOCK,
    BYTES,
    FLOPS,
    KV,
    LENGTH,
    PARAMS,
    Theorem,
    equal,
    positive,
)
from preempt_spec.cost.decide import Choice, Setting, break_even_bandwidth, choose, recompute_cost, swap_cost
from preempt_spec.cost.recompute import Run
from preempt_spec.cost.shape import Shape, State
from preempt_spec.cost.swap import moved_bytes

WINDOW = positive("tokens", 128, 131_072)

_WINDOWED = {
    "kv": KV,
    "params": PARAMS,
    "pair": ATTENTION,
    "flops": FLOPS,
    "bandwidth": BANDWIDTH,
    "window": WINDOW,
}
_BEYOND = {"both are beyond the window": lambda short, long, window: window <= short and window <= long}


def _windowed(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, window: Any, **how: Any) -> Setting[Any]:
    return Setting(
        shape(params, layers(kv, pair, window=window)), device(flops), transfer(link(bandwidth), **how), Run.PIGGYBACK
    )


def _recurrent(state: Any, params: Any, flops: Any, bandwidth: Any) -> Setting[Any]:
    return Setting(
        Shape(params, params, (), State(state, ONE)), device(flops), transfer(link(bandwidth)), Run.PIGGYBACK
    )


def _blocks(kv: Any, window: Any, block: Any, length: Any) -> Any:
    return moved_bytes(
        shape(ONE, layers(kv, window=window)), transfer(link(ONE), block=block, whole_blocks=True), length
    )


THEOREMS = (
    Theorem(
        id="window/n49-swap-saturates",
        sentence="Beyond a sliding window a longer request takes no longer to swap, in whole blocks too.",
        parameters={"kv": KV, "window": WINDOW, "block": BLOCK, "short": LENGTH, "long": LENGTH},
        hypotheses=_BEYOND,
        claim=lambda kv, window, block, short, long: equal(
            _blocks(kv, window, block, short), _blocks(kv, window, block, long)
        ),
    ),
    Theorem(
        id="window/n50-full-before",
        sentence="Up to the window, a sliding window changes neither cost.",
        parameters={**_WINDOWED, "length": LENGTH},
        hypotheses={"the request fits in the window": lambda length, window: length <= window},
        claim=lambda kv, params, pair, flops, bandwidth, window, length: (
            equal(
                swap_cost(setting := _windowed(kv, params, pair, flops, bandwidth, window), length),
                swap_cost(full := _windowed(kv, params, pair, flops, bandwidth, None), length),
            )
            and equal(recompute_cost(setting, length), recompute_cost(full, length))
        ),
    ),
    Theorem(
        id="window/t74-swap-from-some-length",
        sentence="With a window of w tokens swap wins from some length on over any link: at the latest when the "
        "products of the whole request take as long as the round trip of w tokens.",
        parameters={**_WINDOWED, "length": LENGTH},
        hypotheses={
            "products take as long as the swap of a window": lambda kv, params, flops, bandwidth, window, length: (
                recompute_cost(_windowed(kv, params, 0, flops, bandwidth, window), length)
                >= swap_cost(_windowed(kv, params, 0, flops, bandwidth, None), window)
            )
        },
        claim=lambda kv, params, pair, flops, bandwidth, window, length: (
            choose(_windowed(kv, params, pair, flops, bandwidth, window), length) is Choice.SWAP
        ),
    ),
    Theorem(
        id="window/n51-break-even-falls",
        sentence="Beyond the window the break-even bandwidth falls at least in proportion to the length.",
        parameters={**{k: v for k, v in _WINDOWED.items() if k != "bandwidth"}, "short": LENGTH, "long": LENGTH},
        hypotheses={
            "the second request is longer": lambda short, long: short < long,
            "the first fills the window": lambda short, window: window <= short,
        },
        claim=lambda kv, params, pair, flops, window, short, long: (
            break_even_bandwidth(setting := _windowed(kv, params, pair, flops, ONE, window), long) * long
            <= break_even_bandwidth(setting, short) * short
        ),
    ),
    Theorem(
        id="window/n52-narrower",
        sentence="A narrower window never makes either cost larger.",
        parameters={**_WINDOWED, "wider": WINDOW, "length": LENGTH},
        hypotheses={"the second window is wider": lambda window, wider: window < wider},
        claim=lambda kv, params, pair, flops, bandwidth, window, wider, length: (
            swap_cost(narrow := _windowed(kv, params, pair, flops, bandwidth, window), length)
            <= swap_cost(wide := _windowed(kv, params, pair, flops, bandwidth, wider), length)
            and recompute_cost(narrow, length) <= recompute_cost(wide, length)
        ),
    ),
    Theorem(
        id="window/t56-constant-state",
        sentence="A state of constant size is swapped exactly from the length on whose products take longer than its "
        "round trip.",
        parameters={"state": BYTES, "params": PARAMS, "flops": FLOPS, "bandwidth": BANDWIDTH, "length": LENGTH},
        claim=lambda state, params, flops, bandwidth, length: (
            (choose(_recurrent(state, params, flops, bandwidth), length) is Choice.SWAP)
            == (length > state * flops / (params * bandwidth))
        ),
    ),
    Theorem(
        id="window/n53-state-break-even",
        sentence="For a state of constant size the break-even bandwidth falls in proportion to the length.",
        parameters={
            "state": BYTES,
            "params": PARAMS,
            "flops": FLOPS,
            "length": LENGTH,
            "factor": positive("", 1, 100),
        },
        claim=lambda state, params, flops, length, factor: equal(
            factor * break_even_bandwidth(_recurrent(state, params, flops, ONE), factor * length),
            break_even_bandwidth(_recurrent(state, params, flops, ONE), length),
        ),
    ),
)
