"""A real continuous-batching processor of transformers, small and on the CPU, with a tiny model made in memory.

Runs in the engine's Python. Nothing is downloaded: the model is a Llama of random weights. One layer with one head of
16 numbers makes a block a sector of the engine's pool, so that its sizes are those that were asked for.
"""

from __future__ import annotations

import dataclasses
import logging
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.child import require
else:
    from child import require

RESERVED = 2  # sectors in front that padding reads and writes; no request ever owns them
GIB = 1 << 30


def load() -> types.SimpleNamespace:
    """Import what is needed, and check that it is what this adapter was written for."""
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
    from transformers.generation.configuration_utils import ContinuousBatchingConfig
    from transformers.generation.continuous_batching.cache import PagedAttentionCache
    from transformers.generation.continuous_batching.cache_allocators import CachePool
    from transformers.generation.continuous_batching.continuous_api import (
        ContinuousBatchingManager,
        ContinuousBatchProcessor,
    )
    from transformers.generation.continuous_batching.offloading_manager import OffloadingManager
    from transformers.generation.continuous_batching.requests import RequestState, RequestStatus
    from transformers.generation.continuous_batching.scheduler import Scheduler

    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
    require(ContinuousBatchingManager, ("_create_batch_processor",))
    require(ContinuousBatchProcessor, ("prepare_next_batch", "update_batch", "_generation_step"))
    require(Scheduler, ("schedule_batch", "add_waiting_request", "finish_request", "clear_cancelled_requests"))
    require(OffloadingManager, ("offload_requests", "restore_scheduled_requests", "free_request_cpu_cache"))
    require(OffloadingManager, ("_offload_to_cpu",))
    require(PagedAttentionCache, ("free_blocks", "can_store_request_tokens", "count_storable_requests"))
    require(CachePool, ("get_free_blocks", "free_blocks", "count_free_blocks", "num_free_sectors"))
    require(RequestState, ("create_equivalent_initial_request", "update_and_check_completion", "current_len"))
    return types.SimpleNamespace(
        torch=torch,
        config=LlamaConfig,
        llama=LlamaForCausalLM,
        generation=GenerationConfig,
        batching=ContinuousBatchingConfig,
        manager=ContinuousBatchingManager,
        state=RequestState,
        status=RequestStatus,
    )


def model(hf: types.SimpleNamespace, *, layers: int = 1, heads: int = 1, seed: int = 0, vocabulary: int = 2048) -> Any:
    """A Llama of random weights. Its attention reads the paged cache."""
    hf.torch.manual_seed(seed)
    hf.torch.set_num_threads(1)
    config = hf.config(
        vocab_size=vocabulary,
        hidden_size=16 * heads,
        intermediate_size=32 * heads,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=1024,
    )
    config._attn_implementation = "paged|sdpa"
    return hf.llama(config).eval().float()


def processor(
    hf: types.SimpleNamespace,
    llama: Any,
    *,
    blocks: int,
    page: int,
    running: int,
    budget: int,
    caching: bool,
    scheduler: str,
    host_blocks: int,
) -> Any:
    """A fresh processor of such sizes, built by the engine's own manager, and that manager.

    A host pool is pinned memory, which a machine without an accelerator cannot have: there it is plain memory.
    """
    torch = hf.torch
    config = llama.config
    row = 2 * config.num_hidden_layers * config.num_key_value_heads * (config.hidden_size // config.num_attention_heads)
    size = row * page * 4  # bytes of a block
    fields = {f.name for f in dataclasses.fields(hf.batching)}
    later = {"auto_switch_to_flash": False} if "auto_switch_to_flash" in fields else {}  # not in 5.18.0
    batching = hf.batching(
        page_size=page,
        num_blocks=blocks,
        max_batch_tokens=budget,
        max_requests_per_batch=running,
        allow_block_sharing=caching,
        use_async_batching=False,
        use_cuda_graph=False,
        scheduler_type=scheduler,
        safety_margin=0.0,
        cpu_offload_space=host_blocks * size / GIB,
        max_memory_percent=0.5,
        **later,
    )
    real = torch.empty

    def unpinned(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
        return real(*args, **kwargs)

    if not torch.cuda.is_available():
        torch.empty = unpinned
    try:
        manager = hf.manager(llama, hf.generation(do_sample=False, max_new_tokens=1, eos_token_id=-1), batching)
        made = manager._create_batch_processor()
    finally:
        torch.empty = real
    require(made, ("cache", "scheduler", "offloading_manager", "inputs_and_outputs"))
    require(made.scheduler, ("active_requests", "waiting_requests", "waiting_requests_order", "starved_requests"))
    require(made.scheduler, ("block_new_requests",))
    require(made.offloading_manager, ("_cpu_pool", "_request_id_to_cpu_blocks"))
    require(made.inputs_and_outputs, ("requests_in_batch", "output_ids", "position_ids", "cumulative_seqlens_q"))
    require(made.inputs_and_outputs, ("read_index_storage", "write_index_storage", "true_read_sizes"))
    require(made.cache, ("cache_allocators", "pool", "num_blocks"))
    (allocator,) = made.cache.cache_allocators.values()
    require(allocator, ("block_table", "ledger", "blocks_per_sector", "block_physical_stride", "_copy_view"))
    require(allocator, ("allocate_cache_to_request", "acquire_prefix_blocks"))
    require(made.cache, ("search_prefix_match", "mark_complete_blocks", "evict_cached_blocks", "use_prefix_sharing"))
    require(allocator.ledger, ("shared_ref_counts", "cached_blocks", "hash_to_block"))
    require(made.cache.pool, ("free_sectors", "_free_blocks"))
    if made.cache.num_blocks != blocks or allocator.blocks_per_sector != 1:
        raise RuntimeError(f"asked for {blocks} blocks, a sector each; got {made.cache.num_blocks}")
    pool = made.offloading_manager._cpu_pool
    if (0 if pool is None else pool.num_sectors) != host_blocks:
        raise RuntimeError(f"asked for {host_blocks} host blocks, got {0 if pool is None else pool.num_sectors}")
    return manager, made
