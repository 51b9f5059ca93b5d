"""The cheaper of the two ways: how its cost grows, and how bad it is to always do the one or the other."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from preempt_properties.theorems.settings import alone, device, layers, link, plain, shape, transfer
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
    positive,
    share,
)
from preempt_spec.cost.decide import Setting, best_cost, recompute_cost, speed_up, swap_cost
from preempt_spec.cost.lengths import rates
from preempt_spec.cost.recompute import Run

_PLAIN = {"kv": KV, "params": PARAMS, "pair": ATTENTION, "flops": FLOPS, "bandwidth": BANDWIDTH}
_ALONE = {**_PLAIN, "weights": BYTES, "memory": MEMORY}
_LONGER = {"the second request is longer": lambda short, long: short < long}

#: Llama-3.1-8B in BF16 on an H100 at half of its peak.
_LLAMA = {"kv": 131_072, "params": 8_030_000_000, "pair": 524_288, "flops": 494_500_000_000_000}
_READ = {"weights": 16_060_000_000, "memory": 3_350_000_000_000}


def _per_token(setting: Setting[Any], length: Any) -> Any:
    return best_cost(setting, length) / length


def _with_overhead(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, overhead: Any) -> Setting[Any]:
    return Setting(shape(params, layers(kv, pair)), device(flops), transfer(link(bandwidth, overhead)), Run.PIGGYBACK)


def _best(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, length: Any) -> Any:
    return best_cost(plain(kv, params, pair, flops, bandwidth), length)


def _concave(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, length: Any, other: Any, part: Any) -> bool:
    setting = plain(kv, params, pair, flops, bandwidth)
    mixed = _per_token(setting, part * length + (1 - part) * other)
    return bool(mixed >= part * _per_token(setting, length) + (1 - part) * _per_token(setting, other))


def _convex_total(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, length: Any, other: Any) -> bool:
    setting = plain(kv, params, pair, flops, bandwidth)
    return bool(2 * best_cost(setting, (length + other) / 2) <= best_cost(setting, length) + best_cost(setting, other))


def _convex_bandwidth(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, other: Any, length: Any) -> bool:
    def best(b: Any) -> Any:
        return _best(kv, params, pair, flops, b, length)

    return bool(2 * best((bandwidth + other) / 2) <= best(bandwidth) + best(other))


def _witness(kv: Any, pair: Any, flops: Any, bandwidth: Any, times: Any) -> Any:
    """A length at which attention alone takes `times` as long as the swap: both costs taken to grow as they do."""
    found = rates(plain(kv, 1, pair, flops, bandwidth))
    return times * found.swap / found.attention


THEOREMS = (
    Theorem(
        id="cheaper/t72-concave-per-token",
        sentence="The cheaper way's cost per token is concave in length: mixing lengths costs less than it looks.",
        parameters={**_PLAIN, "length": LENGTH, "other": LENGTH, "part": share()},
        claim=_concave,
    ),
    Theorem(
        id="cheaper/t41-convex-total",
        kind=Kind.FALSE,
        sentence="The cheaper way's cost of a whole request is convex in length, as that of recompute is.",
        parameters={**_PLAIN, "length": LENGTH, "other": LENGTH},
        claim=_convex_total,
        at={**_LLAMA, "bandwidth": 4_000_000_000, "length": 32_768, "other": 98_304},
        shows={
            "at the shorter": (
                lambda kv, params, pair, flops, bandwidth, length: _best(kv, params, pair, flops, bandwidth, length),
                "s",
            ),
            "in the middle": (
                lambda kv, params, pair, flops, bandwidth, length, other: _best(
                    kv, params, pair, flops, bandwidth, (length + other) / 2
                ),
                "s",
            ),
            "at the longer": (
                lambda kv, params, pair, flops, bandwidth, other: _best(kv, params, pair, flops, bandwidth, other),
                "s",
            ),
        },
    ),
    Theorem(
        id="cheaper/t42-convex-in-bandwidth",
        kind=Kind.FALSE,
        sentence="The cheaper way's cost is convex in bandwidth, as that of the swap is.",
        parameters={**_PLAIN, "other": BANDWIDTH, "length": LENGTH},
        claim=_convex_bandwidth,
        at={**_LLAMA, "bandwidth": 2_000_000_000, "other": 10_000_000_000, "length": 8_192},
        shows={
            "over the slower": (
                lambda kv, params, pair, flops, bandwidth, length: _best(kv, params, pair, flops, bandwidth, length),
                "s",
            ),
            "in the middle": (
                lambda kv, params, pair, flops, bandwidth, other, length: _best(
                    kv, params, pair, flops, (bandwidth + other) / 2, length
                ),
                "s",
            ),
            "over the faster": (
                lambda kv, params, pair, flops, other, length: _best(kv, params, pair, flops, other, length),
                "s",
            ),
        },
    ),
    Theorem(
        id="cheaper/t43-shorter-victim",
        sentence="Of two victims the shorter is strictly cheaper to bring back, by whichever way is the cheaper for "
        "each.",
        parameters={**_PLAIN, "short": LENGTH, "long": LENGTH},
        hypotheses=_LONGER,
        claim=lambda kv, params, pair, flops, bandwidth, short, long: (
            _best(kv, params, pair, flops, bandwidth, short) < _best(kv, params, pair, flops, bandwidth, long)
        ),
    ),
    Theorem(
        id="cheaper/n57-shorter-victim-alone",
        sentence="If recompute runs alone, the shorter of two victims is still never the dearer one to bring back.",
        parameters={**_ALONE, "short": LENGTH, "long": LENGTH},
        hypotheses=_LONGER,
        claim=lambda kv, params, pair, flops, bandwidth, weights, memory, short, long: (
            best_cost(
                setting := alone(kv, params, pair, flops, bandwidth, weights=weights, memory=memory),
                short,
            )
            <= best_cost(setting, long)
        ),
    ),
    Theorem(
        id="cheaper/n58-shorter-victim-alone-strictly",
        kind=Kind.FALSE,
        sentence="If recompute runs alone, the shorter of two victims is still strictly cheaper to bring back.",
        parameters={**_ALONE, "short": LENGTH, "long": LENGTH},
        hypotheses=_LONGER,
        claim=lambda kv, params, pair, flops, bandwidth, weights, memory, short, long: (
            best_cost(
                setting := alone(kv, params, pair, flops, bandwidth, weights=weights, memory=memory),
                short,
            )
            < best_cost(setting, long)
        ),
        at={**_LLAMA, **_READ, "bandwidth": 4_000_000_000, "short": 80, "long": 140},
        shows={
            "of the shorter": (
                lambda kv, params, pair, flops, bandwidth, weights, memory, short: best_cost(
                    alone(kv, params, pair, flops, bandwidth, weights=weights, memory=memory), short
                ),
                "s",
            ),
            "of the longer": (
                lambda kv, params, pair, flops, bandwidth, weights, memory, long: best_cost(
                    alone(kv, params, pair, flops, bandwidth, weights=weights, memory=memory), long
                ),
                "s",
            ),
        },
    ),
    Theorem(
        id="cheaper/t44-per-freed-token",
        kind=Kind.FALSE,
        sentence="The shorter of two victims also costs less per token it frees.",
        parameters={**_PLAIN, "overhead": SECONDS, "short": LENGTH, "long": LENGTH},
        hypotheses=_LONGER,
        claim=lambda kv, params, pair, flops, bandwidth, overhead, short, long: (
            _per_token(_with_overhead(kv, params, pair, flops, bandwidth, overhead), short)
            < _per_token(_with_overhead(kv, params, pair, flops, bandwidth, overhead), long)
        ),
        at={**_LLAMA, "bandwidth": 50_000_000_000, "overhead": Fraction(1, 1_000), "short": 1_024, "long": 8_192},
        shows={
            "per token of the shorter": (
                lambda kv, params, pair, flops, bandwidth, overhead, short: _per_token(
                    _with_overhead(kv, params, pair, flops, bandwidth, overhead), short
                ),
                "s",
            ),
            "per token of the longer": (
                lambda kv, params, pair, flops, bandwidth, overhead, long: _per_token(
                    _with_overhead(kv, params, pair, flops, bandwidth, overhead), long
                ),
                "s",
            ),
        },
    ),
    Theorem(
        id="cheaper/n59-per-freed-token-no-overhead",
        sentence="Without fixed costs the shorter of two victims never costs more per token it frees.",
        parameters={**_PLAIN, "short": LENGTH, "long": LENGTH},
        hypotheses=_LONGER,
        claim=lambda kv, params, pair, flops, bandwidth, short, long: (
            _per_token(setting := plain(kv, params, pair, flops, bandwidth), short) <= _per_token(setting, long)
        ),
    ),
    Theorem(
        id="cheaper/t45-always-swap",
        sentence="However long the request, a swap takes less than r times its recompute, r being a token's swap over "
        "a token's products.",
        parameters={**_PLAIN, "length": LENGTH},
        claim=lambda kv, params, pair, flops, bandwidth, length: (
            1 / speed_up(setting := plain(kv, params, pair, flops, bandwidth), length)
            < (found := rates(setting)).swap / found.gemm
        ),
    ),
    Theorem(
        id="cheaper/t46-always-recompute",
        sentence="Always recomputing can be as bad as you like: for every factor there is a length at which it costs "
        "more than that many swaps.",
        parameters={**_PLAIN, "times": positive("", 1, 100)},
        claim=lambda kv, params, pair, flops, bandwidth, times: (
            recompute_cost(
                setting := plain(kv, params, pair, flops, bandwidth),
                length := _witness(kv, pair, flops, bandwidth, times),
            )
            > times * swap_cost(setting, length)
        ),
    ),
    Theorem(
        id="cheaper/n60-best-is-a-bound",
        sentence="The cheaper way is no dearer than either, and equals one of them.",
        parameters={**_PLAIN, "length": LENGTH},
        claim=lambda kv, params, pair, flops, bandwidth, length: (
            (best := _best(kv, params, pair, flops, bandwidth, length))
            <= (swap := swap_cost(setting := plain(kv, params, pair, flops, bandwidth), length))
            and best <= (again := recompute_cost(setting, length))
            and (best >= swap or best >= again)
        ),
    ),
)
