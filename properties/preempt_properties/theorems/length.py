"""The lengths at which recompute wins: an interval, and exactly the one that the shipped closed form gives."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from preempt_properties.theorems.settings import ONE, alone, device, layers, link, plain, shape, transfer
from preempt_properties.theorems.theorem import (
    ATTENTION,
    BANDWIDTH,
    BLOCK,
    BYTES,
    FLOPS,
    KV,
    LENGTH,
    MEMORY,
    PARAMS,
    SECONDS,
    Parameter,
    Theorem,
    equal,
    nonnegative,
    share,
)
from preempt_spec.cost.decide import Choice, Setting, choose, recompute_cost, swap_cost
from preempt_spec.cost.lengths import Edges, length_edges, rates
from preempt_spec.cost.recompute import Run
from preempt_spec.cost.swap import Copies, Hit, Trip

#: A share that is neither nothing nor all.
PART = Parameter(unit="", above=Fraction(0), below=Fraction(1), usual=(0.05, 0.95))


_PLAIN = {"kv": KV, "params": PARAMS, "pair": ATTENTION, "flops": FLOPS, "bandwidth": BANDWIDTH}


_ALONE = {**_PLAIN, "weights": BYTES, "memory": MEMORY}


def _within(edges: Edges[Any] | None, length: Any) -> bool:
    """Whether a length lies in the open interval."""
    if edges is None:
        return False
    return (edges.lower is None or edges.lower < length) and (edges.upper is None or length < edges.upper)


def _exact(setting: Setting[Any], length: Any) -> bool:
    """Whether, at this length, the closed form says what the two costs say."""
    return bool(
        (recompute_cost(setting, length) < swap_cost(setting, length)) == _within(length_edges(setting), length)
    )


def _upper(setting: Setting[Any]) -> Any:
    """The upper edge; ValueError (the claim does not hold there) if there is none."""
    found = length_edges(setting)
    if found is None or found.upper is None:
        raise ValueError("recompute wins nowhere, or without an end")
    return found.upper


def _swap_wins(setting: Setting[Any], length: Any) -> bool:
    return choose(setting, length) is Choice.SWAP


def _wins_somewhere(kv: Any, params: Any, flops: Any, bandwidth: Any) -> bool:
    """Whether a swap of one token takes longer than its products: the premise of an upper edge."""
    found = rates(plain(kv, params, ONE, flops, bandwidth))
    return bool(found.gemm < found.swap)


def _copied(kv: Any, params: Any, pair: Any, overhead: Any, floor: Any, block: Any) -> Setting[Any]:
    """At 1 B/s and 1 FLOP/s: every such setting is one of these, in other units of bytes and of FLOP."""
    return Setting(
        shape=shape(params, layers(kv, pair), weights=floor),
        device=device(ONE),
        transfer=transfer(link(ONE, overhead), block=block, copies=Copies.PER_TENSOR),
        run=Run.ALONE,
    )


def _convex(kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, other: Any, part: Any) -> bool:
    def upper(b: Any) -> Any:
        return _upper(plain(kv, params, pair, flops, b))

    mixed = part * bandwidth + (1 - part) * other
    return bool(upper(mixed) <= part * upper(bandwidth) + (1 - part) * upper(other))


_LONGER = {"the second request is longer": lambda short, long: short < long}


_FLIPS = {"a token's swap takes longer than its products": _wins_somewhere}


THEOREMS = (
    Theorem(
        id="length/t11-single-crossing",
        sentence="If recompute rides along and swap wins at some length, it wins at every greater length.",
        parameters={**_PLAIN, "short": LENGTH, "long": LENGTH},
        hypotheses={
            **_LONGER,
            "swap wins at the shorter": lambda kv, params, pair, flops, bandwidth, short: _swap_wins(
                plain(kv, params, pair, flops, bandwidth), short
            ),
        },
        claim=lambda kv, params, pair, flops, bandwidth, long: _swap_wins(
            plain(kv, params, pair, flops, bandwidth), long
        ),
    ),
    Theorem(
        id="length/t12-closed-form",
        sentence="At the upper edge that the closed form gives, swap and recompute cost the same.",
        parameters=_PLAIN,
        hypotheses=_FLIPS,
        claim=lambda kv, params, pair, flops, bandwidth: equal(
            swap_cost(
                setting := plain(kv, params, pair, flops, bandwidth),
                upper := _upper(setting),
            ),
            recompute_cost(setting, upper),
        ),
    ),
    Theorem(
        id="length/t13-dominance",
        sentence="If a token crosses the link and back in the time of its products, swap wins at every length.",
        parameters={**_PLAIN, "length": LENGTH},
        hypotheses={
            "the link brings a token back in the time of its products": lambda kv, params, flops, bandwidth: (
                not _wins_somewhere(kv, params, flops, bandwidth)
            )
        },
        claim=lambda kv, params, pair, flops, bandwidth, length: _swap_wins(
            plain(kv, params, pair, flops, bandwidth), length
        ),
    ),
    Theorem(
        id="length/t14-edge-decides",
        sentence="If recompute rides along, it wins exactly at the lengths below the upper edge, swap exactly above.",
        parameters={**_PLAIN, "length": LENGTH},
        hypotheses=_FLIPS,
        claim=lambda kv, params, pair, flops, bandwidth, length: (
            (recompute_cost(setting := plain(kv, params, pair, flops, bandwidth), length) < swap_cost(setting, length))
            == (length < _upper(setting))
        ),
    ),
    Theorem(
        id="length/n20-interval-is-exact",
        sentence="In a pass of its own, recompute wins exactly inside of the interval that the closed form gives, and "
        "nowhere if it gives none.",
        parameters={**_ALONE, "length": LENGTH},
        claim=lambda kv, params, pair, flops, bandwidth, weights, memory, length: _exact(
            alone(kv, params, pair, flops, bandwidth, weights=weights, memory=memory), length
        ),
    ),
    Theorem(
        id="length/n21-interval-of-copies",
        sentence="The closed form is exact also for copies block by block with a fixed cost each (parts of blocks "
        "counted as parts).",
        parameters={
            "kv": KV,
            "params": PARAMS,
            "pair": nonnegative("FLOP/pair", 1e4, 1e7),
            "overhead": SECONDS,
            "floor": SECONDS,
            "block": BLOCK,
            "length": LENGTH,
        },
        claim=lambda kv, params, pair, overhead, floor, block, length: _exact(
            _copied(kv, params, pair, overhead, floor, block), length
        ),
    ),
    Theorem(
        id="length/n22-interval-with-hits",
        sentence="The closed form is exact with a prefix hit that leaves the swap's bytes as they are, for every "
        "length of which the hit leaves at least a token.",
        parameters={**_PLAIN, "hit": share(), "length": LENGTH},
        hypotheses={"the hit leaves a token": lambda hit, length: hit * length <= length - 1},
        claim=lambda kv, params, pair, flops, bandwidth, hit, length: _exact(
            plain(kv, params, pair, flops, bandwidth, hit=hit), length
        ),
    ),
    Theorem(
        id="length/n23-interval-with-saving-hits",
        sentence="The closed form is exact with a prefix hit that saves the swap its bytes too, for every length of "
        "which the hit leaves at least a token.",
        parameters={**_PLAIN, "part": PART, "length": LENGTH},
        hypotheses={"the hit leaves a token": lambda part, length: part * length <= length - 1},
        claim=lambda kv, params, pair, flops, bandwidth, part, length: _exact(
            plain(kv, params, pair, flops, bandwidth, hit=part, hit_means=Hit.SAVES_BYTES), length
        ),
    ),
    Theorem(
        id="length/n24-interval-write-through",
        sentence="The closed form is exact if only the way back is paid.",
        parameters={**_ALONE, "length": LENGTH},
        claim=lambda kv, params, pair, flops, bandwidth, weights, memory, length: _exact(
            alone(kv, params, pair, flops, bandwidth, weights=weights, memory=memory, trip=Trip.WRITE_THROUGH), length
        ),
    ),
    Theorem(
        id="length/t15-faster-link",
        sentence="A faster link lowers the upper edge: swap starts to win at shorter requests.",
        parameters={
            "kv": KV,
            "params": PARAMS,
            "pair": ATTENTION,
            "flops": FLOPS,
            "slow": BANDWIDTH,
            "fast": BANDWIDTH,
        },
        hypotheses={
            "the second link is faster": lambda slow, fast: slow < fast,
            "recompute still wins somewhere over the faster": lambda kv, params, flops, fast: _wins_somewhere(
                kv, params, flops, fast
            ),
        },
        claim=lambda kv, params, pair, flops, slow, fast: (
            _upper(plain(kv, params, pair, flops, fast)) < _upper(plain(kv, params, pair, flops, slow))
        ),
    ),
    Theorem(
        id="length/t71-diminishing-returns",
        sentence="Each further GB/s lowers the upper edge by less than the one before: it is convex in bandwidth.",
        parameters={**_PLAIN, "other": BANDWIDTH, "part": share()},
        hypotheses={
            "recompute wins somewhere over the one": _wins_somewhere,
            "recompute wins somewhere over the other": lambda kv, params, flops, other: _wins_somewhere(
                kv, params, flops, other
            ),
        },
        claim=_convex,
    ),
    Theorem(
        id="length/t17-fp8",
        sentence="Halving the KV bytes more than halves the upper edge.",
        parameters=_PLAIN,
        hypotheses={
            "recompute still wins somewhere with half of the bytes": lambda kv, params, flops, bandwidth: (
                _wins_somewhere(kv / 2, params, flops, bandwidth)
            )
        },
        claim=lambda kv, params, pair, flops, bandwidth: (
            _upper(plain(kv / 2, params, pair, flops, bandwidth))
            < _upper(plain(kv, params, pair, flops, bandwidth)) / 2
        ),
    ),
)
