"""The settings that theorems speak of, built from their parameters: as general as the sentence, and no more."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from preempt_spec.cost.copies import Affine, Law
from preempt_spec.cost.decide import Setting
from preempt_spec.cost.recompute import Device, Run
from preempt_spec.cost.shape import Layers, Shape
from preempt_spec.cost.swap import Copies, Directions, Hit, Transfer, Trip

#: The theorems' numbers are `Fraction`s or symbolic: a division of two ints would leave exact arithmetic.
ZERO, HALF, ONE, TWO = Fraction(0), Fraction(1, 2), Fraction(1), Fraction(2)


def device(flops: Any, memory: Any = ONE, attention: Any = ONE) -> Device[Any]:
    """A GPU whose products with weights reach `flops` FLOP/s, and whose attention reaches `attention` times that.

    Any two rates can be written so.
    """
    return Device(peak_flops=flops, memory_bandwidth=memory, gemm_efficiency=ONE, attention_efficiency=attention)


def layers(kv: Any, pair: Any = ZERO, tensors: Any = TWO, window: Any = None) -> Layers[Any]:
    """Attention layers: KV bytes per token and FLOP per pair, on one GPU."""
    return Layers(kv_bytes=kv, pair_flops=pair, tensors=tensors, window=window)


def shape(params: Any, *kinds: Layers[Any], weights: Any = ZERO) -> Shape[Any]:
    """A model on one GPU: parameters used per token, bytes of weights, kinds of attention layers."""
    return Shape(params=params, weight_bytes=weights, layers=kinds)


def link(bandwidth: Any, overhead: Any = ZERO) -> Affine[Any]:
    """A copy law: bytes/s in one direction, and seconds per copy."""
    return Affine(overhead=overhead, bandwidth=bandwidth)


def transfer(
    out: Law[Any],
    back: Law[Any] | None = None,
    *,
    block: Any = ONE,
    copies: Copies = Copies.GATHERED,
    whole_blocks: bool = False,
    trip: Trip = Trip.ROUND_TRIP,
    directions: Directions = Directions.SERIAL,
    hit_means: Hit = Hit.KEEPS_BYTES,
) -> Transfer[Any]:
    """One law for both directions unless `back` is given; one gathered copy without block rounding unless said."""
    return Transfer(out, out if back is None else back, block, copies, whole_blocks, trip, directions, hit_means)


def plain(
    kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, *, attention: Any = ONE, hit: Any = None, **how: Any
) -> Setting[Any]:
    """The two costs without floor, fixed costs and rounding: recompute rides along, the swap is one copy each way.

    `how`: as in `transfer`.
    """
    return Setting(
        shape=shape(params, layers(kv, pair)),
        device=device(flops, attention=attention),
        transfer=transfer(link(bandwidth), **how),
        run=Run.PIGGYBACK,
        hit=hit,
    )


def alone(
    kv: Any, params: Any, pair: Any, flops: Any, bandwidth: Any, *, weights: Any, memory: Any, **how: Any
) -> Setting[Any]:
    """The same, recomputed in a pass of its own that reads `weights` bytes at `memory` bytes/s."""
    return Setting(
        shape=shape(params, layers(kv, pair), weights=weights),
        device=device(flops, memory),
        transfer=transfer(link(bandwidth), **how),
        run=Run.ALONE,
    )
