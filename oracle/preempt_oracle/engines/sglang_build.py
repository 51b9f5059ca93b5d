"""Builds SGLang's scheduler, as far as scheduling goes: no model, no sockets, no process group.

Runs in the engine's Python, next to `sglang_child`. The scheduler's constructor loads a model, so one is made without
it and given what its batching code reads, attribute by attribute. That fits one version of the engine: another one is
refused, and an attribute that is missing all the same is this adapter's fault, never a finding (`lacking`).

Real are the scheduler's methods, its request, batch, admission, allocator and result code, and the cache it uses by
default (the unified radix cache, with the tree in Python; the one in Rust is the same behind an extension that
installs only with another torch).
"""

from __future__ import annotations

import importlib.machinery
import logging
import os
import sys
import types
import warnings
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:  # else run by path, in the engine's Python, where this package is not installed
    from preempt_oracle.engines.child import Unsupported, require
else:
    from child import Unsupported, require

VERIFIED = ("0.5.23",)

#: Read once, when the engine is imported. With its defaults admission reserves up to 4096 tokens for what a request may
#: still emit: a pool of a few dozen tokens would hold one request and never be over-committed.
SETTINGS = {
    "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "1",
    "SGLANG_INIT_NEW_TOKEN_RATIO": "0.1",
}
#: Tokens are below this: one beyond the vocabulary would end its request.
VOCABULARY = 1 << 40


class Stand(types.SimpleNamespace):
    """Stands for a part of the server that scheduling only passes by. What it lacks, this adapter lacks: `lacking`."""


def lacking(error: AttributeError, scheduler: Any) -> str:
    """What this adapter did not give to the engine, if that is why an attribute was not found; else ""."""
    owner = getattr(error, "obj", None)
    if isinstance(owner, Stand) or (owner is not None and owner is scheduler):
        return f"the engine reads {error.name!r} of {type(owner).__name__}, which this adapter does not provide"
    return ""


class _Absent(types.ModuleType):
    """A module of which names are imported and nothing is used: every one of them is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__getattr__": lambda self, name: name})


def _without_torchvision() -> None:
    """SGLang imports torchvision for images only; the wheel of 2 GB that fits its torch is not needed here."""
    for part in (
        "",
        ".io",
        ".ops",
        ".transforms",
        ".transforms.v2",
        ".transforms.functional",
        ".transforms.v2.functional",
    ):
        name = "torchvision" + part
        module = _Absent(name)
        module.__path__ = []
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        sys.modules[name] = module
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], leaf, module)
    sys.modules["torchvision"].__version__ = "0.0.0"  # type: ignore[attr-defined]
    modes = type("InterpolationMode", (), {"__getattr__": lambda self, name: name})()
    sys.modules["torchvision.transforms"].InterpolationMode = modes  # type: ignore[attr-defined]


def load() -> types.SimpleNamespace:
    """Import the engine: half a minute, the first time."""
    if "torchvision" not in sys.modules:
        _without_torchvision()
    os.environ.update(SETTINGS)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import sglang.srt.managers.schedule_batch as batches
    import sglang.srt.managers.scheduler as schedulers
    import torch
    from sglang.srt.disaggregation.utils import DisaggregationMode
    from sglang.srt.managers import schedule_policy
    from sglang.srt.managers.io_struct import AbortReq
    from sglang.srt.managers.scheduler_components import batch_result_processor
    from sglang.srt.managers.scheduler_components.new_token_ratio_tracker import NewTokenRatioTracker
    from sglang.srt.managers.utils import GenerationBatchResult
    from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
    from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
    from sglang.srt.mem_cache.unified_cache.components import ComponentType
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
    from sglang.srt.runtime_context import get_context, publish
    from sglang.srt.sampling.sampling_params import SamplingParams
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    if str(schedule_policy.CLIP_MAX_NEW_TOKENS) != SETTINGS["SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION"]:
        raise Unsupported("sglang was imported before its settings were made")
    require(schedulers.Scheduler, ("get_next_batch_to_run", "get_new_batch_prefill", "update_running_batch"))
    require(schedulers.Scheduler, ("abort_request", "_add_request_to_queue", "init_req_max_new_tokens"))
    require(batches.ScheduleBatch, ("retract_decode", "release_req", "check_decode_mem", "prepare_for_decode"))
    require(batches.ScheduleBatch, ("prepare_for_extend", "filter_batch", "new_tokens_required_next_decode"))
    require(batches.Req, ("reset_for_retract", "update_finish_state", "finished"))
    require(schedule_policy.PrefillAdder, ("add_one_req", "preempt_to_schedule"))
    require(UnifiedRadixCache, ("checkpoint", "insert", "evict", "unlock", "on_release", "path_device_indices"))
    require(batch_result_processor.SchedulerBatchResultProcessor, ("process_batch_result_prefill",))
    require(batch_result_processor.SchedulerBatchResultProcessor, ("process_batch_result_decode",))
    return types.SimpleNamespace(
        torch=torch,
        scheduler=schedulers.Scheduler,
        batch=batches.ScheduleBatch,
        req=batches.Req,
        sampling=SamplingParams,
        policy=schedule_policy.SchedulePolicy,
        adder=schedule_policy.PrefillAdder,
        ratio=NewTokenRatioTracker,
        results=batch_result_processor.SchedulerBatchResultProcessor,
        result=GenerationBatchResult,
        abort=AbortReq,
        paged=PagedTokenToKVPoolAllocator,
        single=TokenToKVPoolAllocator,
        rows=ReqToTokenPool,
        cache=UnifiedRadixCache,
        cache_params=CacheInitParams,
        full=ComponentType.FULL,
        normal=DisaggregationMode.NULL,
        undrafted=SpeculativeAlgorithm.NONE,
        arguments=ServerArgs,
        tokens=array,
        publish=publish,
        context=get_context,
    )


def build(sgl: types.SimpleNamespace, shape: types.SimpleNamespace) -> Any:
    """A scheduler of the given shape: blocks, page, running, budget, longest, caching, priority, threshold."""
    if not getattr(sgl, "published", False):
        arguments = sgl.arguments(
            model_path="none", device="cpu", disable_overlap_schedule=True, schedule_low_priority_values_first=True
        )
        sgl.publish(arguments, role="scheduler")
        sgl.published = True
    # A global of the process, which the constructor of the real scheduler sets, too.
    sgl.context().override("preempt-oracle", pp_max_micro_batch_size=shape.running)
    tokens = shape.blocks * shape.page
    rows = sgl.rows(size=shape.running + 1, max_context_len=shape.longest + 1, device="cpu", enable_memory_saver=False)
    pool = Stand(cpu_copy_carries_mamba=False, free_index_mapping=None)  # nobody reads or writes KV here
    half = sgl.torch.float16
    if shape.page == 1:
        allocator = sgl.single(tokens, half, "cpu", pool, need_sort=False)
    else:
        allocator = sgl.paged(tokens, shape.page, half, "cpu", pool, need_sort=False)
    cache = sgl.cache(
        sgl.cache_params(
            disable=not shape.caching,
            req_to_token_pool=rows,
            token_to_kv_pool_allocator=allocator,
            page_size=shape.page,
            tree_components=(sgl.full,),
            tree_core_backend="python",
        )
    )
    scheduler = sgl.scheduler.__new__(sgl.scheduler)
    for name, value in _parts(sgl, shape, rows, allocator, cache).items():
        setattr(scheduler, name, value)
    scheduler.policy = sgl.policy("fcfs", cache, False, shape.priority, True)
    scheduler.batch_result_processor = _results(sgl, scheduler, rows, allocator, cache)
    return scheduler


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _parts(
    sgl: types.SimpleNamespace, shape: types.SimpleNamespace, rows: Any, allocator: Any, cache: Any
) -> dict[str, Any]:
    same = lambda batch, **_: batch  # noqa: E731
    return {
        "req_to_token_pool": rows,
        "token_to_kv_pool_allocator": allocator,
        "tree_cache": cache,
        "page_size": shape.page,
        "max_total_num_tokens": shape.blocks * shape.page,
        "max_running_requests": shape.running,
        "max_prefill_tokens": shape.budget,
        "max_req_len": shape.longest + 1,
        "max_new_tokens_limit": None,
        "max_queued_requests": None,
        "kv_shard_widening": 1,
        "sliding_window_size": None,
        "waiting_queue": [],
        "running_batch": sgl.batch(reqs=[], batch_is_full=False),
        "last_batch": None,
        "new_token_ratio_tracker": sgl.ratio.from_config(),
        "forward_ct": 0,
        "processed_tokens_counter": 0,
        "max_prefill_bs": 0,
        # Not chunked, not overlapped, one rank, no other model, no other tier.
        "chunked_req": None,
        "chunked_prefill_size": None,
        "dynamic_chunk_sizer": None,
        "_pending_chunked_abort_req": None,
        "is_mixed_chunk": False,
        "truncation_align_size": None,
        "enable_overlap": False,
        "enable_overlap_mlx": False,
        "enable_skip_finishing_decode": False,
        "enable_continuous_input_polling": False,
        "result_queue": None,
        "pp_size": 1,
        "ps": Stand(pp_size=1, pp_rank=0, tp_size=1),
        "scheduler_stage_metrics": None,
        "require_mlp_sync": False,
        "dp_attn_adapter": Stand(
            maybe_prepare_mlp_sync_batch=lambda batch, **_: batch, maybe_convert_decode_to_extend=same
        ),
        "ngram_embedding_manager": Stand(prepare_for_forward=same),
        "disaggregation_mode": sgl.normal,
        "decode_offload_manager": None,
        "hisparse_coordinator": None,
        "enable_hisparse": False,
        "enable_hierarchical_cache": False,
        "enable_hicache_storage": False,
        "enable_lmcache": False,
        "enable_unified_cache_external_linker": False,
        "is_hybrid_swa": False,
        "spec_algorithm": sgl.undrafted,
        "dllm_config": None,
        "enable_lora": False,
        "lora_drainer": None,
        "mm_receiver": None,
        "grammar_manager": Stand(has_waiting_grammars=lambda: False, abort_requests=_nothing),
        "beam_coordinator": Stand(
            retire_group=_nothing, pending_member_rows=lambda batch: 0, commit_decode=lambda batch: set()
        ),
        "prefill_delayer": None,
        "min_free_slots_delayer": None,
        "prefill_decode_interval": 0,
        "_prefill_decode_interval_remaining": 0,
        "tp_worker": Stand(
            model_runner=Stand(attn_backend=Stand(extend_attention_block_m=64), prefill_aware_swa=False)
        ),
        "model_config": Stand(
            vocab_size=VOCABULARY,
            is_encoder_decoder=False,
            is_multimodal=False,
            is_hybrid_swa=False,
            hf_config=Stand(),
            self_opened_think_start_ids=None,
            think_end_id=None,
        ),
        "metrics_reporter": Stand(num_retracted_reqs=0, enable_metrics=False),
        "load_inquirer": Stand(_get_num_pending_tokens=lambda chunk_deduct=0: 0),
        "send_abort_output": _nothing,
        # By arrival; or by priority, of which preemption at admission is a part.
        "enable_priority_scheduling": shape.priority,
        "enable_priority_preemption": shape.priority,
        "schedule_low_priority_values_first": True,
        "abort_on_priority_when_disabled": False,
        "priority_scheduling_preemption_threshold": shape.threshold,
    }


def _results(sgl: types.SimpleNamespace, scheduler: Any, rows: Any, allocator: Any, cache: Any) -> Any:
    return sgl.results(
        is_generation=True,
        disaggregation_mode=sgl.normal,
        enable_overlap=False,
        enable_overlap_mlx=False,
        model_config=scheduler.model_config,
        token_to_kv_pool_allocator=allocator,
        tree_cache=cache,
        hisparse_coordinator=None,
        req_to_token_pool=rows,
        decode_offload_manager=None,
        metrics_collector=None,
        metrics_reporter=Stand(
            num_generated_tokens=0, forward_ct_decode=0, report_decode_stats=_nothing, report_prefill_stats=_nothing
        ),
        draft_worker=None,
        model_worker=Stand(),
        logprob_result_processor=Stand(),
        output_streamer=Stand(stream_output=_nothing),
        beam_coordinator=scheduler.beam_coordinator,
        abort_request=_nothing,
    )
