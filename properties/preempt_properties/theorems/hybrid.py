"""The hybrid: recompute the front of a request while the rest is loaded."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from preempt_properties.theorems.settings import ONE, device, layers, link, plain, shape, transfer
from preempt_properties.theorems.theorem import (
    ATTENTION,
    BANDWIDTH,
    BLOCK,
    FLOPS,
    KV,
    LENGTH,
    PARAMS,
    TOKENS,
    Kind,
    Parameter,
    Theorem,
    equal,
    nonnegative,
)
from preempt_spec.cost.decide import Setting, best_cost, recompute_cost, swap_cost
from preempt_spec.cost.hybrid import (
    hybrid_gain,
    hybrid_split,
    hybrid_time,
    linear_hybrid_time,
    recompute_front,
    swap_rest,
)
from preempt_spec.cost.recompute import Run

_PLAIN = {"kv": KV, "params": PARAMS, "pair": ATTENTION, "flops": FLOPS, "bandwidth": BANDWIDTH, "length": LENGTH}
_COPIED = {**_PLAIN, "overhead": nonnegative("s", 1e-6, 1e-3), "floor": nonnegative("s", 1e-3, 1e-1)}
_FRONT = {"there is a front and a rest": lambda front, length: front < length}
_RATE = Parameter(unit="s/token", above=ONE - ONE, usual=(1e-7, 1e-3))


def _setting(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, overhead: Any, floor: Any) -> Setting[Any]:
    """A lone pass against one copy with a fixed cost; `floor`: seconds of the weight read."""
    return Setting(
        shape(params, layers(kv, pair), weights=floor), device(flops), transfer(link(bandwidth, overhead)), Run.ALONE
    )


def _meets(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, length: Any, front: Any) -> bool:
    """Whether this front takes as long as its rest."""
    setting = plain(kv, params, pair, flops, bandwidth)
    return equal(recompute_front(setting, front), swap_rest(setting, length, front))


def _front_waits(
    kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, overhead: Any, floor: Any, length: Any, front: Any
) -> bool:
    setting = _setting(kv, params, pair, flops, bandwidth, overhead, floor)
    return bool(recompute_front(setting, front) >= swap_rest(setting, length, front))


def _rest_waits(
    kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, overhead: Any, floor: Any, length: Any, front: Any
) -> bool:
    setting = _setting(kv, params, pair, flops, bandwidth, overhead, floor)
    return bool(recompute_front(setting, front) <= swap_rest(setting, length, front))


def _no_better(
    kv: Any,
    params: Any,
    pair: Any,
    flops: Any,
    bandwidth: Any,
    overhead: Any,
    floor: Any,
    length: Any,
    front: Any,
    other: Any,
) -> bool:
    setting = _setting(kv, params, pair, flops, bandwidth, overhead, floor)
    return bool(hybrid_time(setting, length, front) <= hybrid_time(setting, length, other))


#: Three tokens: the search steps through whole numbers, while everything else stays symbolic.
_THREE = Fraction(3)
_SMALL = {"params": PARAMS, "pair": ATTENTION, "bandwidth": BANDWIDTH}


def _tokens(params: Any, pair: Any, bandwidth: Any) -> Setting[Any]:
    """KV of a byte per token and 1 FLOP/s: every plain setting is one of these, in other units."""
    return plain(ONE, params, pair, ONE, bandwidth)


def _split_is_best(params: Any, pair: Any, bandwidth: Any) -> bool:
    setting = _tokens(params, pair, bandwidth)
    found = hybrid_split(setting, _THREE).seconds
    divided = all(found <= hybrid_time(setting, _THREE, Fraction(front)) for front in (1, 2))
    return divided and bool(found <= swap_cost(setting, _THREE) and found <= recompute_cost(setting, _THREE))


def _split_is_real(params: Any, pair: Any, bandwidth: Any) -> bool:
    setting = _tokens(params, pair, bandwidth)
    found = hybrid_split(setting, _THREE)
    if found.recomputed <= 0:
        return equal(found.seconds, swap_cost(setting, _THREE))
    if found.recomputed >= _THREE:
        return equal(found.seconds, recompute_cost(setting, _THREE))
    return equal(found.seconds, hybrid_time(setting, _THREE, found.recomputed))


def _front_and_rest_move_apart(
    params: Any, pair: Any, bandwidth: Any, block: Any, length: Any, front: Any, more: Any
) -> bool:
    setting = plain(ONE, params, pair, ONE, bandwidth, block=block, whole_blocks=True)
    short, long = front * block, more * block
    return bool(
        recompute_front(setting, short) < recompute_front(setting, long)
        and swap_rest(setting, length, long) <= swap_rest(setting, length, short)
    )


THEOREMS = (
    Theorem(
        id="hybrid/t48-linear",
        sentence="Attention aside, recomputing and loading side by side beats the faster of the two.",
        parameters={"swap": _RATE, "again": _RATE},
        claim=lambda swap, again: linear_hybrid_time(swap, again) < min(swap, again),
    ),
    Theorem(
        id="hybrid/n67-linear-half",
        sentence="Attention aside, doing both side by side is never more than twice as fast as the faster of the two.",
        parameters={"swap": _RATE, "again": _RATE},
        claim=lambda swap, again: 2 * linear_hybrid_time(swap, again) >= min(swap, again),
    ),
    Theorem(
        id="hybrid/n68-linear-meets",
        sentence="Attention aside, the time given for a hybrid is that of the division at which both parts end "
        "together.",
        parameters={**{k: v for k, v in _PLAIN.items() if k != "pair"}, "front": LENGTH},
        hypotheses={
            "both parts end together": lambda kv, params, flops, bandwidth, length, front: _meets(
                kv, params, 0 * ONE, flops, bandwidth, length, front
            )
        },
        claim=lambda kv, params, flops, bandwidth, length, front: equal(
            recompute_front(setting := plain(kv, params, 0 * ONE, flops, bandwidth), front),
            length * linear_hybrid_time(swap_cost(setting, ONE), recompute_cost(setting, ONE)),
        ),
    ),
    Theorem(
        id="hybrid/t49-one-meeting-point",
        sentence="There is only one front that takes as long to recompute as its rest takes to load.",
        parameters={**_PLAIN, "front": LENGTH, "other": LENGTH},
        hypotheses={
            "the one front takes as long as its rest": _meets,
            "the other front does too": lambda kv, params, pair, flops, bandwidth, length, other: _meets(
                kv, params, pair, flops, bandwidth, length, other
            ),
        },
        claim=lambda front, other: equal(front, other),
    ),
    Theorem(
        id="hybrid/t73-beats-both",
        sentence="A hybrid whose two parts end together strictly beats both pure ways.",
        parameters={**_PLAIN, "front": LENGTH},
        hypotheses={"both parts end together": _meets},
        claim=lambda kv, params, pair, flops, bandwidth, length, front: (
            hybrid_time(setting := plain(kv, params, pair, flops, bandwidth), length, front)
            < best_cost(setting, length)
        ),
    ),
    Theorem(
        id="hybrid/h02-only-optimum",
        sentence="Every other front is strictly slower than the one at which both parts end together.",
        parameters={**_PLAIN, "front": LENGTH, "other": LENGTH},
        hypotheses={
            "both parts end together": _meets,
            "the other front is another": lambda front, other: not equal(front, other),
        },
        claim=lambda kv, params, pair, flops, bandwidth, length, front, other: (
            hybrid_time(setting := plain(kv, params, pair, flops, bandwidth), length, front)
            < hybrid_time(setting, length, other)
        ),
    ),
    Theorem(
        id="hybrid/n69-search-longer-fronts",
        sentence="If a front takes as long as its rest or longer, no longer front is better, with fixed costs and a "
        "weight read too: the search may stop there.",
        parameters={**_COPIED, "front": LENGTH, "other": LENGTH},
        hypotheses={
            "the front takes as long as its rest or longer": _front_waits,
            "the other front is longer": lambda front, other: front < other,
        },
        claim=_no_better,
    ),
    Theorem(
        id="hybrid/n70-search-shorter-fronts",
        sentence="If a front takes no longer than its rest, no shorter front is better: the search may go on from "
        "there.",
        parameters={**_COPIED, "front": LENGTH, "other": LENGTH},
        hypotheses={
            "the front takes no longer than its rest": _rest_waits,
            "the other front is shorter": lambda front, other: other < front,
        },
        claim=_no_better,
    ),
    Theorem(
        id="hybrid/n71-split-is-best",
        sentence="The division that the search returns is the best of all, the pure ways included (the search itself "
        "run symbolically, on three tokens).",
        parameters=_SMALL,
        claim=_split_is_best,
    ),
    Theorem(
        id="hybrid/n72-split-is-real",
        sentence="The time that the search returns is the time of the division it returns (on three tokens).",
        parameters=_SMALL,
        claim=_split_is_real,
    ),
    Theorem(
        id="hybrid/n73-gain",
        sentence="The best division never loses to the better pure way (on three tokens).",
        parameters=_SMALL,
        claim=lambda params, pair, bandwidth: hybrid_gain(_tokens(params, pair, bandwidth), _THREE) >= 1,
    ),
    Theorem(
        id="hybrid/n75-golden-ceiling",
        sentence="No division is more than 2.6181 times as fast as the better pure way (the square of the golden "
        "ratio is 2.61803…).",
        parameters={**_PLAIN, "front": LENGTH},
        claim=lambda kv, params, pair, flops, bandwidth, length, front: (
            best_cost(setting := plain(kv, params, pair, flops, bandwidth), length)
            <= Fraction(26_181, 10_000) * hybrid_time(setting, length, front)
        ),
    ),
    Theorem(
        id="hybrid/n76-at-most-twice",
        kind=Kind.FALSE,
        sentence="Two resources at once are at most twice as fast as the better one.",
        parameters={**_PLAIN, "front": LENGTH},
        hypotheses=_FRONT,
        claim=lambda kv, params, pair, flops, bandwidth, length, front: (
            best_cost(setting := plain(kv, params, pair, flops, bandwidth), length)
            <= 2 * hybrid_time(setting, length, front)
        ),
        at={
            "kv": 131_072,
            "params": 8_030_000_000,
            "pair": 524_288,
            "flops": 494_500_000_000_000,
            "bandwidth": 2_571_000_000,
            "length": 131_072,
            "front": 75_000,
        },
        shows={
            name: (cost, "s")
            for name, cost in (
                (
                    "hybrid",
                    lambda kv, params, pair, flops, bandwidth, length, front: hybrid_time(
                        plain(kv, params, pair, flops, bandwidth), length, front
                    ),
                ),
                (
                    "better pure way",
                    lambda kv, params, pair, flops, bandwidth, length: best_cost(
                        plain(kv, params, pair, flops, bandwidth), length
                    ),
                ),
            )
        },
    ),
    Theorem(
        id="hybrid/n74-always-strictly-better",
        kind=Kind.FALSE,
        sentence="Dividing a request always beats both pure ways, also with a weight read and a fixed cost of the "
        "copy.",
        parameters={**_COPIED, "front": LENGTH},
        hypotheses=_FRONT,
        claim=lambda kv, params, pair, flops, bandwidth, overhead, floor, length, front: (
            hybrid_time(setting := _setting(kv, params, pair, flops, bandwidth, overhead, floor), length, front)
            < best_cost(setting, length)
        ),
        at={
            "kv": 131_072,
            "params": 8_030_000_000,
            "pair": 524_288,
            "flops": 494_500_000_000_000,
            "bandwidth": 50_000_000_000,
            "overhead": 0,
            "floor": Fraction(479, 100_000),
            "length": 512,
            "front": 64,
        },
        shows={
            "hybrid": (
                lambda kv, params, pair, flops, bandwidth, overhead, floor, length, front: hybrid_time(
                    _setting(kv, params, pair, flops, bandwidth, overhead, floor), length, front
                ),
                "s",
            ),
            "swap": (
                lambda kv, params, pair, flops, bandwidth, overhead, floor, length: swap_cost(
                    _setting(kv, params, pair, flops, bandwidth, overhead, floor), length
                ),
                "s",
            ),
        },
    ),
    Theorem(
        id="hybrid/n108-whole-blocks",
        sentence="In whole blocks too, a longer front takes no less to recompute and leaves no more to load.",
        parameters={
            "params": PARAMS,
            "pair": ATTENTION,
            "bandwidth": BANDWIDTH,
            "block": BLOCK,
            "length": TOKENS,
            "front": TOKENS,
            "more": TOKENS,
        },
        hypotheses={"the second front has more blocks": lambda front, more: front < more},
        claim=_front_and_rest_move_apart,
    ),
)
