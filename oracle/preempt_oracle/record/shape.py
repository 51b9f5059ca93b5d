"""The header of a trace, read off a running vLLM scheduler; what trace v1 has no words for is refused."""

from __future__ import annotations

from typing import Any

import msgspec
from attrs import frozen

from preempt_oracle.engines.child import Unsupported, require
from preempt_oracle.engines.vllm_books import SMALL
from preempt_oracle.engines.vllm_telling import OBSERVES, OBSERVES_SMALL
from preempt_oracle.trace import wire


@frozen
class Shape:
    """What is recorded, and how it flies."""

    header: wire.Header
    page_size: int  # tokens
    stages: int  # pipeline stages that space the decodes of a request: see `engines.vllm_async.Flights`
    drafts: bool  # proposed behind each delivery


def header(scheduler: Any, version: str, traits: frozenset[str], content: str, listed: bool) -> Shape:
    """What this scheduler is. Raises Unsupported for what trace v1, or this recorder, has no words for."""
    require(scheduler, ("vllm_config", "scheduler_config", "kv_cache_config", "policy", "max_num_running_reqs"))
    require(scheduler, ("max_num_scheduled_tokens", "max_model_len", "num_spec_tokens", "num_lookahead_tokens"))
    settings, groups = scheduler.scheduler_config, scheduler.kv_cache_config.kv_cache_groups
    if len(groups) != 1:
        raise Unsupported(f"{len(groups)} KV cache groups: only one of full attention is recorded")
    kind = type(groups[0].kv_cache_spec)
    if not any(base.__name__ == "FullAttentionSpec" for base in kind.__mro__):
        raise Unsupported(f"a KV cache group of {kind.__name__}: only one of full attention is recorded")
    for name in ("sliding_window", "attention_chunk_size"):
        if getattr(groups[0].kv_cache_spec, name, None):
            raise Unsupported(f"a KV cache group with {name}: only one of full attention is recorded")
    if getattr(scheduler, "connector", None) is not None:
        raise Unsupported("a KV connector: its transfers are not recorded")
    if scheduler.num_lookahead_tokens:
        raise Unsupported(f"{scheduler.num_lookahead_tokens} slots are reserved for drafts, which is not recorded")
    if getattr(settings, "is_encoder_decoder", False):
        raise Unsupported("an encoder-decoder model: its encoder's memory is not recorded")
    page = groups[0].kv_cache_spec.block_size
    if getattr(scheduler, "block_size", page) != page:
        raise Unsupported(f"blocks of {scheduler.block_size} tokens over pages of {page}: context parallelism is not "
                          "recorded")  # fmt: skip
    parallel = scheduler.vllm_config.parallel_config
    ahead = bool(settings.async_scheduling)
    stages = int(parallel.pipeline_parallel_size)
    frames = int(getattr(scheduler.vllm_config, "max_concurrent_batches", stages + ahead))
    limits: dict[str, Any] = {
        "max_running": scheduler.max_num_running_reqs,
        "budget": scheduler.max_num_scheduled_tokens,
        "max_length": scheduler.max_model_len,
        "long_prefill": settings.long_prefill_token_threshold,
        "chunked": bool(getattr(settings, "chunked_prefill_enabled", settings.enable_chunked_prefill)),
        "caching": bool(scheduler.kv_cache_manager.block_pool.enable_caching),
        "whole_fit": bool(getattr(scheduler, "scheduler_reserve_full_isl", not settings.enable_chunked_prefill)),
        "watermark": getattr(scheduler.kv_cache_manager, "watermark_blocks", 0),
    }
    if frames > 1:
        limits |= {"frames": frames, "drafts": scheduler.num_spec_tokens if ahead else 0}
    total = scheduler.kv_cache_manager.block_pool.num_gpu_blocks
    observes = OBSERVES + (OBSERVES_SMALL if total <= SMALL + 1 else ())
    if {"preemption-count", "cached-count"} <= traits:
        observes += ("stats",)
    assumes = ["recorded in a running engine: what its front end rejects is never seen"]
    if not listed:
        assumes.append("unverified version")
    if frames > 1:
        runner = "scheduled ahead" if ahead else "nothing scheduled ahead"
        assumes.append(f"frames: {stages} pipeline stages and {runner}")
    told = {
        "engine": "vllm",
        "version": version,
        "policy": f"vllm-{scheduler.policy.value}",
        "limits": limits,
        "groups": [{"name": "full", "kind": "full", "page_size": page}],
        "pools": [{"tier": "device", "group": 0, "total": total, "reserved": 1}],
        "observes": sorted(set(observes) - {"reject"}),
        "assumes": assumes,
        "content": content,
    }
    drafts = bool(scheduler.num_spec_tokens) and not ahead
    return Shape(msgspec.convert(told, wire.Header), page, stages if ahead else 1, drafts)
