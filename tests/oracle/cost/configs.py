"""Public shapes of models, as their config.json states them: only what the reader looks at."""

from __future__ import annotations

from typing import Any, Final


def _config(kind: str, layers: int, hidden: int, heads: int, vocab: int, **more: Any) -> dict[str, Any]:
    """The fields that nearly every config has."""
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "vocab_size": vocab,
        "torch_dtype": "bfloat16",
        **more,
    }


def _alternating(layers: int) -> list[str]:
    return ["full_attention" if i % 2 else "sliding_attention" for i in range(layers)]


_DEEPSEEK: Final = {
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "intermediate_size": 18432,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
_GPT_OSS: Final = {
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2880,
    "sliding_window": 128,
    "num_experts_per_tok": 4,
    "attention_bias": True,
    "max_position_embeddings": 131072,
    "quantization_config": {"quant_method": "mxfp4"},
}
_DELTA_NET: Final = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "max_position_embeddings": 262144,
}
_QWEN3: Final = {
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "use_sliding_window": False,
    "max_window_layers": 36,
}
_LLAMA31: Final = {"num_key_value_heads": 8, "max_position_embeddings": 131072}

#: Models of the registry: its id -> config.
REGISTERED: Final[dict[str, dict[str, Any]]] = {
    "llama-3.1-8b": _config("llama", 32, 4096, 32, 128256, intermediate_size=14336, **_LLAMA31),
    "llama-3.1-70b": _config("llama", 80, 8192, 64, 128256, intermediate_size=28672, **_LLAMA31),
    "llama-3.1-405b": _config("llama", 126, 16384, 128, 128256, intermediate_size=53248, **_LLAMA31),
    "llama-2-7b": _config("llama", 32, 4096, 32, 32000, intermediate_size=11008, max_position_embeddings=4096),
    "llama-2-13b": _config("llama", 40, 5120, 40, 32000, intermediate_size=13824, max_position_embeddings=4096),
    "llama-2-70b": _config(
        "llama", 80, 8192, 64, 32000, num_key_value_heads=8, intermediate_size=28672, max_position_embeddings=4096
    ),
    "mistral-7b-v0.1": _config(
        "mistral", 32, 4096, 32, 32000,
        num_key_value_heads=8, intermediate_size=14336, sliding_window=4096, max_position_embeddings=131072,
    ),
    "qwen3-0.6b": _config(
        "qwen3", 28, 1024, 16, 151936,
        num_key_value_heads=8, intermediate_size=3072, tie_word_embeddings=True, **_QWEN3,
    ),
    "qwen3-1.7b": _config(
        "qwen3", 28, 2048, 16, 151936,
        num_key_value_heads=8, intermediate_size=6144, tie_word_embeddings=True, **_QWEN3,
    ),
    "qwen3-8b": _config("qwen3", 36, 4096, 32, 151936, num_key_value_heads=8, intermediate_size=12288, **_QWEN3),
    "qwen3-32b": _config("qwen3", 64, 5120, 64, 151936, num_key_value_heads=8, intermediate_size=25600, **_QWEN3),
    "qwen3-30b-a3b": _config(
        "qwen3_moe", 48, 2048, 32, 151936,
        num_key_value_heads=4, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768,
        decoder_sparse_step=1, mlp_only_layers=[], **_QWEN3,
    ),
    "qwen3-235b-a22b": _config(
        "qwen3_moe", 94, 4096, 64, 151936,
        num_key_value_heads=4, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=1536,
        decoder_sparse_step=1, mlp_only_layers=[], **_QWEN3,
    ),
    "mixtral-8x7b": _config(
        "mixtral", 32, 4096, 32, 32000,
        num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2, intermediate_size=14336,
        sliding_window=None, max_position_embeddings=32768,
    ),
    "mixtral-8x22b": _config(
        "mixtral", 56, 6144, 48, 32000,
        num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2, intermediate_size=16384,
        sliding_window=None, max_position_embeddings=65536,
    ),
    "gpt-oss-20b": _config("gpt_oss", 24, 2880, 64, 201088, num_local_experts=32, **_GPT_OSS),
    "gpt-oss-120b": _config(
        "gpt_oss", 36, 2880, 64, 201088, num_local_experts=128, layer_types=_alternating(36), **_GPT_OSS
    ),
    "deepseek-v3": _config(
        "deepseek_v3", 61, 7168, 128, 129280,
        num_key_value_heads=128, n_routed_experts=256, first_k_dense_replace=3, max_position_embeddings=163840,
        **_DEEPSEEK,
    ),
    "deepseek-r1": _config(
        "deepseek_v3", 61, 7168, 128, 129280,
        num_key_value_heads=128, n_routed_experts=256, first_k_dense_replace=3, max_position_embeddings=163840,
        **_DEEPSEEK,
    ),
    "kimi-k2": _config(
        "kimi_k2", 61, 7168, 64, 163840,
        num_key_value_heads=64, n_routed_experts=384, first_k_dense_replace=1, max_position_embeddings=131072,
        **_DEEPSEEK,
    ),
    "gemma-3-27b": {
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "text_config": {
            "model_type": "gemma3_text",
            "num_hidden_layers": 62,
            "hidden_size": 5376,
            "num_attention_heads": 32,
            "num_key_value_heads": 16,
            "head_dim": 128,
            "intermediate_size": 21504,
            "sliding_window": 1024,
            "max_position_embeddings": 131072,
        },
        "vision_config": {"model_type": "siglip_vision_model"},
    },
    "glm-4.5": _config(
        "glm4_moe", 92, 5120, 96, 151552,
        num_key_value_heads=8, head_dim=128, attention_bias=True, use_qk_norm=True, intermediate_size=12288,
        n_routed_experts=160, n_shared_experts=1, num_experts_per_tok=8, moe_intermediate_size=1536,
        first_k_dense_replace=3, max_position_embeddings=131072,
    ),
    "glm-4.5-air": _config(
        "glm4_moe", 46, 4096, 96, 151552,
        num_key_value_heads=8, head_dim=128, attention_bias=True, use_qk_norm=False, intermediate_size=10944,
        n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=8, moe_intermediate_size=1408,
        first_k_dense_replace=1, max_position_embeddings=131072,
    ),
    "opt-13b": _config("opt", 40, 5120, 40, 50272, ffn_dim=20480, max_position_embeddings=2048),
    "opt-30b": _config("opt", 48, 7168, 56, 50272, ffn_dim=28672, max_position_embeddings=2048),
    "opt-66b": _config("opt", 64, 9216, 72, 50272, ffn_dim=36864, max_position_embeddings=2048),
    "phi-4": _config(
        "phi3", 40, 5120, 40, 100352,
        num_key_value_heads=10, intermediate_size=17920, sliding_window=None, max_position_embeddings=16384,
    ),
    "qwen3.5-27b": {
        "model_type": "qwen3_5",
        "tie_word_embeddings": False,
        "text_config": _config(
            "qwen3_5_text", 64, 5120, 24, 248320,
            num_key_value_heads=4, head_dim=256, intermediate_size=17408, linear_num_value_heads=48,
            layer_types=["full_attention" if i % 4 == 3 else "linear_attention" for i in range(64)],
            mamba_ssm_dtype="float32", **_DELTA_NET,
        ),
    },
    "nemotron-h-56b": _config(
        "nemotron_h", 118, 8192, 64, 131072,
        num_key_value_heads=8, attention_head_dim=128, intermediate_size=32768, max_position_embeddings=8192,
        hybrid_override_pattern="M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-" * 5,
        mamba_num_heads=256, mamba_head_dim=64, n_groups=8, ssm_state_size=256, conv_kernel=4,
    ),
}  # fmt: skip

#: Models outside of the registry, one or more per further family.
OTHERS: Final[dict[str, dict[str, Any]]] = {
    "Qwen2.5-7B": _config(
        "qwen2", 28, 3584, 28, 152064,
        num_key_value_heads=4, intermediate_size=18944, use_sliding_window=False, max_window_layers=28,
        sliding_window=131072,
    ),
    "Gemma-2-9B": _config(
        "gemma2", 42, 3584, 16, 256000,
        num_key_value_heads=8, head_dim=256, intermediate_size=14336, sliding_window=4096,
    ),
    # The published file leaves out what is the class's default: heads, KV heads, head size, vocabulary.
    "Gemma-3-4B": {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
            "sliding_window": 1024,
        },
    },
    "GLM-4-9B-0414": _config(
        "glm4", 40, 4096, 32, 151552, num_key_value_heads=2, head_dim=128, attention_bias=True, intermediate_size=13696
    ),
    "DeepSeek-V2-Lite": _config(
        "deepseek_v2", 27, 2048, 16, 102400,
        kv_lora_rank=512, q_lora_rank=None, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128,
        n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1408,
        first_k_dense_replace=1, intermediate_size=10944,
    ),
    "GPT-2": {
        "model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257,
    },
    "StarCoder": {
        "model_type": "gpt_bigcode", "n_layer": 40, "n_embd": 6144, "n_head": 48, "n_inner": 24576,
        "n_positions": 8192, "vocab_size": 49152, "multi_query": True,
    },
    "Phi-2": _config("phi", 32, 2560, 32, 51200, intermediate_size=10240, tie_word_embeddings=False),
    "Phi-3-mini": _config("phi3", 32, 3072, 32, 32064, intermediate_size=8192, sliding_window=2047),
    "Jamba-v0.1": _config(
        "jamba", 32, 4096, 32, 65536,
        num_key_value_heads=8, intermediate_size=14336, num_experts=16, num_experts_per_tok=2,
        attn_layer_period=8, attn_layer_offset=4, expert_layer_period=2, expert_layer_offset=1,
        mamba_d_state=16, mamba_d_conv=4, mamba_expand=2, mamba_dt_rank=256,
    ),
    "Qwen3-Next-80B-A3B": _config(
        "qwen3_next", 48, 2048, 16, 151936,
        num_key_value_heads=2, head_dim=256, full_attention_interval=4, linear_num_value_heads=32,
        num_experts=512, num_experts_per_tok=10, moe_intermediate_size=512, shared_expert_intermediate_size=512,
        **_DELTA_NET,
    ),
    "Nemotron-3-Nano-30B-A3B": _config(
        "nemotron_h", 52, 2688, 32, 131072,
        num_key_value_heads=2, head_dim=128, intermediate_size=1856,
        hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        mamba_num_heads=64, mamba_head_dim=64, n_groups=8, ssm_state_size=128, conv_kernel=4,
        n_routed_experts=128, num_experts_per_tok=6, n_shared_experts=1, moe_intermediate_size=1856,
        moe_shared_expert_intermediate_size=3712,
    ),
}  # fmt: skip
