"""The break-even bandwidth: where it lies, what moves it, and that comparing with it is the decision."""

from __future__ import annotations

from typing import Any

from preempt_properties.theorems.settings import TWO, alone, plain
from preempt_properties.theorems.theorem import (
    ATTENTION,
    BANDWIDTH,
    BYTES,
    FLOPS,
    KV,
    LENGTH,
    MEMORY,
    PARAMS,
    Kind,
    Theorem,
    equal,
    positive,
)
from preempt_spec.cost.decide import (
    break_even_bandwidth,
    recompute_cost,
    swap_cost,
)
from preempt_spec.cost.swap import Directions, Trip

RATIO = positive("", 0.3, 1.5)


FACTOR = positive("", 0.25, 8)


_PLAIN = {"kv": KV, "params": PARAMS, "pair": ATTENTION, "flops": FLOPS}


def _at(kv: Any, params: Any, pair: Any, flops: Any, length: Any, ratio: Any = 1) -> Any:
    """The break-even bandwidth. The setting's own link has no say in it; one of 1 B/s stands in."""
    return break_even_bandwidth(plain(kv, params, pair, flops, TWO / 2, attention=ratio), length)


def _is_a_break_even(kv: Any, params: Any, pair: Any, flops: Any, ratio: Any, length: Any, how: dict[str, Any]) -> bool:
    found = break_even_bandwidth(plain(kv, params, pair, flops, TWO / 2, attention=ratio, **how), length)
    there = plain(kv, params, pair, flops, found, attention=ratio, **how)
    return equal(swap_cost(there, length), recompute_cost(there, length))


def _every_way(kv: Any, params: Any, pair: Any, flops: Any, ratio: Any, length: Any) -> bool:
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"trip": Trip.WRITE_THROUGH},
        {"directions": Directions.OVERLAPPED},
    )
    return all(_is_a_break_even(kv, params, pair, flops, ratio, length, how) for how in ways)


def _floor_lowers(kv: Any, params: Any, pair: Any, flops: Any, weights: Any, memory: Any, length: Any) -> bool:
    lone = alone(kv, params, pair, flops, TWO / 2, weights=weights, memory=memory)
    return bool(break_even_bandwidth(lone, length) <= _at(kv, params, pair, flops, length))


def _lone(kv: Any, params: Any, pair: Any, flops: Any, weights: Any, memory: Any, length: Any) -> Any:
    return break_even_bandwidth(alone(kv, params, pair, flops, TWO / 2, weights=weights, memory=memory), length)


_SHORTER = {"the second request is longer": lambda short, long: short < long}


THEOREMS = (
    Theorem(
        id="break-even/t04-is-one",
        sentence="At the break-even bandwidth swap and recompute cost the same, in round trips, with the way out "
        "already paid, and over a duplex link alike.",
        parameters={**_PLAIN, "ratio": RATIO, "length": LENGTH},
        claim=_every_way,
    ),
    Theorem(
        id="break-even/t05-is-the-only-one",
        sentence="There is no second bandwidth at which swap and recompute cost the same.",
        parameters={**_PLAIN, "ratio": RATIO, "length": LENGTH, "bandwidth": BANDWIDTH},
        hypotheses={
            "both cost the same at this bandwidth": lambda kv, params, pair, flops, ratio, length, bandwidth: equal(
                swap_cost(plain(kv, params, pair, flops, bandwidth, attention=ratio), length),
                recompute_cost(plain(kv, params, pair, flops, bandwidth, attention=ratio), length),
            )
        },
        claim=lambda kv, params, pair, flops, ratio, length, bandwidth: equal(
            bandwidth, _at(kv, params, pair, flops, length, ratio)
        ),
    ),
    Theorem(
        id="break-even/t06-longer",
        sentence="The longer the request, the lower the break-even bandwidth: attention makes recompute dearer.",
        parameters={**_PLAIN, "ratio": RATIO, "short": LENGTH, "long": LENGTH},
        hypotheses=_SHORTER,
        claim=lambda kv, params, pair, flops, ratio, short, long: (
            _at(kv, params, pair, flops, long, ratio) < _at(kv, params, pair, flops, short, ratio)
        ),
    ),
    Theorem(
        id="break-even/n15-longer-alone",
        kind=Kind.FALSE,
        sentence="The break-even bandwidth falls with length also if the recompute runs in a pass of its own.",
        parameters={**_PLAIN, "weights": BYTES, "memory": MEMORY, "short": LENGTH, "long": LENGTH},
        hypotheses=_SHORTER,
        claim=lambda kv, params, pair, flops, weights, memory, short, long: (
            _lone(kv, params, pair, flops, weights, memory, long)
            < _lone(kv, params, pair, flops, weights, memory, short)
        ),
        at={
            "kv": 131_072,
            "params": 8_030_000_000,
            "pair": 524_288,
            "flops": 494_500_000_000_000,
            "weights": 16_060_000_000,
            "memory": 3_350_000_000_000,
            "short": 16,
            "long": 128,
        },
        shows={
            "break-even of the shorter": (
                lambda kv, params, pair, flops, weights, memory, short: _lone(
                    kv, params, pair, flops, weights, memory, short
                ),
                "B/s",
            ),
            "break-even of the longer": (
                lambda kv, params, pair, flops, weights, memory, long: _lone(
                    kv, params, pair, flops, weights, memory, long
                ),
                "B/s",
            ),
        },
    ),
    Theorem(
        id="break-even/n16-alone-is-lower",
        sentence="Running a recompute alone never raises the break-even bandwidth over riding along.",
        parameters={**_PLAIN, "weights": BYTES, "memory": MEMORY, "length": LENGTH},
        claim=_floor_lowers,
    ),
    Theorem(
        id="break-even/t07-kv-bytes",
        sentence="The break-even bandwidth is proportional to the KV bytes per token: 4 times for MHA over a 4-fold "
        "GQA, half for FP8.",
        parameters={**_PLAIN, "ratio": RATIO, "length": LENGTH, "factor": FACTOR},
        claim=lambda kv, params, pair, flops, ratio, length, factor: equal(
            _at(factor * kv, params, pair, flops, length, ratio), factor * _at(kv, params, pair, flops, length, ratio)
        ),
    ),
    Theorem(
        id="break-even/t08-faster-gpu",
        sentence="A GPU with a higher achieved FLOP/s raises the break-even bandwidth.",
        parameters={
            "kv": KV,
            "params": PARAMS,
            "pair": ATTENTION,
            "slow": FLOPS,
            "fast": FLOPS,
            "ratio": RATIO,
            "length": LENGTH,
        },
        hypotheses={"the second GPU is faster": lambda slow, fast: slow < fast},
        claim=lambda kv, params, pair, slow, fast, ratio, length: (
            _at(kv, params, pair, slow, length, ratio) < _at(kv, params, pair, fast, length, ratio)
        ),
    ),
    Theorem(
        id="break-even/t08-more-parameters",
        sentence="More active parameters with the same KV lower the break-even bandwidth.",
        parameters={
            "kv": KV,
            "few": PARAMS,
            "many": PARAMS,
            "pair": ATTENTION,
            "flops": FLOPS,
            "ratio": RATIO,
            "length": LENGTH,
        },
        hypotheses={"the second model has more": lambda few, many: few < many},
        claim=lambda kv, few, many, pair, flops, ratio, length: (
            _at(kv, many, pair, flops, length, ratio) < _at(kv, few, pair, flops, length, ratio)
        ),
    ),
    Theorem(
        id="break-even/t28-embedding",
        sentence="Leaving out E embedding parameters of N raises the break-even bandwidth, by less than E / (N − E).",
        parameters={**_PLAIN, "embedding": PARAMS, "length": LENGTH},
        hypotheses={"the embedding is not the whole model": lambda embedding, params: embedding < params},
        claim=lambda kv, params, pair, flops, embedding, length: (
            0
            < _at(kv, params - embedding, pair, flops, length) / _at(kv, params, pair, flops, length) - 1
            < embedding / (params - embedding)
        ),
    ),
    Theorem(
        id="break-even/t59-bigger-model",
        kind=Kind.FALSE,
        sentence="A bigger model of the same shape, with KV and parameters scaled alike, has the same break-even "
        "bandwidth whatever its attention.",
        parameters={**_PLAIN, "length": LENGTH, "factor": FACTOR},
        claim=lambda kv, params, pair, flops, length, factor: equal(
            _at(factor * kv, factor * params, pair, flops, length), _at(kv, params, pair, flops, length)
        ),
        at={
            "kv": 131_072,
            "params": 8_030_000_000,
            "pair": 524_288,
            "flops": 494_500_000_000_000,
            "length": 32_768,
            "factor": 4,
        },
        shows={
            "break-even": (lambda kv, params, pair, flops, length: _at(kv, params, pair, flops, length), "B/s"),
            "break-even of the bigger": (
                lambda kv, params, pair, flops, length, factor: _at(factor * kv, factor * params, pair, flops, length),
                "B/s",
            ),
        },
    ),
    Theorem(
        id="break-even/t60-bigger-model-whole",
        sentence="If attention scales along with KV and parameters, a bigger model has the same break-even bandwidth.",
        parameters={**_PLAIN, "ratio": RATIO, "length": LENGTH, "factor": FACTOR},
        claim=lambda kv, params, pair, flops, ratio, length, factor: equal(
            _at(factor * kv, factor * params, factor * pair, flops, length, ratio),
            _at(kv, params, pair, flops, length, ratio),
        ),
    ),
    Theorem(
        id="break-even/t52-write-through",
        sentence="If the KV was written out beforehand, the break-even bandwidth is exactly half.",
        parameters={**_PLAIN, "ratio": RATIO, "length": LENGTH},
        claim=lambda kv, params, pair, flops, ratio, length: equal(
            2
            * break_even_bandwidth(
                plain(kv, params, pair, flops, TWO / 2, attention=ratio, trip=Trip.WRITE_THROUGH), length
            ),
            _at(kv, params, pair, flops, length, ratio),
        ),
    ),
    Theorem(
        id="break-even/t58-duplex",
        sentence="Overlapping the directions of a duplex link halves the break-even bandwidth, as a way already paid "
        "does.",
        parameters={**_PLAIN, "ratio": RATIO, "length": LENGTH},
        claim=lambda kv, params, pair, flops, ratio, length: equal(
            2
            * break_even_bandwidth(
                plain(kv, params, pair, flops, TWO / 2, attention=ratio, directions=Directions.OVERLAPPED), length
            ),
            _at(kv, params, pair, flops, length, ratio),
        ),
    ),
)
