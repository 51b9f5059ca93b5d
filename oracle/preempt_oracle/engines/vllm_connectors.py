"""How vLLM is told of a KV connector, and of a host pool of so many blocks.

Runs in the engine's Python (standard library and vLLM only). Both connectors want bytes: what a block takes differs.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.vllm_build import Shape

#: What the option `connector` calls them, and what vLLM does.
NAMES: Mapping[str, str] = {"offloading": "OffloadingConnector", "simple": "SimpleCPUOffloadConnector"}


def config(shape: Shape, block: int) -> Any:
    """The configuration of a shape's connector; `block`: bytes of a device block."""
    from vllm.config import KVTransferConfig

    # What is told is shared out among the stages; each has its part of every host block.
    extra: dict[str, Any]
    if shape.connector == "simple":  # whose pool has a null block of its own
        extra = {"lazy_offload": shape.lazy_offload, "cpu_bytes_to_use": (shape.host_blocks + 1) * block * shape.stages}
    else:  # whose blocks take whole pages of the operating system
        size = -(-block * shape.stages // mmap.PAGESIZE) * mmap.PAGESIZE
        extra = {"cpu_bytes_to_use": shape.host_blocks * size, "offload_prompt_only": not shape.offload_outputs}
    return KVTransferConfig(
        kv_connector=NAMES[shape.connector],
        kv_role="kv_both",
        kv_connector_extra_config=extra,
        kv_load_failure_policy=shape.load_failure or "recompute",
    )


def tensors(shape: Shape, block: int) -> list[Any]:
    """The device's memory, of which a connector may derive the host's; none is ever allocated."""
    if shape.connector != "simple":
        return []
    from vllm.v1.kv_cache_interface import KVCacheTensor

    size = block * shape.total
    return [KVCacheTensor(size=size, layers=["layer"], layer_stride=size, block_stride=block)]
