"""config.json -> facts: every family against known counts, and everything that is refused."""

from __future__ import annotations

import copy
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preempt_oracle.cost import huggingface, registry
from preempt_oracle.cost.architecture import architecture
from preempt_oracle.cost.errors import CostInputError
from preempt_oracle.cost.parameters import count
from preempt_spec.cost.checked import checked
from preempt_spec.cost.shape import Shape, shape_of

from .configs import OTHERS, REGISTERED

EVERY = REGISTERED | OTHERS

#: Parameters of the language model (total, active), and what one token keeps in BF16: bytes of KV, FLOP per pair of
#: tokens, bytes of constant state. The totals were taken from the model classes of transformers 5.20, built without
#: weights; what is no parameter there but in the files (correction biases) is counted. The active counts of mixtures
#: are this code's own, near what the makers state (2.4B, 12B, 3B and 3.5B without the embedding).
KNOWN = {
    "Qwen2.5-7B": (7_615_616_512, 7_615_616_512, 57_344, 401_408, 0),
    "Gemma-2-9B": (9_241_705_984, 9_241_705_984, 344_064, 688_128, 0),
    "Gemma-3-4B": (3_880_263_168, 3_880_263_168, 139_264, 278_528, 0),
    "GLM-4-9B-0414": (9_400_279_040, 9_400_279_040, 40_960, 655_360, 0),
    "DeepSeek-V2-Lite": (15_706_484_224, 2_661_150_208, 31_104, 276_480, 0),
    "GPT-2": (124_439_808, 124_439_808, 36_864, 36_864, 0),
    "StarCoder": (15_517_456_384, 15_517_456_384, 20_480, 983_040, 0),
    "Phi-2": (2_779_683_840, 2_779_683_840, 327_680, 327_680, 0),
    "Phi-3-mini": (3_821_079_552, 3_821_079_552, 393_216, 393_216, 0),
    "Jamba-v0.1": (51_570_323_328, 12_110_311_296, 16_384, 65_536, 28 * (8192 * 16 * 4 + 8192 * 3 * 2)),
    "Qwen3-Next-80B-A3B": (
        79_674_391_296, 3_874_929_408, 24_576, 196_608, 36 * (32 * 128 * 128 * 4 + (2 * 2048 + 4096) * 3 * 2),
    ),
    "Nemotron-3-Nano-30B-A3B": (
        31_577_940_288, 3_580_076_352, 6_144, 98_304, 23 * (4096 * 128 * 4 + (4096 + 2 * 8 * 128) * 3 * 2),
    ),
}  # fmt: skip


def decoded(config: Any):
    return huggingface.decode(json.dumps(config).encode(), "config.json")


def shaped(model) -> Shape[Fraction]:
    return shape_of(architecture(model), Fraction(1), Fraction(2), Fraction(2))


def sliding(config: Any) -> list[tuple[int, int | None]]:
    """Layers and window of each kind of attention."""
    kinds = architecture(decoded(config)).attention
    return [(int(a.layers), None if a.window is None else int(a.window)) for a in kinds]


def refused(config: Any) -> CostInputError:
    raw = config if isinstance(config, bytes) else json.dumps(config).encode()
    with pytest.raises(CostInputError) as error:
        huggingface.decode(raw, "config.json")
    assert str(error.value).startswith("config.json")
    assert "\n" not in str(error.value)
    return error.value


def changed(config: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A copy with these fields set, or removed where the value is `...`."""
    new = copy.deepcopy(config)
    for name, value in fields.items():
        if value is ...:
            del new[name]
        else:
            new[name] = value
    return new


@pytest.mark.parametrize("name", REGISTERED)
def test_the_config_of_a_registered_model_says_what_the_registry_says(name):
    assert decoded(REGISTERED[name]) == registry.find_model(name).facts


@pytest.mark.parametrize("name", KNOWN)
def test_counts_and_shape_of_models_outside_of_the_registry(name):
    total, active, kv_bytes, pair_flops, state = KNOWN[name]
    model = decoded(OTHERS[name])
    counted = count(model)
    assert (counted.total, counted.active) == (total, active)
    shape = shaped(model)
    assert sum(layers.kv_bytes for layers in shape.layers) == kv_bytes
    assert sum(layers.pair_flops for layers in shape.layers) == pair_flops
    assert (shape.state.state_bytes if shape.state else 0) == state


def test_all_further_configs_are_known():
    assert KNOWN.keys() == OTHERS.keys()


@pytest.mark.parametrize("name", EVERY)
def test_no_config_is_read_by_its_name_alone(name):
    """Half of the layers are half of everything but embedding, last norm and positions."""
    config = copy.deepcopy(EVERY[name])
    text = config.get("text_config", config)
    layers = "n_layer" if "n_layer" in text else "num_hidden_layers"
    for pattern in ("layer_types", "hybrid_override_pattern"):
        if pattern in text:
            text[pattern] = text[pattern] * 2
    text[layers] *= 2
    assert shaped(decoded(config)).params > shaped(decoded(EVERY[name])).params


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("gpt-oss-20b", [(12, None), (12, 128)]),
        ("gpt-oss-120b", [(18, None), (18, 128)]),
        ("gemma-3-27b", [(10, None), (52, 1024)]),
        ("Gemma-2-9B", [(21, None), (21, 4096)]),
        ("mistral-7b-v0.1", [(32, 4096)]),
        ("Phi-3-mini", [(32, 2047)]),
        ("Qwen2.5-7B", [(28, None)]),
        ("mixtral-8x7b", [(32, None)]),
    ],
)
def test_which_layers_slide(name, kinds):
    assert sliding(EVERY[name]) == kinds


def test_qwen_slides_from_max_window_layers_on_if_it_slides_at_all():
    config = changed(OTHERS["Qwen2.5-7B"], use_sliding_window=True, max_window_layers=20, sliding_window=512)
    assert sliding(config) == [(20, None), (8, 512)]


def test_a_window_of_null_is_none():
    assert sliding(changed(REGISTERED["mistral-7b-v0.1"], sliding_window=None)) == [(32, None)]
    assert sliding(changed(OTHERS["Gemma-2-9B"], sliding_window=None)) == [(42, None)]


def test_older_deepseek_has_dense_models_too():
    config = changed(OTHERS["DeepSeek-V2-Lite"], n_routed_experts=None)
    model = decoded(config)
    assert model.experts is None
    assert model.mlp is not None
    assert model.mlp.layers == 27


def test_a_multimodal_config_says_some_things_outside_of_text_config():
    config = changed(REGISTERED["qwen3.5-27b"], tie_word_embeddings=True, quantization_config={"quant_method": "fp8"})
    model = decoded(config)
    assert model.tied
    assert model.weights == "fp8"
    config["text_config"]["tie_word_embeddings"] = False
    assert not decoded(config).tied


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("llama-3.1-8b", 2, 2), ("deepseek-v3", 1, 1.01), ("gpt-oss-120b", 17 / 32, 0.56), ("kimi-k2", 1, 1.01)],
)
def test_bytes_per_weight(name, least, most):
    model = registry.find_model(name)
    assert least <= model.weight_width <= most


def test_dtype_decides_without_quantization():
    llama = REGISTERED["llama-3.1-8b"]
    assert decoded(changed(llama, torch_dtype="float32")).weights == "fp32"
    assert decoded(changed(llama, torch_dtype=...)).weights == "bf16"
    assert decoded(changed(llama, torch_dtype="float32", dtype="float16")).weights == "fp16"


def test_a_file_and_a_folder_are_read(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(REGISTERED["qwen3-8b"]))
    expected = registry.find_model("qwen3-8b").facts
    assert huggingface.read(tmp_path / "config.json") == expected
    assert huggingface.read(tmp_path) == expected
    for path in (tmp_path, tmp_path / "config.json"):
        found = registry.find_model(str(path))
        assert found.facts == expected
        assert (found.id, found.name) == (str(path), tmp_path.name)


LLAMA = REGISTERED["llama-3.1-8b"]
GEMMA = REGISTERED["gemma-3-27b"]
NEMOTRON = REGISTERED["nemotron-h-56b"]
JAMBA = OTHERS["Jamba-v0.1"]


@pytest.mark.parametrize(
    ("config", "field", "reason"),
    [
        (changed(LLAMA, model_type="llamma"), "model_type", "did you mean llama"),
        (changed(LLAMA, model_type="minimax_m2"), "model_type", "known: deepseek_v2"),
        (changed(LLAMA, model_type=...), "model_type", "is missing"),
        (changed(LLAMA, model_type=7), "model_type", "not a string"),
        (changed(LLAMA, num_hidden_layers=...), "num_hidden_layers", "is missing"),
        (changed(LLAMA, num_hidden_layer=32, num_hidden_layers=...), "num_hidden_layers", "mean num_hidden_layer?"),
        (changed(LLAMA, hidden_size=None), "hidden_size", "is null, and must be given"),
        (changed(LLAMA, model_type=None), "model_type", "is null, and must be given"),
        (changed(LLAMA, hidden_size=4096.0), "hidden_size", "not a whole number"),
        (changed(LLAMA, hidden_size="4096"), "hidden_size", "not a whole number"),
        (changed(LLAMA, hidden_size=True), "hidden_size", "not a whole number"),
        (changed(LLAMA, hidden_size=math.nan), "hidden_size", "'nan', not a whole number"),
        (changed(LLAMA, hidden_size=-4096), "hidden_size", "not between 1"),
        (changed(LLAMA, hidden_size=0), "hidden_size", "not between 1"),
        (changed(LLAMA, hidden_size=10**30), "hidden_size", "not between 1"),
        (changed(LLAMA, hidden_size={}), "hidden_size", "'an object'"),
        (changed(LLAMA, num_hidden_layers=10**6), "num_hidden_layers", "not between 1 and 10000"),
        (changed(LLAMA, num_key_value_heads=64), "num_key_value_heads", "more than the 32"),
        (changed(LLAMA, num_key_value_heads=5), "num_key_value_heads", "does not divide the 32"),
        (changed(LLAMA, hidden_size=4100), "head_dim", "4100 is not divisible by 32"),
        (changed(LLAMA, sliding_window=4096), "sliding_window", "which layers slide"),
        (changed(LLAMA, layer_types=["full_attention"]), "layer_types", "a list of 1, not a list of 32"),
        (changed(LLAMA, layer_types=["chunked"] * 32), "layer_types[0]", "not one of full_attention"),
        (changed(LLAMA, layer_types=["sliding_attention"] * 32), "sliding_window", "is missing, but 32"),
        (changed(LLAMA, layer_types="full"), "layer_types", "not a list of 32"),
        (changed(LLAMA, tie_word_embeddings="yes"), "tie_word_embeddings", "not true or false"),
        (changed(LLAMA, torch_dtype="int8"), "torch_dtype", "not one of bfloat16"),
        (changed(LLAMA, quantization_config={"quant_method": "awq"}), "quantization_config.quant_method", "not known"),
        (changed(LLAMA, quantization_config=[]), "quantization_config", "not an object"),
        (changed(LLAMA, max_position_embeddings=-1), "max_position_embeddings", "not between"),
        (changed(REGISTERED["qwen3-8b"], num_key_value_heads=...), "num_key_value_heads", "is missing"),
        (changed(REGISTERED["mixtral-8x7b"], num_experts_per_tok=9), "num_experts_per_tok", "more than the 8"),
        (changed(REGISTERED["deepseek-v3"], first_k_dense_replace=62), "first_k_dense_replace", "more than the 61"),
        (changed(REGISTERED["deepseek-v3"], index_topk=2048), "index_topk", "not modelled"),
        (changed(REGISTERED["deepseek-v3"], kv_lora_rank=...), "kv_lora_rank", "is missing"),
        # What these families assume where nothing is written is no guess that the other fields allow.
        (changed(REGISTERED["deepseek-v3"], q_lora_rank=...), "q_lora_rank", "is missing"),
        (changed(REGISTERED["deepseek-v3"], n_routed_experts=...), "n_routed_experts", "is missing"),
        (changed(REGISTERED["deepseek-v3"], n_shared_experts=...), "n_shared_experts", "is missing"),
        (changed(REGISTERED["glm-4.5"], first_k_dense_replace=...), "first_k_dense_replace", "is missing"),
        (changed(REGISTERED["glm-4.5"], head_dim=...), "head_dim", "5120 is not divisible by 96"),
        (changed(REGISTERED["mistral-7b-v0.1"], sliding_window=...), "sliding_window", "is missing"),
        (changed(REGISTERED["gpt-oss-20b"], sliding_window=...), "sliding_window", "is missing"),
        (changed(REGISTERED["gpt-oss-20b"], head_dim=...), "head_dim", "is missing"),
        (changed(REGISTERED["qwen3-0.6b"], head_dim=...), "head_dim", "is missing"),
        (changed(OTHERS["Gemma-2-9B"], head_dim=...), "head_dim", "is missing"),
        (changed(OTHERS["Gemma-2-9B"], sliding_window=...), "sliding_window", "is missing"),
        (changed(OTHERS["GLM-4-9B-0414"], head_dim=...), "head_dim", "is missing"),
        (changed(OTHERS["Qwen3-Next-80B-A3B"], head_dim=...), "head_dim", "is missing"),
        (changed(OTHERS["Nemotron-3-Nano-30B-A3B"], n_shared_experts=...), "n_shared_experts", "is missing"),
        (changed(NEMOTRON, attention_head_dim=...), "attention_head_dim", "is missing"),
        (
            changed(OTHERS["Qwen2.5-7B"], use_sliding_window=True, sliding_window=...),
            "sliding_window", "is missing",
        ),
        (changed(REGISTERED["opt-13b"], word_embed_proj_dim=512), "word_embed_proj_dim", "not modelled"),
        (changed(REGISTERED["opt-13b"], do_layer_norm_before=False), "do_layer_norm_before", "not modelled"),
        (changed(REGISTERED["qwen3-30b-a3b"], mlp_only_layers=[48]), "mlp_only_layers[0]", "a layer from 0 to 47"),
        (changed(REGISTERED["qwen3-30b-a3b"], mlp_only_layers=4), "mlp_only_layers", "not a list"),
        (changed(GEMMA, text_config=...), "text_config", "is missing"),
        (changed(GEMMA, text_config=changed(GEMMA["text_config"], head_dim=0)), "text_config.head_dim", "between"),
        (changed(NEMOTRON, hybrid_override_pattern="M-X"), "hybrid_override_pattern", "'X', which is none of"),
        (changed(NEMOTRON, hybrid_override_pattern="M-*"), "hybrid_override_pattern", "of 3 layers"),
        (changed(NEMOTRON, hybrid_override_pattern=...), "hybrid_override_pattern", "is missing"),
        (changed(NEMOTRON, moe_latent_size=1024), "moe_latent_size", "not modelled"),
        (changed(NEMOTRON, mamba_ssm_cache_dtype="int4"), "mamba_ssm_cache_dtype", "not one of float32"),
        (changed(JAMBA, attn_layer_offset=8), "attn_layer_offset", "not below"),
        (changed(JAMBA, mamba_dt_rank="large"), "mamba_dt_rank", "not a whole number"),
        (changed(OTHERS["Phi-2"], qk_layernorm=True), "qk_layernorm", "not modelled"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_the_field_named(config, field, reason):
    error = refused(config)
    assert error.field == field
    assert reason in str(error)


@pytest.mark.parametrize(
    ("raw", "field", "reason"),
    [
        (b"", "", "is not JSON"),
        (b"{", "", "is not JSON"),
        (b"\xff\xfe", "", "not UTF-8"),
        (b"[]", "", "not a JSON object"),
        (b'{"hidden_size": 1, "hidden_size": 2}', "hidden_size", "is there twice"),
        (b'{"a": {"b": 1, "b": 2}}', "b", "is there twice"),
        (b"[" * 100_000, "", "nested too deeply"),
        (b'{"a":' * 100_000, "", "nested too deeply"),
        (b'{"model_type": "llama", "num_hidden_layers": ' + b"9" * 10_000 + b"}", "num_hidden_layers", "not a whole"),
        (b'{"model_type": "llama", "num_hidden_layers": 1e400}', "num_hidden_layers", "not a whole"),
        (b" " * (1 << 20) + b"{}", "", "is larger than"),
        (b'{"model_type": "\\u001b[31mred"}', "model_type", "\\x1b[31mred"),
        (b'{"model_type": "' + b"x" * 100_000 + b'"}', "model_type", "not known"),
    ],
)
def test_what_is_no_config_is_refused(raw, field, reason):
    error = refused(raw)
    assert error.field == field
    assert reason in str(error)
    assert len(str(error)) < 1500


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path):
    for path in (tmp_path / "none.json", tmp_path, tmp_path / ("x" * 300), Path("a\0b")):
        with pytest.raises(CostInputError, match="cannot be read"):
            huggingface.read(path)


_ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["full_attention", "sliding_attention", "linear_attention", "M*-E", "bfloat16", "fp8", "auto"]),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=8,
)
#: Fields that some family reads, beside those that a config already has.
_FURTHER = sorted({key for config in EVERY.values() for key in config.get("text_config", config)} | {"text_config"})


@given(data=st.data(), name=st.sampled_from(sorted(EVERY)))
def test_a_mutated_config_is_refused_or_makes_sense(data, name):
    config = copy.deepcopy(EVERY[name])
    target = config["text_config"] if "text_config" in config and data.draw(st.booleans()) else config
    for field in data.draw(st.lists(st.sampled_from(sorted(target) + _FURTHER), min_size=1, max_size=3)):
        if data.draw(st.booleans()):
            target.pop(field, None)
        elif isinstance(target.get(field), int) and data.draw(st.booleans()):
            target[field] = data.draw(st.integers(1, 200))
        else:
            target[field] = data.draw(_ANYTHING)
    try:
        model = decoded(config)
    except CostInputError as error:
        assert error.where == "config.json"  # noqa: PT017
        assert error.reason  # noqa: PT017
        return
    counted = count(model)
    assert 0 < counted.active <= counted.total
    checked(architecture(model))
    shape = shaped(model)
    assert all(layers.kv_bytes > 0 and layers.pair_flops > 0 for layers in shape.layers)


@given(st.binary(max_size=60))
def test_bytes_are_refused(raw):
    with pytest.raises(CostInputError):
        huggingface.decode(raw, "config.json")
