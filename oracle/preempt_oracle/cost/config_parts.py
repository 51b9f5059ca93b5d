"""What the fields of a config.json that families share say: sizes, heads, windows, networks, experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .config_fields import Fields
from .facts import Experts, Mlp, WeightFormat

MOST_LAYERS: Final = 10_000
MOST_TOKENS: Final = 10**9
_LARGEST_HEAD: Final = 10**5
_FULL, _SLIDING = "full_attention", "sliding_attention"


def shape(f: Fields, *, tied: bool = False) -> dict[str, Any]:
    """The fields that are spelled alike in nearly every family. `tied`: whether the family's embeddings usually are."""
    return {
        "layers": layer_count(f),
        "hidden": f.count("hidden_size"),
        "vocab": f.count("vocab_size"),
        "max_position": f.maybe("max_position_embeddings", high=MOST_TOKENS),
        "tied": f.holder("tie_word_embeddings").flag("tie_word_embeddings", tied),
        "weights": weight_format(f),
    }


def layer_count(f: Fields) -> int:
    """num_hidden_layers."""
    return f.count("num_hidden_layers", high=MOST_LAYERS)


def weight_format(f: Fields) -> WeightFormat:
    """How the weights are stored, from quantization_config or else dtype (torch_dtype in older files).

    Neither: two bytes, as engines serve what does not say.
    """
    quantized = f.holder("quantization_config").part("quantization_config")
    if quantized is not None:
        match quantized.word("quant_method"):
            case "fp8":
                return "fp8"
            case "mxfp4" if f.has("num_local_experts"):
                return "mxfp4-experts"
        raise quantized.refuse("quant_method", "is not known here; without quantization_config, dtype decides")
    name = "dtype" if f.holder("dtype").has("dtype") else "torch_dtype"
    f = f.holder(name)
    match f.word(name, "bfloat16"):
        case "bfloat16":
            return "bf16"
        case "float16":
            return "fp16"
        case "float32":
            return "fp32"
    raise f.refuse(name, "is not one of bfloat16, float16, float32")


def head_shape(
    f: Fields, *, ungrouped: bool = False, stated: bool = False, head_dim: str = "head_dim"
) -> dict[str, Any]:
    """heads, kv_heads, head_dim.

    `ungrouped`: the family takes missing KV heads for as many as there are heads. `stated`: head_dim must be written,
    since the family's default is no equal share of the hidden size.
    """
    heads = f.count("num_attention_heads")
    kv_heads = f.count("num_key_value_heads", heads if ungrouped else None)
    if kv_heads > heads:
        raise f.refuse("num_key_value_heads", f"is {kv_heads}, more than the {heads} num_attention_heads")
    if heads % kv_heads:
        raise f.refuse("num_key_value_heads", f"is {kv_heads}, which does not divide the {heads} num_attention_heads")
    one = f.count(head_dim, high=_LARGEST_HEAD) if stated else one_head(f, heads)
    return {"heads": heads, "kv_heads": kv_heads, "head_dim": one}


def one_head(f: Fields, heads: int, hidden: str = "hidden_size") -> int:
    """The dimension of one head: as stated, else an equal share of the hidden size."""
    if f.has("head_dim"):
        return f.count("head_dim", high=_LARGEST_HEAD)
    width = f.count(hidden)
    if width % heads:
        raise f.refuse("head_dim", f"is missing, and {hidden} {width} is not divisible by {heads} heads")
    return width // heads


def windows(f: Fields, layers: int, slides: Callable[[int], bool] | None) -> dict[str, Any]:
    """How many layers keep only a window, and which. `slides`: the family's rule, where layer_types does not say.

    `slides` is None for a family without such a rule: a window without layer_types is then refused.
    """
    window = f.maybe("sliding_window", high=MOST_TOKENS)
    kinds = f.words("layer_types", (_FULL, _SLIDING), layers)
    if kinds is not None:
        sliding = kinds.count(_SLIDING)
    elif window is None:
        return {}
    elif slides is None:
        raise f.refuse("sliding_window", f"is {window}, but nothing says which layers slide (layer_types is missing)")
    else:
        sliding = sum(map(slides, range(layers)))
    if not sliding:
        return {}
    if window is None:
        raise f.refuse("sliding_window", f"is missing, but {sliding} layer_types are {_SLIDING}")
    return {"sliding_layers": sliding, "window": window}


def experts(f: Fields, layers: int, number: str, intermediate: str, **more: Any) -> Experts:
    """A mixture of experts; `number` and `intermediate` name the fields."""
    total = f.count(number)
    topk = f.count("num_experts_per_tok")
    if topk > total:
        raise f.refuse("num_experts_per_tok", f"is {topk}, more than the {total} {number}")
    return Experts(layers=layers, experts=total, topk=topk, intermediate=f.count(intermediate), **more)


def every(_: int) -> bool:
    """All layers."""
    return True


def mlp(f: Fields, layers: int, *, bias: bool = False) -> Mlp | None:
    """The gated networks of `layers` layers; None of none."""
    return Mlp(layers=layers, intermediate=f.count("intermediate_size"), bias=bias) if layers else None


def sparse_layers(f: Fields, layers: int) -> int:
    """How many layers have experts, by Qwen's rule."""
    step = f.count("decoder_sparse_step", 1)
    dense = f.indices("mlp_only_layers", layers)
    return sum((i + 1) % step == 0 and i not in dense for i in range(layers))


def behind_dense(f: Fields, layers: int, *, corrected: bool) -> dict[str, Any]:
    """Dense layers first, then experts with shared ones among them: DeepSeek's arrangement, GLM's too.

    `corrected`: the choice of experts has a correction bias, one number per expert.
    """
    if not f.given("n_routed_experts"):
        return {"mlp": mlp(f, layers)}
    dense = f.count("first_k_dense_replace", low=0)
    if dense > layers:
        raise f.refuse("first_k_dense_replace", f"is {dense}, more than the {layers} num_hidden_layers")
    step = f.count("moe_layer_freq", 1)
    sparse = sum(i >= dense and i % step == 0 for i in range(layers))
    if not sparse:
        return {"mlp": mlp(f, layers)}
    width = f.count("moe_intermediate_size")
    shared = width * (f.count("n_shared_experts", low=0, high=1000) if f.given("n_shared_experts") else 0)
    mixture = experts(f, sparse, "n_routed_experts", "moe_intermediate_size", shared=shared, router_bias=corrected)
    return {"mlp": mlp(f, layers - sparse), "experts": mixture}
