"""What a recompute costs: products with weights, causal attention, and the weight read of a pass of its own."""

from __future__ import annotations

from typing import Any

from preempt_properties.theorems.settings import device, layers, shape
from preempt_properties.theorems.theorem import (
    ATTENTION,
    BYTES,
    FLOPS,
    LENGTH,
    MEMORY,
    PARAMS,
    TOKENS,
    Kind,
    Theorem,
    equal,
    nonnegative,
    positive,
    share,
)
from preempt_spec.cost.recompute import (
    Device,
    Run,
    attention_flops,
    causal_pairs,
    compute_time,
    counted_pairs,
    gemm_flops,
    recompute_time,
    weight_time,
)
from preempt_spec.cost.shape import Attention, layers_of

#: Attention's rate as a share of the rate of products with weights; some kernels are above 1.
RATIO = positive("", 0.3, 1.5)
WINDOW = positive("tokens", 128, 131_072)
CACHED = nonnegative("tokens", 0, 1e6)


def _work(params: Any, pair: Any, flops: Any, ratio: Any, length: Any, cached: Any = 0, window: Any = None) -> Any:
    return compute_time(shape(params, layers(1, pair, window=window)), device(flops, attention=ratio), length, cached)


def _pass(
    params: Any, pair: Any, flops: Any, weights: Any, memory: Any, length: Any, cached: Any = 0, run: Run = Run.ALONE
) -> Any:
    return recompute_time(shape(params, layers(1, pair), weights=weights), device(flops, memory), length, cached, run)


def _chunks_add_up(params: Any, pair: Any, flops: Any, ratio: Any, start: Any, more: Any, window: Any) -> bool:
    apart = _work(params, pair, flops, ratio, start, 0, window)
    apart += _work(params, pair, flops, ratio, start + more, start, window)
    return equal(apart, _work(params, pair, flops, ratio, start + more, 0, window))


def _chunks_alone(
    params: Any, pair: Any, flops: Any, weights: Any, memory: Any, start: Any, more: Any
) -> tuple[Any, Any]:
    """Two passes, and the one."""
    first = _pass(params, pair, flops, weights, memory, start)
    second = _pass(params, pair, flops, weights, memory, start + more, start)
    return first + second, _pass(params, pair, flops, weights, memory, start + more)


def _efficiencies(params: Any, pair: Any, peak: Any, gemm: Any, attention: Any, length: Any) -> Any:
    return compute_time(shape(params, layers(1, pair)), Device(peak, peak, gemm, attention), length)


def _kernels_take_their_shares(params: Any, pair: Any, peak: Any, gemm: Any, attention: Any, length: Any) -> bool:
    of = shape(params, layers(1, pair))
    products, scores = gemm_flops(of, length), attention_flops(of, length)
    seconds = _efficiencies(params, pair, peak, gemm, attention, length)
    return equal(seconds * peak, products / gemm + scores / attention)


def _pairs_ignore_kv_heads(heads: Any, key: Any, value: Any, kv_heads: Any) -> bool:
    def pair(kv: Any) -> Any:
        return layers_of(Attention(1, heads, kv, key, value), heads / heads, heads / heads).pair_flops

    return equal(pair(kv_heads), pair(heads))


_WORK = {"params": PARAMS, "pair": ATTENTION, "flops": FLOPS, "ratio": RATIO}
_ALONE = {"params": PARAMS, "pair": ATTENTION, "flops": FLOPS, "weights": BYTES, "memory": MEMORY}

THEOREMS = (
    Theorem(
        id="recompute/t02-longer",
        sentence="A longer request takes strictly longer to recompute.",
        parameters={**_WORK, "short": LENGTH, "long": LENGTH},
        hypotheses={"the second request is longer": lambda short, long: short < long},
        claim=lambda params, pair, flops, ratio, short, long: (
            _work(params, pair, flops, ratio, short) < _work(params, pair, flops, ratio, long)
        ),
    ),
    Theorem(
        id="recompute/t02-longer-per-token",
        sentence="Each token of a longer request costs more to recompute, because attention looks further back.",
        parameters={**_WORK, "short": LENGTH, "long": LENGTH},
        hypotheses={"the second request is longer": lambda short, long: short < long},
        claim=lambda params, pair, flops, ratio, short, long: (
            _work(params, pair, flops, ratio, short) / short < _work(params, pair, flops, ratio, long) / long
        ),
    ),
    Theorem(
        id="recompute/t03-faster-gpu",
        sentence="A GPU with a higher achieved FLOP/s recomputes strictly faster.",
        parameters={
            "params": PARAMS,
            "pair": ATTENTION,
            "slow": FLOPS,
            "fast": FLOPS,
            "ratio": RATIO,
            "length": LENGTH,
        },
        hypotheses={"the second GPU is faster": lambda slow, fast: slow < fast},
        claim=lambda params, pair, slow, fast, ratio, length: (
            _work(params, pair, fast, ratio, length) < _work(params, pair, slow, ratio, length)
        ),
    ),
    Theorem(
        id="recompute/t03-more-parameters",
        sentence="A model with more active parameters takes strictly longer to recompute.",
        parameters={
            "few": PARAMS,
            "many": PARAMS,
            "pair": ATTENTION,
            "flops": FLOPS,
            "ratio": RATIO,
            "length": LENGTH,
        },
        hypotheses={"the second model has more": lambda few, many: few < many},
        claim=lambda few, many, pair, flops, ratio, length: (
            _work(few, pair, flops, ratio, length) < _work(many, pair, flops, ratio, length)
        ),
    ),
    Theorem(
        id="recompute/n04-each-kernel-its-efficiency",
        sentence="Products with weights run at their own share of the peak and attention at its own: the times add.",
        parameters={
            "params": PARAMS,
            "pair": ATTENTION,
            "peak": FLOPS,
            "gemm": positive("", 0.3, 0.9),
            "attention": positive("", 0.2, 0.8),
            "length": LENGTH,
        },
        claim=_kernels_take_their_shares,
    ),
    Theorem(
        id="recompute/n05-one-efficiency-flatters",
        sentence="If attention runs less efficiently than the products, one efficiency for both is too low an "
        "estimate.",
        parameters={
            "params": PARAMS,
            "pair": ATTENTION,
            "peak": FLOPS,
            "gemm": positive("", 0.3, 0.9),
            "attention": positive("", 0.2, 0.8),
            "length": LENGTH,
        },
        hypotheses={"attention is the less efficient kernel": lambda gemm, attention: attention < gemm},
        claim=lambda params, pair, peak, gemm, attention, length: (
            _efficiencies(params, pair, peak, gemm, gemm, length)
            < _efficiencies(params, pair, peak, gemm, attention, length)
        ),
    ),
    Theorem(
        id="recompute/n06-grouping-saves-no-flops",
        sentence="Grouped-query attention saves bytes, not arithmetic: FLOP per pair do not depend on the KV heads.",
        parameters={
            "heads": positive("heads", 8, 128),
            "key": positive("elements", 64, 256),
            "value": positive("elements", 64, 256),
            "kv_heads": positive("heads", 1, 128),
        },
        claim=_pairs_ignore_kv_heads,
    ),
    Theorem(
        id="recompute/t65-chunks",
        sentence="Cutting a prefill into chunks changes nothing of its arithmetic, sliding window or not.",
        parameters={**_WORK, "start": LENGTH, "more": LENGTH, "window": WINDOW},
        claim=_chunks_add_up,
    ),
    Theorem(
        id="recompute/n07-chunks-alone",
        sentence="Chunks that each run in a pass of their own are never faster than the one pass.",
        parameters={**_ALONE, "start": LENGTH, "more": LENGTH},
        claim=lambda params, pair, flops, weights, memory, start, more: (
            (both := _chunks_alone(params, pair, flops, weights, memory, start, more))[0] >= both[1]
        ),
    ),
    Theorem(
        id="recompute/n08-chunks-alone-extra",
        sentence="Cutting a lone prefill in two costs at most one more reading of the weights.",
        parameters={**_ALONE, "start": LENGTH, "more": LENGTH},
        claim=lambda params, pair, flops, weights, memory, start, more: (
            (both := _chunks_alone(params, pair, flops, weights, memory, start, more))[0] - both[1] <= weights / memory
        ),
    ),
    Theorem(
        id="recompute/t66-sum-base",
        sentence="Counted one by one, no tokens make no pairs of a query and a key.",
        parameters={"length": LENGTH},
        claim=lambda length: equal(counted_pairs(length, length), 0 * length),
    ),
    Theorem(
        id="recompute/t66-sum-step",
        sentence="The closed form of the counted pairs is right: token number L, counted from 0, adds L + 1 of them.",
        parameters={"cached": nonnegative("tokens", 0, 1e6), "length": nonnegative("tokens", 0, 1e6)},
        claim=lambda cached, length: equal(
            counted_pairs(length + 1, cached) - counted_pairs(length, cached), length + 1
        ),
    ),
    Theorem(
        id="recompute/n09-half-a-pair",
        sentence="The model's count of pairs is lower than the one-by-one count by exactly half a pair per token.",
        parameters={"cached": nonnegative("tokens", 0, 1e6), "length": LENGTH},
        claim=lambda cached, length: equal(
            counted_pairs(length, cached) - causal_pairs(length, cached), (length - cached) / 2
        ),
    ),
    Theorem(
        id="recompute/n10-window-saves",
        sentence="A sliding window never adds attention, and within the window it saves none.",
        parameters={"length": LENGTH, "window": WINDOW},
        claim=lambda length, window: (
            causal_pairs(length, 0, window) < causal_pairs(length)
            if length > window
            else equal(causal_pairs(length, 0, window), causal_pairs(length))
        ),
    ),
    Theorem(
        id="recompute/n11-window-is-linear",
        sentence="Beyond the window each further token attends to exactly a window of tokens.",
        parameters={"cached": CACHED, "more": LENGTH, "window": WINDOW},
        hypotheses={"the cached prefix fills the window": lambda cached, window: cached >= window},
        claim=lambda cached, more, window: equal(causal_pairs(cached + more, cached, window), window * more),
    ),
    Theorem(
        id="recompute/n12-floor",
        sentence="A recompute that runs alone never takes less than reading the weights once, whatever its length.",
        parameters={**_ALONE, "length": LENGTH},
        claim=lambda params, pair, flops, weights, memory, length: (
            _pass(params, pair, flops, weights, memory, length)
            >= weight_time(shape(params, weights=weights), device(flops, memory))
        ),
    ),
    Theorem(
        id="recompute/n13-riding-along",
        sentence="A recompute that rides along in other requests' passes is never slower than one that runs alone.",
        parameters={**_ALONE, "length": LENGTH, "hit": share()},
        claim=lambda params, pair, flops, weights, memory, length, hit: (
            _pass(params, pair, flops, weights, memory, length, hit * length, Run.PIGGYBACK)
            <= _pass(params, pair, flops, weights, memory, length, hit * length)
        ),
    ),
    Theorem(
        id="recompute/n14-alone-strictly-longer",
        kind=Kind.FALSE,
        sentence="A longer request always takes strictly longer to recompute, also in a pass of its own.",
        parameters={**_ALONE, "short": LENGTH, "long": LENGTH},
        hypotheses={"the second request is longer": lambda short, long: short < long},
        claim=lambda params, pair, flops, weights, memory, short, long: (
            _pass(params, pair, flops, weights, memory, short) < _pass(params, pair, flops, weights, memory, long)
        ),
        at={
            "params": 8_030_000_000,
            "pair": 524_288,
            "flops": 494_500_000_000_000,
            "weights": 16_060_000_000,
            "memory": 3_350_000_000_000,
            "short": 16,
            "long": 128,
        },
        shows={
            "recompute of the shorter": (
                lambda params, pair, flops, weights, memory, short: _pass(params, pair, flops, weights, memory, short),
                "s",
            ),
            "recompute of the longer": (
                lambda params, pair, flops, weights, memory, long: _pass(params, pair, flops, weights, memory, long),
                "s",
            ),
        },
    ),
    Theorem(
        id="recompute/t50-front-is-cheaper",
        sentence="Of two equally long stretches of a request the one at its front is strictly cheaper to recompute.",
        parameters={**_WORK, "before": LENGTH, "stretch": TOKENS},
        claim=lambda params, pair, flops, ratio, before, stretch: (
            _work(params, pair, flops, ratio, stretch) < _work(params, pair, flops, ratio, before + stretch, before)
        ),
    ),
)
