"""What the config.json of each attention-only family says. Names of fields and families are Hugging Face's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from .config_fields import Fields
from .config_parts import (
    MOST_LAYERS,
    MOST_TOKENS,
    behind_dense,
    every,
    experts,
    head_shape,
    mlp,
    one_head,
    shape,
    sparse_layers,
    weight_format,
    windows,
)
from .facts import Attention, Mlp, Model

Family: TypeAlias = Callable[[Fields], Model]


def _qwen_window(f: Fields, layers: int) -> dict[str, Any]:
    if not f.flag("use_sliding_window", False):
        return {}
    f.given("sliding_window")
    first = f.count("max_window_layers", low=0)
    return windows(f, layers, lambda i: i >= first)


def llama(f: Fields) -> Model:
    """Llama 2, 3 and what is built like them."""
    s, bias = shape(f), f.flag("attention_bias", False)
    attention = Attention(
        layers=s["layers"],
        **head_shape(f, ungrouped=True),
        **windows(f, s["layers"], None),
        qkv_bias=bias,
        out_bias=bias,
    )
    return Model(**s, attention=attention, mlp=mlp(f, s["layers"], bias=f.flag("mlp_bias", False)))


def mistral(f: Fields) -> Model:
    """Mistral: if there is a window, every layer slides."""
    s = shape(f)
    f.given("sliding_window")
    attention = Attention(layers=s["layers"], **head_shape(f), **windows(f, s["layers"], every))
    return Model(**s, attention=attention, mlp=mlp(f, s["layers"]))


def mixtral(f: Fields) -> Model:
    """Mistral with experts."""
    s = shape(f)
    attention = Attention(layers=s["layers"], **head_shape(f), **windows(f, s["layers"], every))
    return Model(**s, attention=attention, experts=experts(f, s["layers"], "num_local_experts", "intermediate_size"))


def qwen2(f: Fields) -> Model:
    """Qwen 2 and 2.5: biases on queries, keys and values."""
    s = shape(f)
    attention = Attention(layers=s["layers"], **head_shape(f), **_qwen_window(f, s["layers"]), qkv_bias=True)
    return Model(**s, attention=attention, mlp=mlp(f, s["layers"]))


def _qwen3_attention(f: Fields, layers: int) -> Attention:
    bias = f.flag("attention_bias", False)
    window = _qwen_window(f, layers)
    heads = head_shape(f, stated=True)
    return Attention(layers=layers, **heads, **window, qkv_bias=bias, out_bias=bias, qk_norm=True)


def qwen3(f: Fields) -> Model:
    """Qwen 3: norms of queries and keys."""
    s = shape(f)
    return Model(**s, attention=_qwen3_attention(f, s["layers"]), mlp=mlp(f, s["layers"]))


def qwen3_moe(f: Fields) -> Model:
    """Qwen 3 with experts in every decoder_sparse_step-th layer that is not among mlp_only_layers."""
    s = shape(f)
    sparse = sparse_layers(f, s["layers"])
    return Model(
        **s,
        attention=_qwen3_attention(f, s["layers"]),
        experts=experts(f, sparse, "num_experts", "moe_intermediate_size") if sparse else None,
        mlp=mlp(f, s["layers"] - sparse),
    )


def gemma2(f: Fields) -> Model:
    """Gemma 2: every other layer slides, the first one too; four norms a layer."""
    s = shape(f, tied=True)
    return _gemma(f, s, lambda i: i % 2 == 0, qk_norm=False)


def gemma3(f: Fields) -> Model:
    """Gemma 3: of every sliding_window_pattern layers, the last one does not slide."""
    if f.path:
        # Inside a multimodal config the fields that have the class's default are left out when it is written.
        f = f.with_defaults(num_attention_heads=8, num_key_value_heads=4, head_dim=256, vocab_size=262_208)
    s = shape(f, tied=True)
    pattern = f.count("sliding_window_pattern", f.count("_sliding_window_pattern", 6))
    return _gemma(f, s, lambda i: (i + 1) % pattern != 0, qk_norm=True)


def _gemma(f: Fields, s: dict[str, Any], slides: Callable[[int], bool], *, qk_norm: bool) -> Model:
    f.unsupported("use_bidirectional_attention")
    f.given("sliding_window")
    bias = f.flag("attention_bias", False)
    attention = Attention(
        layers=s["layers"],
        **head_shape(f, stated=True),
        **windows(f, s["layers"], slides),
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=qk_norm,
    )
    return Model(**s, norms=4, attention=attention, mlp=mlp(f, s["layers"]))


def gpt_oss(f: Fields) -> Model:
    """gpt-oss: every other layer slides, the first one too; a sink per head; biases everywhere."""
    s, bias = shape(f), f.flag("attention_bias", True)
    f.given("sliding_window")
    attention = Attention(
        layers=s["layers"],
        **head_shape(f, stated=True),
        **windows(f, s["layers"], lambda i: i % 2 == 0),
        qkv_bias=bias,
        out_bias=bias,
        sinks=True,
    )
    mixture = experts(f, s["layers"], "num_local_experts", "intermediate_size", bias=True, router_bias=True)
    return Model(**s, attention=attention, experts=mixture)


def glm4(f: Fields) -> Model:
    """GLM-4 (dense): four norms a layer, biases on queries, keys and values."""
    s = shape(f)
    attention = Attention(
        layers=s["layers"],
        **head_shape(f, stated=True),
        **windows(f, s["layers"], None),
        qkv_bias=f.flag("attention_bias", True),
    )
    return Model(**s, norms=4, attention=attention, mlp=mlp(f, s["layers"]))


def glm4_moe(f: Fields) -> Model:
    """GLM-4.5 and 4.6: experts behind the first_k_dense_replace layers."""
    s = shape(f)
    attention = Attention(
        layers=s["layers"],
        **head_shape(f),
        **windows(f, s["layers"], None),
        qkv_bias=f.flag("attention_bias", False),
        qk_norm=f.flag("use_qk_norm", False),
    )
    return Model(**s, attention=attention, **behind_dense(f, s["layers"], corrected=True))


def opt(f: Fields) -> Model:
    """OPT: learned positions (two more than there are tokens), layer norms, biases."""
    s = shape(f, tied=True)
    if f.count("word_embed_proj_dim", s["hidden"]) != s["hidden"]:
        raise f.refuse("word_embed_proj_dim", "differs from hidden_size, which is not modelled")
    for name in ("do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine"):
        if not f.flag(name, True):
            raise f.refuse(name, "is false, which is not modelled")
    heads = f.count("num_attention_heads")
    attention = Attention(
        layers=s["layers"], heads=heads, kv_heads=heads, head_dim=one_head(f, heads), qkv_bias=True, out_bias=True
    )
    network = Mlp(layers=s["layers"], intermediate=f.count("ffn_dim"), gated=False, bias=True)
    positions = f.count("max_position_embeddings", high=MOST_TOKENS) + 2
    return Model(**s, norm_bias=True, positions=positions, attention=attention, mlp=network)


def gpt2(f: Fields) -> Model:
    """GPT-2."""
    return _gpt2(f, multi_query=False)


def gpt_bigcode(f: Fields) -> Model:
    """GPT-2 with one KV head for all (multi_query): StarCoder."""
    return _gpt2(f, multi_query=f.flag("multi_query", True))


def _gpt2(f: Fields, *, multi_query: bool) -> Model:
    f.unsupported("add_cross_attention")
    layers, hidden, heads = f.count("n_layer", high=MOST_LAYERS), f.count("n_embd"), f.count("n_head")
    head_dim = one_head(f, heads, hidden="n_embd")
    positions = f.count("n_positions", high=MOST_TOKENS)
    return Model(
        layers=layers,
        hidden=hidden,
        vocab=f.count("vocab_size"),
        max_position=positions,
        tied=f.flag("tie_word_embeddings", True),
        weights=weight_format(f),
        norm_bias=True,
        positions=positions,
        attention=Attention(
            layers=layers,
            heads=heads,
            kv_heads=1 if multi_query else heads,
            head_dim=head_dim,
            qkv_bias=True,
            out_bias=True,
        ),
        mlp=Mlp(layers=layers, intermediate=f.count("n_inner", 4 * hidden), gated=False, bias=True),
    )


def phi(f: Fields) -> Model:
    """Phi-1 and 2: attention and network side by side behind one layer norm, biases everywhere."""
    s = shape(f)
    f.unsupported("qk_layernorm")
    attention = Attention(layers=s["layers"], **head_shape(f, ungrouped=True), qkv_bias=True, out_bias=True)
    network = Mlp(layers=s["layers"], intermediate=f.count("intermediate_size"), gated=False, bias=True)
    return Model(**s, norms=1, norm_bias=True, head_bias=True, attention=attention, mlp=network)


def phi3(f: Fields) -> Model:
    """Phi-3 and 4: if there is a window, every layer slides."""
    s = shape(f)
    attention = Attention(layers=s["layers"], **head_shape(f, ungrouped=True), **windows(f, s["layers"], every))
    return Model(**s, attention=attention, mlp=mlp(f, s["layers"]))


FAMILIES: Final[dict[str, Family]] = {
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "glm4": glm4,
    "glm4_moe": glm4_moe,
    "gpt2": gpt2,
    "gpt_bigcode": gpt_bigcode,
    "gpt_oss": gpt_oss,
    "llama": llama,
    "mistral": mistral,
    "mixtral": mixtral,
    "opt": opt,
    "phi": phi,
    "phi3": phi3,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
}
