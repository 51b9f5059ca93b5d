"""Spare compute: how many recomputed tokens ride in a decode step that waits for memory.

A decode step of a batch reads all weights and all KV. If that takes longer than its arithmetic, tokens of a recompute
fit in at no added time. Four counts, from the most hopeful to the most careful; each may be negative, which means that
the step has no compute to spare.
"""

from __future__ import annotations

from preempt_spec.cost.number import N
from preempt_spec.cost.recompute import Device, attention_rate, gemm_rate, weight_time
from preempt_spec.cost.shape import Layers, Shape


def kept_tokens(layers: Layers[N], context: N) -> N:
    """Return the tokens of a context that these layers keep and see."""
    return context if layers.window is None else min(context, layers.window)


def kv_read(shape: Shape[N], context: N) -> N:
    """Return the bytes of KV and state that one decoded token reads at `context` tokens."""
    constant = 0 * context if shape.state is None else shape.state.state_bytes
    return sum((layers.kv_bytes * kept_tokens(layers, context) for layers in shape.layers), start=constant)


def decode_step_time(shape: Shape[N], device: Device[N], batch: N, context: N) -> N:
    """Return the seconds of a memory-bound decode step: weights once, KV of `batch` requests of `context` tokens."""
    return weight_time(shape, device) + batch * kv_read(shape, context) / device.memory_bandwidth


def spare_tokens(shape: Shape[N], device: Device[N], step_time: N, batch: N) -> N:
    """Return the tokens per step by products with weights alone: what fits in the whole step less the batch itself.

    Assumes that arithmetic and reading overlap perfectly over the step, and that attention is free. With
    `gemm_efficiency` 1 this is the count at peak, with a realistic one the count at that efficiency.
    """
    return step_time * gemm_rate(device) / (2 * shape.params) - batch


def token_time(shape: Shape[N], device: Device[N], attended: N) -> N:
    """Return the seconds of arithmetic of one token that sees `attended` tokens."""
    pairs = sum((layers.pair_flops * kept_tokens(layers, attended) for layers in shape.layers), start=0 * attended)
    return 2 * shape.params / gemm_rate(device) + pairs / attention_rate(device)


def spare_tokens_with_attention(
    shape: Shape[N], device: Device[N], step_time: N, batch: N, context: N, attended: N
) -> N:
    """Return the tokens per step when attention is charged too.

    `context`: tokens that each of the `batch` decoding requests sees; `attended`: tokens that a recomputed one sees on
    average (half of its request's length).
    """
    left = step_time - batch * token_time(shape, device, context)
    return left / token_time(shape, device, attended)


def spare_tokens_by_kernel(shape: Shape[N], device: Device[N], batch: N) -> N:
    """Return the tokens per step by the roofline of the products alone.

    Kernels run one after another: while attention reads KV no product runs. Spare is only what fits into the reading of
    the weights. At 2 bytes per weight that is peak over memory bandwidth, the same for every dense model.
    """
    return spare_tokens(shape, device, weight_time(shape, device), batch)


def piggyback_time(tokens: N, spare: N, step_time: N) -> N:
    """Return the seconds until `tokens` have ridden along, `spare` (above 0) in each step of `step_time` seconds.

    This is how long the request waits; others lose nothing.
    """
    return tokens / spare * step_time


def piggyback_break_even(shape: Shape[N], spare: N, step_time: N, crossings: int = 2) -> N:
    """Return the effective bytes/s per direction below which riding along brings a request back before a swap does.

    For full-attention KV; `crossings` as in `swap.crossings`.
    """
    kv = sum((layers.kv_bytes for layers in shape.layers), start=0 * spare)
    return crossings * kv * spare / step_time
