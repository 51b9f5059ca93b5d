"""From a model's configuration to one GPU: grouped heads, experts, element widths, latents, tensor parallelism."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from preempt_properties.theorems.settings import ONE, TWO, device, link, transfer
from preempt_properties.theorems.theorem import (
    BANDWIDTH,
    FLOPS,
    LENGTH,
    PARAMS,
    RANKS,
    SECONDS,
    Kind,
    Theorem,
    equal,
    positive,
    whole,
)
from preempt_spec.cost.decide import Setting, break_even_bandwidth, speed_up
from preempt_spec.cost.recompute import Run, weight_time
from preempt_spec.cost.shape import (
    Architecture,
    Attention,
    Recurrent,
    kv_elements,
    kv_heads_per_gpu,
    layers_of,
    shape_of,
)
from preempt_spec.cost.swap import Copies

LAYERS = whole("layers", 8, 128)
HEADS = whole("heads", 1, 128)
DIMENSION = whole("elements", 64, 256)
LATENT = whole("elements", 256, 1_024)
WIDTH = positive("B/element", 0.5, 4)

_HEADS = {"layers": LAYERS, "heads": HEADS, "kv_heads": HEADS, "dim": DIMENSION}
_MODEL = {**_HEADS, "params": PARAMS, "flops": FLOPS, "length": LENGTH}


def _attention(layers: Any, heads: Any, kv_heads: Any, dim: Any, latent: Any = None) -> Attention[Any]:
    return Attention(layers, heads, kv_heads, dim, dim, latent=latent)


def _setting(
    attention: Attention[Any],
    params: Any,
    flops: Any,
    ranks: Any,
    *,
    total: Any = None,
    width: Any = TWO,
    bandwidth: Any = ONE,
    **how: Any,
) -> Setting[Any]:
    """One of `ranks` GPUs, recompute riding along; `params` active ones, `total` if there are others."""
    architecture = Architecture(params if total is None else total, params, (attention,))
    return Setting(
        shape_of(architecture, ranks, width, TWO), device(flops), transfer(link(bandwidth), **how), Run.PIGGYBACK
    )


def _per_gpu(
    layers: Any,
    heads: Any,
    kv_heads: Any,
    dim: Any,
    params: Any,
    flops: Any,
    length: Any,
    ranks: Any,
    latent: Any = None,
) -> Any:
    """Break-even bandwidth of each GPU's own link."""
    return break_even_bandwidth(
        _setting(_attention(layers, heads, kv_heads, dim, latent), params, flops, ranks), length
    )


def _copied(
    layers: Any, heads: Any, dim: Any, per_gpu: Any, params: Any, flops: Any, ranks: Any, bandwidth: Any, overhead: Any
) -> Setting[Any]:
    """Copies per tensor of blocks of 16 tokens, each GPU holding `per_gpu` KV heads."""
    setting = _setting(_attention(layers, heads, per_gpu * ranks, dim), params, flops, ranks)
    how = transfer(link(bandwidth, overhead), block=16 * ONE, copies=Copies.PER_TENSOR)
    return evolve(setting, transfer=how)


def _smaller_copies(
    layers: Any,
    heads: Any,
    dim: Any,
    per_gpu: Any,
    params: Any,
    flops: Any,
    length: Any,
    ranks: Any,
    bandwidth: Any,
    overhead: Any,
) -> bool:
    """A GPU holds `per_gpu` heads at twice the degree, and twice as many at the degree."""
    wide = _copied(layers, heads, dim, 2 * per_gpu, params, flops, ranks, bandwidth, overhead)
    split = _copied(layers, heads, dim, per_gpu, params, flops, 2 * ranks, bandwidth, overhead)
    return bool(speed_up(split, length) < speed_up(wide, length))


def _kv_bytes(layers: Any, heads: Any, kv_heads: Any, dim: Any, width: Any = TWO, ranks: Any = ONE) -> Any:
    return layers_of(_attention(layers, heads, kv_heads, dim), ranks, width).kv_bytes


def _all_heads(kv_heads: Any, ranks: Any) -> Any:
    """KV heads over all GPUs, replicas included."""
    return ranks * kv_heads_per_gpu(kv_heads, ranks)


def _experts(
    layers: Any, heads: Any, kv_heads: Any, dim: Any, params: Any, flops: Any, length: Any, total: Any
) -> bool:
    attention = _attention(layers, heads, kv_heads, dim)
    sparse = _setting(attention, params, flops, ONE, total=total)
    dense = _setting(attention, total, flops, ONE)
    return bool(break_even_bandwidth(dense, length) < break_even_bandwidth(sparse, length))


def _floor_of_experts(params: Any, total: Any) -> bool:
    def floor(active: Any) -> Any:
        return weight_time(shape_of(Architecture(total, active, ()), ONE, TWO, TWO), device(ONE))

    return equal(floor(params), floor(total))


def _once(layers: Any, heads: Any, kv_heads: Any, dim: Any, params: Any, total: Any, state: Any, ranks: Any) -> bool:
    model = Architecture(total, params, (_attention(layers, heads, kv_heads, dim),), Recurrent(layers, state, ONE))
    whole_model, part = shape_of(model, ONE, TWO, TWO), shape_of(model, ranks, TWO, TWO)
    assert whole_model.state is not None
    assert part.state is not None
    return (
        equal(ranks * part.params, whole_model.params)
        and equal(ranks * part.weight_bytes, whole_model.weight_bytes)
        and equal(ranks * part.layers[0].pair_flops, whole_model.layers[0].pair_flops)
        and equal(ranks * part.state.state_bytes, whole_model.state.state_bytes)
    )


THEOREMS = (
    Theorem(
        id="sharding/n41-grouping",
        sentence="KV bytes per token are proportional to the KV heads: MHA has as many times those of GQA as query "
        "heads share a KV head.",
        parameters={
            "layers": LAYERS,
            "kv_heads": HEADS,
            "group": whole("query heads per KV head", 1, 16),
            "dim": DIMENSION,
        },
        claim=lambda layers, kv_heads, group, dim: equal(
            _kv_bytes(layers, group * kv_heads, group * kv_heads, dim),
            group * _kv_bytes(layers, group * kv_heads, kv_heads, dim),
        ),
    ),
    Theorem(
        id="sharding/n42-width",
        sentence="KV bytes per token are proportional to the element's width, on every GPU: FP8 halves those of BF16.",
        parameters={**_HEADS, "width": WIDTH, "ranks": RANKS},
        claim=lambda layers, heads, kv_heads, dim, width, ranks: equal(
            _kv_bytes(layers, heads, kv_heads, dim, width / 2, ranks),
            _kv_bytes(layers, heads, kv_heads, dim, width, ranks) / 2,
        ),
    ),
    Theorem(
        id="sharding/t29-experts",
        sentence="A mixture of experts has a higher break-even bandwidth than a dense model of its total parameters: "
        "it leans towards recompute.",
        parameters={**_MODEL, "total": PARAMS},
        hypotheses={"a token uses only some of the parameters": lambda params, total: params < total},
        claim=_experts,
    ),
    Theorem(
        id="sharding/n43-experts-floor",
        sentence="The weight-read floor of a mixture of experts is that of all of its experts, few as a token uses.",
        parameters={"params": PARAMS, "total": PARAMS},
        claim=_floor_of_experts,
    ),
    Theorem(
        id="sharding/t34-even-split",
        sentence="As long as every GPU holds whole KV heads, tensor parallelism leaves the break-even bandwidth of "
        "each GPU's link as it is.",
        parameters={
            "layers": LAYERS,
            "heads": HEADS,
            "per_gpu": HEADS,
            "dim": DIMENSION,
            "params": PARAMS,
            "flops": FLOPS,
            "length": LENGTH,
            "ranks": RANKS,
        },
        claim=lambda layers, heads, per_gpu, dim, params, flops, length, ranks: equal(
            _per_gpu(layers, heads, ranks * per_gpu, dim, params, flops, length, ranks),
            _per_gpu(layers, heads, ranks * per_gpu, dim, params, flops, length, ONE),
        ),
    ),
    Theorem(
        id="sharding/t35-replicated-heads",
        sentence="With more GPUs than KV heads, replication raises the break-even bandwidth of each GPU's link.",
        parameters={**_MODEL, "ranks": RANKS},
        hypotheses={"there are more GPUs than KV heads": lambda kv_heads, ranks: kv_heads < ranks},
        claim=lambda layers, heads, kv_heads, dim, params, flops, length, ranks: (
            _per_gpu(layers, heads, kv_heads, dim, params, flops, length, ONE)
            < _per_gpu(layers, heads, kv_heads, dim, params, flops, length, ranks)
        ),
    ),
    Theorem(
        id="sharding/n44-never-lower",
        sentence="Tensor parallelism of whatever degree never lowers the break-even bandwidth of each GPU's link.",
        parameters={**_MODEL, "ranks": RANKS},
        claim=lambda layers, heads, kv_heads, dim, params, flops, length, ranks: (
            _per_gpu(layers, heads, kv_heads, dim, params, flops, length, ONE)
            <= _per_gpu(layers, heads, kv_heads, dim, params, flops, length, ranks)
        ),
    ),
    Theorem(
        id="sharding/t36-smaller-copies",
        sentence="Doubling the degree halves each copy, so with a fixed cost per copy swap loses ground to recompute.",
        parameters={
            "layers": LAYERS,
            "heads": HEADS,
            "dim": DIMENSION,
            "per_gpu": HEADS,
            "params": PARAMS,
            "flops": FLOPS,
            "length": LENGTH,
            "ranks": RANKS,
            "bandwidth": BANDWIDTH,
            "overhead": SECONDS,
        },
        claim=_smaller_copies,
    ),
    Theorem(
        id="sharding/n45-latents",
        sentence="Every GPU keeps the whole MLA latent, so n GPUs need n times the break-even bandwidth on each link.",
        parameters={**_MODEL, "ranks": RANKS, "latent": LATENT},
        claim=lambda layers, heads, kv_heads, dim, params, flops, length, ranks, latent: equal(
            _per_gpu(layers, heads, kv_heads, dim, params, flops, length, ranks, latent),
            ranks * _per_gpu(layers, heads, kv_heads, dim, params, flops, length, ONE, latent),
        ),
    ),
    Theorem(
        id="sharding/n46-latents-against-heads",
        sentence="A latent smaller than the KV of one head keeps less per GPU than heads do, at any degree.",
        parameters={**_HEADS, "ranks": RANKS, "latent": LATENT},
        hypotheses={"the latent is smaller than a head's KV": lambda latent, dim: latent < 2 * dim},
        claim=lambda layers, heads, kv_heads, dim, ranks, latent: (
            kv_elements(_attention(layers, heads, kv_heads, dim, latent), ranks)
            < kv_elements(_attention(layers, heads, kv_heads, dim), ranks)
        ),
    ),
    Theorem(
        id="sharding/i13-heads-fall",
        sentence="A higher degree of tensor parallelism never puts more KV heads on a GPU.",
        parameters={"kv_heads": HEADS, "ranks": RANKS, "more": RANKS},
        hypotheses={"the second degree is higher": lambda ranks, more: ranks < more},
        claim=lambda kv_heads, ranks, more: kv_heads_per_gpu(kv_heads, more) <= kv_heads_per_gpu(kv_heads, ranks),
    ),
    Theorem(
        id="sharding/n47-a-head-at-least",
        sentence="Every GPU holds a KV head at least, and one only as soon as there are as many GPUs as KV heads.",
        parameters={"kv_heads": HEADS, "ranks": RANKS},
        claim=lambda kv_heads, ranks: (
            equal(kv_heads_per_gpu(kv_heads, ranks), ONE)
            if ranks >= kv_heads
            else kv_heads_per_gpu(kv_heads, ranks) > 1
        ),
    ),
    Theorem(
        id="sharding/n48-replicas-bounded",
        sentence="All GPUs together hold every KV head, and fewer replicas than there are GPUs.",
        parameters={"kv_heads": HEADS, "ranks": RANKS},
        claim=lambda kv_heads, ranks: kv_heads <= _all_heads(kv_heads, ranks) < kv_heads + ranks,
    ),
    Theorem(
        id="sharding/i15-total-constant",
        kind=Kind.FALSE,
        sentence="The KV of all GPUs together is the same at every degree of tensor parallelism.",
        parameters={"kv_heads": HEADS, "ranks": RANKS},
        claim=lambda kv_heads, ranks: equal(_all_heads(kv_heads, ranks), kv_heads),
        at={"kv_heads": 8, "ranks": 16},
        shows={"KV heads over all GPUs": (_all_heads, "heads")},
    ),
    Theorem(
        id="sharding/n104-weights-once",
        sentence="All GPUs together hold weights, arithmetic and recurrent states once: tensor parallelism replicates "
        "KV only.",
        parameters={
            **_HEADS,
            "params": PARAMS,
            "total": PARAMS,
            "state": positive("B", 1_024, 1e7),
            "ranks": RANKS,
        },
        claim=_once,
    ),
)
