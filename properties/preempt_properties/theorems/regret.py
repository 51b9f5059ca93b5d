"""Regret: what deciding by a wrong estimate costs, as a factor over the best."""

from __future__ import annotations

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
    Theorem,
    equal,
    nonnegative,
    positive,
)
from preempt_spec.cost.decide import Setting, break_even_bandwidth, recompute_cost, regret, regret_bound, swap_cost
from preempt_spec.cost.recompute import Run

_PLAIN = {"kv": KV, "params": PARAMS, "pair": ATTENTION, "flops": FLOPS, "bandwidth": BANDWIDTH, "length": LENGTH}
_COPIED = {
    "kv": KV,
    "params": PARAMS,
    "pair": ATTENTION,
    "flops": FLOPS,
    "bandwidth": BANDWIDTH,
    "overhead": nonnegative("s", 1e-6, 1e-3),
    "floor": nonnegative("s", 1e-3, 1e-1),
    "length": LENGTH,
}


def _setting(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, overhead: Any, floor: Any) -> Setting[Any]:
    """A lone pass against one copy with a fixed cost; `floor`: seconds of the weight read."""
    return Setting(
        shape(params, layers(kv, pair), weights=floor), device(flops), transfer(link(bandwidth, overhead)), Run.ALONE
    )


def _wrong_bandwidth(
    kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, overhead: Any, floor: Any, length: Any, believed: Any
) -> bool:
    actual = _setting(kv, params, pair, flops, bandwidth, overhead, floor)
    estimate = _setting(kv, params, pair, flops, believed, overhead, floor)
    return bool(regret(actual, estimate, length) <= regret_bound(bandwidth, believed))


def _wrong_flops(
    kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, overhead: Any, floor: Any, length: Any, believed: Any
) -> bool:
    actual = _setting(kv, params, pair, flops, bandwidth, overhead, floor)
    estimate = _setting(kv, params, pair, believed, bandwidth, overhead, floor)
    return bool(regret(actual, estimate, length) <= regret_bound(flops, believed))


def _wrong_memory(
    kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, weights: Any, memory: Any, length: Any, believed: Any
) -> bool:
    actual = alone(kv, params, pair, flops, bandwidth, weights=weights, memory=memory)
    estimate = alone(kv, params, pair, flops, bandwidth, weights=weights, memory=believed)
    return bool(regret(actual, estimate, length) <= regret_bound(memory, believed))


def _wrong_both(
    kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, length: Any, rate: Any, speed: Any
) -> bool:
    actual, estimate = plain(kv, params, pair, flops, bandwidth), plain(kv, params, pair, rate, speed)
    return bool(regret(actual, estimate, length) <= regret_bound(flops, rate) * regret_bound(bandwidth, speed))


def _attained(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, length: Any) -> bool:
    actual = plain(kv, params, pair, flops, bandwidth)
    believed = break_even_bandwidth(actual, length)
    estimate = plain(kv, params, pair, flops, believed)
    return equal(regret(actual, estimate, length), regret_bound(bandwidth, believed))


def _same_side(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, length: Any, believed: Any) -> bool:
    actual, estimate = plain(kv, params, pair, flops, bandwidth), plain(kv, params, pair, flops, believed)
    return equal(regret(actual, estimate, length), ONE)


def _one_side(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, length: Any, believed: Any) -> bool:
    there = break_even_bandwidth(plain(kv, params, pair, flops, bandwidth), length)
    return bool((bandwidth > there) == (believed > there))


def _relative_error(
    kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, length: Any, rate: Any, speed: Any, error: Any
) -> bool:
    actual, estimate = plain(kv, params, pair, flops, bandwidth), plain(kv, params, pair, rate, speed)
    return bool(regret(actual, estimate, length) <= (1 + error) / (1 - error))


def _off(estimate: Any, actual: Any, error: Any) -> bool:
    return bool((1 - error) * actual <= estimate <= (1 + error) * actual)


THEOREMS = (
    Theorem(
        id="regret/n61-at-least-one",
        sentence="No estimate, however wrong, does better than the truth.",
        parameters={**_COPIED, "rate": FLOPS, "speed": BANDWIDTH},
        claim=lambda kv, params, pair, flops, bandwidth, overhead, floor, length, rate, speed: (
            regret(
                _setting(kv, params, pair, flops, bandwidth, overhead, floor),
                _setting(kv, params, pair, rate, speed, overhead, floor),
                length,
            )
            >= 1
        ),
    ),
    Theorem(
        id="regret/t63-wrong-bandwidth",
        sentence="A bandwidth wrong by some factor costs at most that factor, also with fixed costs and a weight read.",
        parameters={**_COPIED, "believed": BANDWIDTH},
        claim=_wrong_bandwidth,
    ),
    Theorem(
        id="regret/t64-wrong-flops",
        sentence="A FLOP rate wrong by some factor costs at most that factor, also with fixed costs and a weight read.",
        parameters={**_COPIED, "believed": FLOPS},
        claim=_wrong_flops,
    ),
    Theorem(
        id="regret/n62-wrong-memory",
        sentence="A memory bandwidth wrong by some factor costs at most that factor.",
        parameters={**_PLAIN, "weights": BYTES, "memory": MEMORY, "believed": MEMORY},
        claim=_wrong_memory,
    ),
    Theorem(
        id="regret/n63-wrong-both",
        sentence="A bandwidth and a FLOP rate that are both wrong cost at most the product of their factors.",
        parameters={**_PLAIN, "rate": FLOPS, "speed": BANDWIDTH},
        claim=_wrong_both,
    ),
    Theorem(
        id="regret/n64-relative-error",
        sentence="If each of the two costs is estimated within ±e of the truth, the choice costs at most (1 + e)/(1 − "
        "e) times the best.",
        parameters={
            **_PLAIN,
            "rate": FLOPS,
            "speed": BANDWIDTH,
            "error": positive("", 0.01, 0.5),
        },
        hypotheses={
            "the error is below 1": lambda error: error < 1,
            "the swap is estimated within it": lambda kv, bandwidth, length, speed, error: _off(
                swap_cost(plain(kv, ONE, ONE, ONE, speed), length),
                swap_cost(plain(kv, ONE, ONE, ONE, bandwidth), length),
                error,
            ),
            "the recompute is estimated within it": lambda params, pair, flops, length, rate, error: _off(
                recompute_cost(plain(ONE, params, pair, rate, ONE), length),
                recompute_cost(plain(ONE, params, pair, flops, ONE), length),
                error,
            ),
        },
        claim=_relative_error,
    ),
    Theorem(
        id="regret/n65-attained",
        sentence="The bound on regret cannot be bettered: who believes the break-even bandwidth over a faster link "
        "pays the whole factor.",
        parameters=_PLAIN,
        hypotheses={
            "the link is faster than break-even": lambda kv, params, pair, flops, bandwidth, length: (
                bandwidth > break_even_bandwidth(plain(kv, params, pair, flops, bandwidth), length)
            )
        },
        claim=_attained,
    ),
    Theorem(
        id="regret/n66-same-side",
        sentence="An estimate on the right side of break-even costs nothing, however wrong it is.",
        parameters={**_PLAIN, "believed": BANDWIDTH},
        hypotheses={"both are on the same side of break-even": _one_side},
        claim=_same_side,
    ),
)
