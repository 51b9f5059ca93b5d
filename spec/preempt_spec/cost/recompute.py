"""Recomputing: a prefill of the tokens whose KV is gone, in seconds per request on one GPU.

Two kernels with an efficiency each: matrix products with the weights (2 FLOP per active parameter and token) and causal
attention (FLOP per pair of tokens). A pass that runs alone reads all weights once and is never faster than that.

Convention for causal attention. Token number i (from 0) sees i + 1 keys, so `length` tokens make length·(length + 1)/2
pairs. The model says length²/2, "every token sees half of the context on average", as the source of the numbers does.
It is additive over chunks like the counted sum, gives closed forms, and is lower by half a pair per token:
`counted_pairs` is there to say so.
"""

from __future__ import annotations

from enum import Enum
from typing import Generic

from attrs import frozen

from preempt_spec.cost.number import N, round_down
from preempt_spec.cost.shape import Layers, Shape


class Run(Enum):
    """How the recomputation is run."""

    ALONE = "a pass of its own: reads the weights once"
    PIGGYBACK = "in passes that other requests need anyway: their weights are read in any case"


@frozen
class Device(Generic[N]):
    """A GPU at the efficiencies it reaches."""

    peak_flops: N
    """Dense peak at the compute type, FLOP/s (the sparse figure is twice that, and nobody gets it)."""
    memory_bandwidth: N
    """Device memory, bytes/s."""
    gemm_efficiency: N
    """Share of the peak that products with weights reach, in (0, 1]."""
    attention_efficiency: N
    """Share of the peak that prefill attention reaches, in (0, 1]."""


def gemm_rate(device: Device[N]) -> N:
    """Return the FLOP/s that products with weights reach."""
    return device.peak_flops * device.gemm_efficiency


def attention_rate(device: Device[N]) -> N:
    """Return the FLOP/s that prefill attention reaches."""
    return device.peak_flops * device.attention_efficiency


def causal_pairs(length: N, cached: N | int = 0, window: N | None = None) -> N:
    """Return the (query, key) pairs when tokens from `cached` up to `length` are computed: ∫ min(x, window) dx.

    Without a window and with nothing cached, length²/2 (see the module on that convention).
    """
    if window is None:
        return (length - cached) * (length + cached) / 2
    # Written as products of sums: a difference of squares would cost a float its digits when one token is computed.
    growing_to = min(length, window)
    growing_from = min(0 * length + cached, window)
    seen_growing = (growing_to - growing_from) * (growing_to + growing_from) / 2
    return seen_growing + window * ((length - growing_to) - (cached - growing_from))


def counted_pairs(length: N, cached: N | int = 0) -> N:
    """Return the pairs counted one by one, own token included: the convention the model does NOT use."""
    return (length - cached) * (length + cached + 1) / 2


def gemm_flops(shape: Shape[N], length: N, cached: N | int = 0) -> N:
    """Return the FLOP of products with weights for tokens `cached` to `length`."""
    return 2 * shape.params * (length - cached)


def attention_flops(shape: Shape[N], length: N, cached: N | int = 0) -> N:
    """Return the FLOP of attention for tokens `cached` to `length`, over all layers."""
    return sum((_pair_flops(layers, length, cached) for layers in shape.layers), start=0 * length)


def _pair_flops(layers: Layers[N], length: N, cached: N | int) -> N:
    return layers.pair_flops * causal_pairs(length, cached, layers.window)


def compute_time(shape: Shape[N], device: Device[N], length: N, cached: N | int = 0) -> N:
    """Return the seconds of arithmetic for tokens `cached` to `length`, each kernel at its own efficiency."""
    gemm = gemm_flops(shape, length, cached) / gemm_rate(device)
    return gemm + attention_flops(shape, length, cached) / attention_rate(device)


def weight_time(shape: Shape[N], device: Device[N]) -> N:
    """Return the seconds to read the weights once: the floor of any pass that runs alone."""
    return shape.weight_bytes / device.memory_bandwidth


def recompute_time(shape: Shape[N], device: Device[N], length: N, cached: N | int = 0, run: Run = Run.ALONE) -> N:
    """Return the seconds to compute the KV of tokens `cached` to `length` again.

    One pass is assumed: chunks that each run alone would read the weights once per chunk.
    """
    work = compute_time(shape, device, length, cached)
    if run is Run.PIGGYBACK:
        return work
    return max(weight_time(shape, device), work)


def cached_tokens(length: N, hit: N, block: N | None = None) -> N:
    """Return the tokens of a prefix hit: the share `hit` of `length`, at most all but the last token.

    The last token is always computed, since its output is what the request waits for. With `block`, whole blocks of
    that many tokens only, as in engines that cache by block. (In floats a hit that ends at a block's edge may round to
    either side of it: a whole block more or less. Fractions do not.)
    """
    found = min(hit * length, length - 1)
    if block is None:
        return found
    return round_down(found / block) * block
