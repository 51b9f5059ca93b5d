"""The description of a model that exists nowhere: all that vLLM's scheduler needs to know of one.

Runs in the engine's Python (standard library and vLLM only), behind `vllm_async_features`, which sets vLLM's
environment.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

from vllm.config import ModelConfig

_MODEL = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "vocab_size": 50272,
    "hidden_size": 64,
    "ffn_dim": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 16,
    "max_position_embeddings": 1 << 20,
    "word_embed_proj_dim": 64,
    "torch_dtype": "float16",
    "activation_function": "relu",
}


@lru_cache(maxsize=1)
def _model_folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="preempt-oracle-")  # removed when this process ends
    Path(folder.name, "config.json").write_text(json.dumps(_MODEL), encoding="utf-8")
    return folder


def _model_info() -> Any:
    from vllm.model_executor.models import registry

    fields = {f.name: f for f in dataclasses.fields(registry._ModelInfo)}
    values: dict[str, Any] = {name: False if "bool" in str(f.type) else () for name, f in fields.items()}
    known = {
        "architecture": "OPTForCausalLM",
        "is_text_generation_model": True,
        "supports_pp": True,
        "attn_type": "decoder",
        "default_seq_pooling_type": "LAST",
        "default_tok_pooling_type": "ALL",
        "default_pooling_type": "LAST",
        "score_type": "bi-encoder",
    }
    values.update({name: value for name, value in known.items() if name in fields})
    return registry._ModelInfo(**values)


@contextmanager
def described() -> Iterator[None]:
    """While vLLM reads configurations: as if there were a GPU, and the class of the model had been looked at.

    Inspecting a model class imports its kernels, and the V2 runner wants a compiler of kernels; the scheduler neither.
    """
    import vllm.config
    from vllm.model_executor.models import registry

    whole = getattr(vllm.config, "vllm", vllm.config)  # one module before 0.12

    found = (_model_info(), "OPTForCausalLM")
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(type(registry.ModelRegistry), "inspect_model_cls", return_value=found))
        if hasattr(whole, "HAS_TRITON"):
            stack.enter_context(mock.patch.object(whole, "HAS_TRITON", True))
        yield


@lru_cache(maxsize=256)
def model_config(max_length: int) -> Any:
    """A model of this longest sequence; to be asked for while it is `described`."""
    return ModelConfig(
        model=_model_folder().name, skip_tokenizer_init=True, dtype="float16", seed=0, max_model_len=max_length
    )
