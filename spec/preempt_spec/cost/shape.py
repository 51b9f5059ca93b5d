"""A model: what its attention keeps per token and costs per pair, and what of it falls on one GPU.

An `Architecture` is what a configuration file says. `shape_of` turns it into a `Shape`: the few numbers per GPU that
the cost functions need, for a degree of tensor parallelism and element widths. The same classes cover MHA, GQA, MQA
(`kv_heads`), MLA (`latent`), mixtures of experts (active and total parameters), sliding windows and recurrent layers.
"""

from __future__ import annotations

from typing import Generic

from attrs import frozen

from preempt_spec.cost.number import N, round_up


@frozen
class Attention(Generic[N]):
    """Layers of one model that attend alike. Counts are of the whole model, over all GPUs."""

    layers: N
    """Number of such layers."""
    heads: N
    """Query heads per layer."""
    kv_heads: N
    """Key and value heads per layer: as many as `heads` in MHA, fewer in GQA, 1 in MQA."""
    key_dim: N
    """Elements of one query or key (in MLA the expanded one: without-position plus rotary part)."""
    value_dim: N
    """Elements of one value."""
    window: N | None = None
    """Tokens that a query sees and whose KV is kept (sliding window); None: all."""
    latent: N | None = None
    """MLA: elements kept per token and layer (latent plus rotary key) in place of keys and values; None: no MLA."""


@frozen
class Recurrent(Generic[N]):
    """Layers that keep a state of constant size instead of KV (Mamba, linear attention)."""

    layers: N
    """Number of such layers."""
    state_bytes: N
    """Bytes of state per layer and request, over all GPUs."""
    tensors: N
    """Separate tensors per layer in which the state lies (for example convolution and recurrent state: 2)."""


@frozen
class Architecture(Generic[N]):
    """A model as its configuration describes it."""

    params_total: N
    """All parameters: what a pass over many tokens reads, every expert included."""
    params_active: N
    """Parameters used for one token: all of them, but for a mixture of experts the routed ones only."""
    attention: tuple[Attention[N], ...]
    """Kinds of attention layers; empty for a purely recurrent model."""
    recurrent: Recurrent[N] | None = None
    """The layers with a constant state, if any."""
    max_length: N | None = None
    """Longest context, in tokens; None: not known."""


@frozen
class Layers(Generic[N]):
    """Attention layers of one kind as one GPU sees them."""

    kv_bytes: N
    """Bytes of KV per token."""
    pair_flops: N
    """FLOP per (query token, key token) pair."""
    tensors: N
    """Separate tensors in which the KV lies: K and V of each layer (MLA: one per layer)."""
    window: N | None = None
    """Tokens kept and seen; None: all."""


@frozen
class State(Generic[N]):
    """Constant state as one GPU sees it."""

    state_bytes: N
    """Bytes per request."""
    tensors: N
    """Separate tensors in which it lies."""


@frozen
class Shape(Generic[N]):
    """The part of a model that lives on one GPU: all that the cost functions know of it."""

    params: N
    """Parameters of this GPU used for one token; each costs 2 FLOP per token."""
    weight_bytes: N
    """Bytes of weights that one pass reads from device memory. For a mixture of experts these are all experts: an upper
    bound for a pass of a few tokens, which leaves experts out."""
    layers: tuple[Layers[N], ...]
    """Attention layers, by kind."""
    state: State[N] | None = None
    """Constant state, if any."""


def kv_heads_per_gpu(kv_heads: N, ranks: N) -> N:
    """Return the KV heads that each of `ranks` GPUs holds: their share, rounded up to whole heads (replication)."""
    return round_up(kv_heads / ranks)


def kv_elements(attention: Attention[N], ranks: N) -> N:
    """Return the elements that one GPU keeps per token and layer. An MLA latent is replicated on every GPU."""
    if attention.latent is not None:
        return attention.latent
    return kv_heads_per_gpu(attention.kv_heads, ranks) * (attention.key_dim + attention.value_dim)


def layers_of(attention: Attention[N], ranks: N, kv_width: N) -> Layers[N]:
    """Return what one of `ranks` GPUs holds of these layers; `kv_width` in bytes per element."""
    tensors = attention.layers if attention.latent is not None else 2 * attention.layers
    # Scores: 2 FLOP per element of the key; weighted values: 2 per element of the value. For each query head, since
    # grouping shares what is kept, not what is computed.
    pair = 2 * (attention.key_dim + attention.value_dim) * attention.layers * attention.heads / ranks
    return Layers(kv_elements(attention, ranks) * attention.layers * kv_width, pair, tensors, attention.window)


def shape_of(architecture: Architecture[N], ranks: N, kv_width: N, weight_width: N) -> Shape[N]:
    """Return what one of `ranks` tensor-parallel GPUs holds and computes of a model.

    `kv_width`, `weight_width`: bytes per element (BF16 2, FP8 1, 4-bit ½; scales of quantised formats are left out).
    Weights, heads and states are divided evenly, KV heads by whole heads, MLA latents not at all. What the GPUs say to
    each other is not counted.
    """
    state = None
    if architecture.recurrent is not None:
        r = architecture.recurrent
        state = State(r.layers * r.state_bytes / ranks, r.layers * r.tensors)
    return Shape(
        params=architecture.params_active / ranks,
        weight_bytes=architecture.params_total * weight_width / ranks,
        layers=tuple(layers_of(a, ranks, kv_width) for a in architecture.attention),
        state=state,
    )
