"""What a model is made of: the primary facts from which KV bytes, attention work and parameters follow.

A row of `data/models.json` and a Hugging Face `config.json` both become a `Model`; nothing derived is stored in it.
Sizes are in elements (hidden units, tokens, vocabulary entries), never in bytes, unless a name says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

Count: TypeAlias = Annotated[int, Meta(ge=1, le=10**9)]
Some: TypeAlias = Annotated[int, Meta(ge=0, le=10**9)]

#: How the weights are stored: two bytes, four, one (blocks of FP8), or FP4 in the routed experts and two elsewhere.
WeightFormat: TypeAlias = Literal["bf16", "fp16", "fp32", "fp8", "mxfp4-experts"]


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A kind of layer: how many there are, and the shape of one."""

    layers: Count


class Attention(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Attention with one key and one value vector per KV head and token: MHA, GQA, MQA."""

    heads: Count
    kv_heads: Count
    head_dim: Count
    sliding_layers: Some = 0  # of `layers`, those that keep only `window` tokens
    window: Count | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False  # over one head, weights shared by the heads of a layer
    sinks: bool = False  # one learned logit per head
    output_gate: bool = False  # the query projection is twice as wide


class Latent(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Multi-head latent attention (MLA): one latent and one rotary key per token, shared by all heads."""

    heads: Count
    kv_rank: Count
    q_rank: Count | None = None  # None: queries are projected at once
    rope_dim: Count
    nope_dim: Count
    value_dim: Count


class DeltaNet(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Linear attention with the gated delta rule: a state of fixed size instead of KV."""

    key_heads: Count
    key_dim: Count
    value_heads: Count
    value_dim: Count
    conv: Count
    state_bytes: Count = 4  # per element of the recurrent state; the convolution's is kept like KV


class Mamba(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A selective state space layer. Mamba-2 has heads and groups, Mamba-1 (dt_rank given) one head per channel."""

    heads: Count
    head_dim: Count
    groups: Count = 1
    state: Count
    conv: Count
    dt_rank: Count | None = None
    state_bytes: Count = 4


class Mlp(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A dense feed-forward network."""

    intermediate: Count
    gated: bool = True  # three matrices instead of two
    bias: bool = False


class Experts(_Part, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A mixture of experts."""

    experts: Count
    topk: Count  # routed experts per token
    intermediate: Count  # of one routed expert
    shared: Some = 0  # intermediate size of all shared experts together
    gated: bool = True
    bias: bool = False
    router_bias: bool = False  # also one that only corrects the choice
    shared_gate: bool = False


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A decoder-only transformer or hybrid."""

    layers: Count  # blocks of all kinds; each has `norms` norms
    hidden: Count
    vocab: Count
    max_position: Count | None = None  # tokens; None: not stated
    attention: Attention | None = None
    latent: Latent | None = None
    delta_net: DeltaNet | None = None
    mamba: Mamba | None = None
    mlp: Mlp | None = None
    experts: Experts | None = None
    tied: bool = False  # the output head is the embedding
    head_bias: bool = False
    norms: Count = 2  # of width `hidden`, per layer; one more at the end
    norm_bias: bool = False
    positions: Some = 0  # rows of a learned position embedding
    weights: WeightFormat = "bf16"
