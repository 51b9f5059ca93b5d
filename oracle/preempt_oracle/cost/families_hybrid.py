"""The same for models with latents (MLA) and for hybrids of attention and layers with a state of fixed size."""

from __future__ import annotations

from typing import Any, Final

from .config_fields import Fields
from .config_parts import behind_dense, experts, head_shape, shape, sparse_layers
from .facts import Attention, DeltaNet, Latent, Mamba, Mlp, Model
from .families import Family

_STATE_WIDTHS: Final = {"float32": 4, "bfloat16": 2, "float16": 2}


def deepseek(f: Fields) -> Model:
    """DeepSeek V2, V3, R1 and Kimi K2: latents; sparse attention (V3.2) is not modelled."""
    s = shape(f)
    f.unsupported("index_topk", "attention_bias")
    latent = Latent(
        layers=s["layers"],
        heads=f.count("num_attention_heads"),
        kv_rank=f.count("kv_lora_rank"),
        q_rank=f.count("q_lora_rank") if f.given("q_lora_rank") else None,
        rope_dim=f.count("qk_rope_head_dim"),
        nope_dim=f.count("qk_nope_head_dim"),
        value_dim=f.count("v_head_dim"),
    )
    return Model(**s, latent=latent, **behind_dense(f, s["layers"], corrected=not f.says("model_type", "deepseek_v2")))


def qwen3_next(f: Fields) -> Model:
    """Qwen3-Next and Qwen3.5: the last of every full_attention_interval layers attends, the others keep a state."""
    s = shape(f)
    layers = s["layers"]
    kinds = f.words("layer_types", ("full_attention", "linear_attention"), layers)
    interval = f.count("full_attention_interval", 4)
    full = kinds.count("full_attention") if kinds is not None else layers // interval
    bias = f.flag("attention_bias", False)
    attention = delta_net = None
    if full:
        attention = Attention(
            layers=full,
            **head_shape(f, stated=True),
            qkv_bias=bias,
            out_bias=bias,
            qk_norm=True,
            output_gate=f.flag("attn_output_gate", True),
        )
    if full < layers:
        delta_net = DeltaNet(
            layers=layers - full,
            key_heads=f.count("linear_num_key_heads"),
            key_dim=f.count("linear_key_head_dim"),
            value_heads=f.count("linear_num_value_heads"),
            value_dim=f.count("linear_value_head_dim"),
            conv=f.count("linear_conv_kernel_dim", high=1000),
            state_bytes=_state_bytes(f, "mamba_ssm_dtype"),
        )
    sparse = sparse_layers(f, layers) if f.has("num_experts") else 0
    mixture = None
    if sparse:
        shared = f.count("shared_expert_intermediate_size")
        mixture = experts(f, sparse, "num_experts", "moe_intermediate_size", shared=shared, shared_gate=True)
    dense = layers - sparse
    mlp = Mlp(layers=dense, intermediate=f.count("intermediate_size")) if dense else None
    return Model(**s, attention=attention, delta_net=delta_net, experts=mixture, mlp=mlp)


def nemotron_h(f: Fields) -> Model:
    """Nemotron-H: every layer is one of Mamba-2, attention, network, experts; one norm each; nothing is gated."""
    s = shape(f)
    f.unsupported("sliding_window", "use_bias", "mamba_proj_bias", "mlp_bias", "attention_bias", "moe_latent_size")
    mamba, attend, network, mixture = _nemotron_layers(f, s["layers"])
    parts: dict[str, Any] = {}
    if mamba:
        parts["mamba"] = Mamba(
            layers=mamba,
            heads=f.count("mamba_num_heads"),
            head_dim=f.count("mamba_head_dim"),
            groups=f.count("n_groups"),
            state=f.count("ssm_state_size"),
            conv=f.count("conv_kernel", high=1000),
            state_bytes=_state_bytes(f, "mamba_ssm_cache_dtype"),
        )
    if attend:
        name = "head_dim" if f.has("head_dim") else "attention_head_dim"
        parts["attention"] = Attention(layers=attend, **head_shape(f, stated=True, head_dim=name))
    if network:
        parts["mlp"] = Mlp(layers=network, intermediate=f.count("intermediate_size"), gated=False)
    if mixture:
        shared = f.count("n_shared_experts", low=0) and f.count("moe_shared_expert_intermediate_size")
        parts["experts"] = experts(
            f, mixture, "n_routed_experts", "moe_intermediate_size", shared=shared, gated=False, router_bias=True
        )
    return Model(**s, norms=1, **parts)


def _nemotron_layers(f: Fields, layers: int) -> tuple[int, int, int, int]:
    """Numbers of Mamba, attention, dense and expert layers."""
    if f.has("hybrid_override_pattern"):
        pattern = f.word("hybrid_override_pattern")
        if strange := set(pattern) - set("M*-E"):
            raise f.refuse("hybrid_override_pattern", f"has {sorted(strange)[0]!r}, which is none of M * - E")
        if len(pattern) != layers:
            reason = f"is of {len(pattern)} layers, num_hidden_layers is {layers}"
            raise f.refuse("hybrid_override_pattern", reason)
        return pattern.count("M"), pattern.count("*"), pattern.count("-"), pattern.count("E")
    names = ("mamba", "attention", "mlp", "moe")
    kinds = f.words("layers_block_type", names, layers)
    if kinds is None:
        raise f.refuse("hybrid_override_pattern", "is missing: nothing says which layers attend")
    mamba, attend, network, mixture = map(kinds.count, names)
    return mamba, attend, network, mixture


def jamba(f: Fields) -> Model:
    """Jamba: one attention layer in attn_layer_period, Mamba-1 else; experts in one layer of expert_layer_period."""
    s = shape(f)
    layers, hidden = s["layers"], s["hidden"]
    f.unsupported("mamba_proj_bias")
    attend = _periodic(f, layers, "attn_layer")
    parts: dict[str, Any] = {}
    if attend:
        parts["attention"] = Attention(layers=attend, **head_shape(f))
    if attend < layers:
        parts["mamba"] = Mamba(
            layers=layers - attend,
            heads=f.count("mamba_expand", high=1000) * hidden,
            head_dim=1,
            state=f.count("mamba_d_state"),
            conv=f.count("mamba_d_conv", high=1000),
            dt_rank=-(-hidden // 16) if f.says("mamba_dt_rank", "auto") else f.count("mamba_dt_rank"),
        )
    sparse = _periodic(f, layers, "expert_layer") if f.count("num_experts") > 1 else 0
    if sparse:
        parts["experts"] = experts(f, sparse, "num_experts", "intermediate_size")
    if sparse < layers:
        parts["mlp"] = Mlp(layers=layers - sparse, intermediate=f.count("intermediate_size"))
    return Model(**s, **parts)


def _periodic(f: Fields, layers: int, name: str) -> int:
    """How many layers are at NAME_offset in a period of NAME_period."""
    period = f.count(f"{name}_period")
    offset = f.count(f"{name}_offset", low=0)
    if offset >= period:
        raise f.refuse(f"{name}_offset", f"is {offset}, not below the {name}_period of {period}")
    return sum(i % period == offset for i in range(layers))


def _state_bytes(f: Fields, name: str) -> int:
    """Bytes per element of the recurrent state."""
    dtype = f.word(name, "float32")
    if dtype not in _STATE_WIDTHS:
        raise f.refuse(name, f"is not one of {', '.join(_STATE_WIDTHS)}")
    return _STATE_WIDTHS[dtype]


HYBRIDS: Final[dict[str, Family]] = {
    "deepseek_v2": deepseek,
    "deepseek_v3": deepseek,
    "jamba": jamba,
    "kimi_k2": deepseek,
    "nemotron_h": nemotron_h,
    "qwen3_5_moe_text": qwen3_next,
    "qwen3_5_text": qwen3_next,
    "qwen3_next": qwen3_next,
}
