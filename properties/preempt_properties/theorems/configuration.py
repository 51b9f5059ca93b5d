"""From a configuration to bytes and FLOP: what a token keeps, what a pair costs, what a GPU reads."""

from __future__ import annotations

from typing import Any

from preempt_properties.theorems.settings import ONE
from preempt_properties.theorems.theorem import PARAMS, RANKS, Theorem, equal, positive, whole
from preempt_spec.cost.shape import Architecture, Attention, Layers, Recurrent, Shape, layers_of, shape_of

LAYERS = whole("layers", 8, 128)
HEADS = whole("heads", 1, 128)
DIMENSION = whole("elements", 64, 256)
WIDTH = positive("B/element", 0.5, 4)

_ATTENTION = {"count": LAYERS, "heads": HEADS, "kv_heads": HEADS, "key": DIMENSION, "value": DIMENSION}


def _layers(
    count: Any, heads: Any, kv_heads: Any, key: Any, value: Any, width: Any = ONE, ranks: Any = ONE, latent: Any = None
) -> Layers[Any]:
    return layers_of(Attention(count, heads, kv_heads, key, value, latent=latent), ranks, width)


def _model(params: Any, total: Any, kv_width: Any, weight_width: Any, ranks: Any, count: Any, state: Any) -> Shape[Any]:
    """Recurrent layers alone, two tensors each."""
    return shape_of(Architecture(total, params, (), Recurrent(count, state, 2 * ONE)), ranks, kv_width, weight_width)


def _weights(params: Any, total: Any, kv_width: Any, weight_width: Any, ranks: Any, count: Any, state: Any) -> bool:
    part = _model(params, total, kv_width, weight_width, ranks, count, state)
    return equal(part.params * ranks, params) and equal(part.weight_bytes * ranks, total * weight_width)


def _state(params: Any, total: Any, kv_width: Any, weight_width: Any, ranks: Any, count: Any, state: Any) -> bool:
    part = _model(params, total, kv_width, weight_width, ranks, count, state).state
    if part is None:
        return False
    return equal(part.state_bytes * ranks, count * state) and equal(part.tensors, 2 * count)


def _kv_width(
    count: Any, heads: Any, kv_heads: Any, key: Any, value: Any, width: Any, weight_width: Any, ranks: Any
) -> bool:
    model = Architecture(ONE, ONE, (Attention(count, heads, kv_heads, key, value),))
    kept = shape_of(model, ranks, width, weight_width).layers[0]
    return equal(kept.kv_bytes, _layers(count, heads, kv_heads, key, value, width, ranks).kv_bytes)


_MODEL = {
    "params": PARAMS,
    "total": PARAMS,
    "kv_width": WIDTH,
    "weight_width": WIDTH,
    "ranks": RANKS,
    "count": LAYERS,
    "state": positive("B", 1_024, 1e7),
}

THEOREMS = (
    Theorem(
        id="shape/n102-kv-bytes",
        sentence="A token keeps a key and a value per layer and KV head, each element as wide as the KV type.",
        parameters={**_ATTENTION, "width": WIDTH},
        claim=lambda count, heads, kv_heads, key, value, width: equal(
            _layers(count, heads, kv_heads, key, value, width).kv_bytes, count * kv_heads * (key + value) * width
        ),
    ),
    Theorem(
        id="shape/n103-pair-flops",
        sentence="A pair of tokens costs a score and the weighting of a value per layer and query head, 2 FLOP per "
        "element; ranks share the heads.",
        parameters={**_ATTENTION, "ranks": RANKS},
        claim=lambda count, heads, kv_heads, key, value, ranks: equal(
            _layers(count, heads, kv_heads, key, value, ranks=ranks).pair_flops * ranks,
            2 * count * heads * (key + value),
        ),
    ),
    Theorem(
        id="shape/n105-latent-tensors",
        sentence="MLA keeps one tensor per layer, and everybody else two: a key's and a value's.",
        parameters={**_ATTENTION, "latent": whole("elements", 256, 1_024)},
        claim=lambda count, heads, kv_heads, key, value, latent: (
            equal(_layers(count, heads, kv_heads, key, value, latent=latent).tensors, count)
            and equal(_layers(count, heads, kv_heads, key, value).tensors, 2 * count)
        ),
    ),
    Theorem(
        id="shape/n116-latent-bytes",
        sentence="MLA keeps the latent's elements per token and layer, whatever the heads and the ranks.",
        parameters={**_ATTENTION, "width": WIDTH, "ranks": RANKS, "latent": whole("elements", 256, 1_024)},
        claim=lambda count, heads, kv_heads, key, value, width, ranks, latent: equal(
            _layers(count, heads, kv_heads, key, value, width, ranks, latent).kv_bytes, count * latent * width
        ),
    ),
    Theorem(
        id="shape/n109-weights",
        sentence="A GPU computes with its share of the active parameters and reads its share of all, in the weights' "
        "own width.",
        parameters=_MODEL,
        claim=_weights,
    ),
    Theorem(
        id="shape/n117-state",
        sentence="A GPU keeps its share of every recurrent layer's state, in as many tensors as there are.",
        parameters=_MODEL,
        claim=_state,
    ),
    Theorem(
        id="shape/n127-kv-width",
        sentence="What a GPU keeps per token is as wide as the KV type says, however wide the weights are.",
        parameters={**_ATTENTION, "width": WIDTH, "weight_width": WIDTH, "ranks": RANKS},
        claim=_kv_width,
    ),
)
