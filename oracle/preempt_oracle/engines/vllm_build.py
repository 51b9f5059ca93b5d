"""Build vLLM's own scheduler where there is no GPU, no model and no network.

Runs in the engine's Python (standard library, torch and vLLM only). Everything below is the engine's real code with
its real checks; only the model's description is made up, because the scheduler never looks at weights. Keywords are
filtered by signature so that one file serves many versions; what a version has is in `vllm_versions`.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from preempt_oracle.engines import vllm_async_features as features
    from preempt_oracle.engines import vllm_connectors as connectors
    from preempt_oracle.engines.child import Refused, Unsupported
    from preempt_oracle.engines.vllm_async_features import accepted
    from preempt_oracle.engines.vllm_model import described, model_config
    from preempt_oracle.engines.vllm_traits import VERSION, traits
else:
    import vllm_alone  # noqa: F401 - before vLLM: its environment
    import vllm_async_features as features
    import vllm_connectors as connectors
    from child import Refused, Unsupported
    from vllm_async_features import accepted
    from vllm_model import described, model_config
    from vllm_traits import VERSION, traits

import torch
import vllm.v1.core.kv_cache_utils as kv_cache_utils
from vllm.config import CacheConfig, DeviceConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

try:
    from vllm.utils.hashing import sha256
except ImportError:  # before 0.12
    from vllm.utils import sha256

# Nobody reads a child's log, and a pipe nobody reads fills up; what matters is raised.
logging.disable(logging.CRITICAL)

#: The status of a request that the user cancelled.
ABORTED: Any = RequestStatus.FINISHED_ABORTED
#: What `config.options` may turn on, besides the protocol's settings.
OPTIONS = ("v2_runner", "outside_contract", "pipeline", "offload_outputs", "lazy_offload", "failing_loads")
#: The options that are words, and what each may be.
WORDS: Mapping[str, tuple[str, ...]] = {
    "connector": ("", *connectors.NAMES),
    "load_failure": ("", "recompute", "fail"),
}
POLICIES = {"vllm-fcfs": "fcfs", "vllm-priority": "priority"}
_COUNTS = ("long_prefill", "watermark", "drafts", "host_blocks")  # settings that may be 0


@dataclasses.dataclass(frozen=True)
class Shape:
    """A configuration as the protocol gives it. Sizes in tokens, `blocks` and `watermark` in blocks."""

    policy: str
    blocks: int  # usable: without vLLM's null block
    page_size: int
    max_running: int
    budget: int
    max_length: int
    long_prefill: int = 0
    chunked: bool = True
    caching: bool = False
    whole_fit: bool = True
    watermark: int = 0
    frames: int = 1  # 1: synchronous scheduling
    drafts: int = 0
    host_blocks: int = 0
    groups: str = "full"
    v2_runner: bool = False
    outside_contract: bool = False  # start although the longest sequence exceeds the pool
    pipeline: bool = False  # frames fly through pipeline stages, and none is scheduled ahead of an output it needs
    connector: str = ""  # what offloads to `host_blocks`
    offload_outputs: bool = False  # not only pages of the prompt: offloading
    lazy_offload: bool = False  # what is free and about to be reused, not what was just computed: simple
    failing_loads: bool = False  # some loads lose a page
    load_failure: str = ""  # what becomes of who loads then: vLLM's kv_load_failure_policy

    @property
    def ahead(self) -> bool:
        """Whether a request is scheduled again before its last output is back: vLLM's asynchronous scheduling."""
        return self.frames > 1 and not self.pipeline

    @property
    def stages(self) -> int:
        """Pipeline stages with which vLLM flies so many frames: one less than frames, if it schedules ahead."""
        return max(1, self.frames - self.ahead)

    @property
    def total(self) -> int:
        """Blocks as vLLM counts them: block 0 is the null block, which is never handed out."""
        return self.blocks + 1


def parse(config: dict[str, Any]) -> Shape:
    """The protocol's `config` as a shape. Raises `Refused` for what no version of vLLM can be started with."""
    names = {f.name for f in dataclasses.fields(Shape)} - {*OPTIONS, *WORDS}
    unknown = sorted(set(config) - names - {"seed", "options"})
    if unknown:
        raise Refused(f"config.{unknown[0]}: not a setting of this adapter")
    options = config.get("options") or {}
    for name in options:
        if name not in OPTIONS and name not in WORDS:
            raise Refused(f"config.options.{name}: not an option of this adapter")
        if name in WORDS and options[name] not in WORDS[name]:
            raise Refused(f"config.options.{name}: {options[name]!r} is none of {', '.join(filter(None, WORDS[name]))}")
    try:
        chosen: dict[str, Any] = {n: options[n] if n in WORDS else bool(options[n]) for n in options}
        shape = Shape(**chosen, **{n: config[n] for n in names if n in config})
    except TypeError as error:
        raise Refused(f"config: {error}") from error
    if shape.policy not in POLICIES:
        raise Refused(f"config.policy: {shape.policy!r} is none of {', '.join(POLICIES)}")
    for name in ("blocks", "page_size", "max_running", "budget", "max_length", "frames", *_COUNTS):
        value = getattr(shape, name)
        least = 0 if name in _COUNTS else 1
        if type(value) is not int or value < least:
            raise Refused(f"config.{name}: {value!r} is not a whole number of at least {least}")
    if shape.host_blocks and not shape.connector:
        raise Refused(
            f"config.host_blocks: {shape.host_blocks}: vLLM's host tier is a KV connector: name one with the option "
            f"connector, of {', '.join(filter(None, WORDS['connector']))}"
        )
    if shape.host_blocks and shape.connector == "simple" and not shape.caching:
        raise Refused("config.host_blocks: SimpleCPUOffloadConnector switches itself off without prefix caching")
    if shape.groups != "full":
        raise Refused(f"config.groups: {shape.groups!r}: this adapter drives one full-attention group")
    if shape.pipeline and shape.drafts:
        raise Refused(f"config.drafts: {shape.drafts}: not driven here with several frames and none ahead")
    if shape.ahead and shape.frames > 2 and not shape.v2_runner:
        if "v2_runner" in options:
            raise Refused(f"config.frames: {shape.frames}: vLLM's V1 runner flies two at most")
        shape = dataclasses.replace(shape, v2_runner=True)
    return shape


@lru_cache(maxsize=256)
def _configs(shape: Shape) -> tuple[Any, Any]:
    """The configuration and the structured-output manager of a shape; both are read-only to the scheduler."""
    scheduling = SchedulerConfig(
        **accepted(
            SchedulerConfig,
            {
                "max_num_seqs": shape.max_running,
                "max_num_batched_tokens": shape.budget,
                "max_model_len": shape.max_length,
                "enable_chunked_prefill": shape.chunked,
                "long_prefill_token_threshold": shape.long_prefill,
                "scheduler_reserve_full_isl": shape.whole_fit,
                "policy": POLICIES[shape.policy],
                "watermark": _fraction(shape),
                "async_scheduling": shape.ahead,
                "is_encoder_decoder": False,
            },
        )
    )
    cache = CacheConfig(
        **accepted(CacheConfig, {"block_size": shape.page_size, "enable_prefix_caching": shape.caching})
    )
    # Several stages are several processes; none is ever started here.
    pipeline = {"pipeline_parallel_size": shape.stages, "distributed_executor_backend": "mp"}
    parallel = ParallelConfig(**(pipeline if shape.stages > 1 else {}))
    model = model_config(shape.max_length)
    drafter = features.speculation(shape.drafts, shape.ahead, model, parallel) if shape.drafts else None
    beyond: dict[str, Any] = {} if drafter is None else {"speculative_config": drafter}
    if shape.host_blocks:
        beyond["kv_transfer_config"] = connectors.config(shape, _spec(shape).page_size_bytes)
    # DeviceConfig is explicit because the platform without CUDA is "unspecified" and would be refused.
    config = VllmConfig(
        device_config=DeviceConfig(device="cpu"),
        scheduler_config=scheduling,
        model_config=model,
        cache_config=cache,
        parallel_config=parallel,
        **beyond,
    )
    # Building the whole may switch these off for an unknown platform; the scheduler itself runs everywhere.
    config.scheduler_config.async_scheduling = shape.ahead
    config.scheduler_config.enable_chunked_prefill = shape.chunked
    if hasattr(config.scheduler_config, "chunked_prefill_enabled"):  # what the scheduler read before 0.12
        config.scheduler_config.chunked_prefill_enabled = shape.chunked
    config.scheduler_config.long_prefill_token_threshold = shape.long_prefill
    config.cache_config.enable_prefix_caching = shape.caching
    config.cache_config.num_gpu_blocks = shape.total
    try:
        from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
    except ImportError:  # before 0.20 there was nothing to register
        pass
    else:
        register_all_kvcache_specs(config)
    return config, StructuredOutputManager(config)


def _fraction(shape: Shape) -> float:
    # vLLM takes a share of all blocks and rounds down; aiming at the middle makes the count exact.
    if not shape.watermark:
        return 0.0
    if shape.watermark >= shape.total:
        raise Refused("config.watermark: vLLM wants less than the whole pool")
    return (shape.watermark + 0.5) / shape.total


def _spec(shape: Shape) -> Any:
    values = {
        "block_size": shape.page_size,
        "num_kv_heads": 1,
        "head_size": 1,
        "dtype": torch.float32,
        "use_mla": False,
        "sliding_window": None,
    }
    return FullAttentionSpec(**accepted(FullAttentionSpec, values))


def _check_pool(shape: Shape) -> None:
    """The engine core's start-up check that one request of the longest length fits (`check_enough_kv_cache_memory`).

    Mirrored: the function itself wants a memory layout that only an engine core with workers resolves. Only a shape
    that says it is outside the contract is let through, to show why vLLM refuses it.
    """
    if shape.outside_contract:
        return
    needed = -(-shape.max_length // shape.page_size)
    if needed > shape.blocks:
        raise Refused(
            f"config.max_length: {shape.max_length} tokens need {needed} blocks and the pool has {shape.blocks}; "
            "vLLM does not start with a maximum length that one request could not reach"
        )


def _check_modes(shape: Shape) -> None:
    """Refuse what was asked for and this version does not have."""
    has = traits()
    if shape.frames > 1 and not features.can_fly():
        raise Refused(f"config.frames: vLLM {VERSION} has no asynchronous scheduling that this adapter knows")
    if (shape.frames > 2 or shape.pipeline) and not features.can_fly_many():
        raise Refused(
            f"config.frames: {shape.frames}: vLLM {VERSION} does not account for what flies of a victim: two at most, "
            "scheduled ahead"
        )
    if shape.v2_runner and "v2-runner" not in has:
        raise Refused(f"config.options.v2_runner: vLLM {VERSION} has one model runner only")
    if shape.drafts and not features.can_draft():
        raise Refused(f"config.drafts: vLLM {VERSION} has no drafts that this adapter knows")
    if shape.host_blocks and "holding-queue" not in has:
        raise Refused(f"config.host_blocks: vLLM {VERSION} keeps who loads otherwise than this adapter knows")
    if shape.watermark and "watermark" not in has:
        raise Refused(f"config.watermark: vLLM {VERSION} has none")
    # Not chunked, a prefill is admitted as a whole or not at all: nothing is asked for that it does not have.
    if shape.whole_fit and shape.chunked and "whole-fit" not in has:
        raise Refused(
            f"config.whole_fit: vLLM {VERSION} has no scheduler_reserve_full_isl, a chunked prefill is admitted as "
            "soon as its first chunk fits: ask for whole_fit = false"
        )


def build(shape: Shape) -> Any:
    """A fresh scheduler of this shape. Raises `Refused` where vLLM refuses to start, `Unsupported` where it differs."""
    _check_modes(shape)
    _check_pool(shape)
    # The number of frames that fly depends on the runner, which is chosen by model and platform unless told.
    with mock.patch.dict(os.environ, {"VLLM_USE_V2_MODEL_RUNNER": str(int(shape.v2_runner))}):
        return _build(shape)


def _build(shape: Shape) -> Any:
    try:
        with described():
            config, grammars = _configs(shape)
        spec = _spec(shape)
    except ValueError as error:
        raise Refused(f"vLLM refuses to start: {_reason(error)}") from error
    pages = KVCacheConfig(
        num_blocks=shape.total,
        kv_cache_tensors=connectors.tensors(shape, spec.page_size_bytes),
        kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
    )
    # Two frames ahead without stages: before this was a property, the executors said the same.
    flies = getattr(config, "max_concurrent_batches", shape.frames)
    if shape.frames > 1 and flies != shape.frames:
        raise Unsupported(f"vLLM {VERSION} flies {flies} frames, not {shape.frames}")
    scheduler = (features.AsyncScheduler if shape.ahead else Scheduler)(
        **accepted(
            Scheduler.__init__,
            {
                "vllm_config": config,
                "kv_cache_config": pages,
                "structured_output_manager": grammars,
                "block_size": shape.page_size,
                "log_stats": False,
            },
        )
    )
    if hasattr(scheduler, "use_v2_model_runner"):
        # Not a setting: vLLM picks the runner by model and platform, and only the shape of the output differs here.
        scheduler.use_v2_model_runner = shape.v2_runner
    elif "v2-runner" in traits():
        raise Unsupported(f"vLLM {VERSION}: Scheduler.use_v2_model_runner is missing")
    if missing := sorted({"num_tokens", "num_output_tokens", "output_token_ids", "is_finished"} - features.traits()):
        raise Unsupported(f"vLLM {VERSION}: Request has no {', '.join(missing)}")
    _verify(scheduler, shape)
    return scheduler


def _verify(scheduler: Any, shape: Shape) -> None:
    settings = scheduler.scheduler_config
    pool = scheduler.kv_cache_manager.block_pool
    found = {
        "max_running": scheduler.max_num_running_reqs,
        "budget": scheduler.max_num_scheduled_tokens,
        "max_length": scheduler.max_model_len,
        "long_prefill": settings.long_prefill_token_threshold,
        # Another name for the same before 0.12.
        "chunked": getattr(settings, "chunked_prefill_enabled", settings.enable_chunked_prefill),
        "caching": pool.enable_caching,
        "total": pool.num_gpu_blocks,
        "watermark": getattr(scheduler.kv_cache_manager, "watermark_blocks", 0),
        "drafts": getattr(scheduler, "num_spec_tokens", 0),
    }
    for name, value in found.items():
        if value != getattr(shape, name):
            raise Unsupported(f"vLLM {VERSION} turned {name} = {getattr(shape, name)!r} into {value!r}")

    if shape.drafts and scheduler.num_lookahead_tokens:
        raise Unsupported(f"vLLM {VERSION} reserves {scheduler.num_lookahead_tokens} slots for these drafts, not 0")
    if shape.ahead:
        apart = getattr(scheduler, "decode_stagger", getattr(scheduler, "pp_size", 1))  # the stages before 0.31
        if apart != shape.stages:
            raise Unsupported(f"vLLM {VERSION} decodes every {apart} steps with {shape.stages} stages")


def _reason(error: ValueError) -> str:
    # pydantic wraps the sentence that vLLM wrote: a count above it, the input's repr and an address behind it.
    lines = [line.split("[type=")[0].strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and "validation error" not in line and not line.startswith("For further")]
    return " ".join(told).removeprefix("Value error, ")


def whole_fit(scheduler: Any, shape: Shape) -> bool:
    """Whether this scheduler admits only what fits as a whole; before the setting, only what may not be cut."""
    return bool(getattr(scheduler, "scheduler_reserve_full_isl", shape.whole_fit))


@lru_cache(maxsize=64)
def _hasher(page_size: int) -> Any:
    kv_cache_utils.init_none_hash(sha256)
    return kv_cache_utils.get_request_block_hasher(page_size, sha256)


def request(shape: Shape, command: Mapping[str, Any]) -> Any:
    """The request vLLM's front end would hand to the scheduler: `max_tokens` clipped to the longest sequence."""
    prompt = list(command["prompt"])
    limit = min(int(command["max_tokens"]), shape.max_length - len(prompt))
    values = {
        "request_id": command["request"],
        "prompt_token_ids": prompt,
        "sampling_params": SamplingParams(max_tokens=limit, ignore_eos=True, detokenize=False),
        "pooling_params": None,
        "eos_token_id": None,
        "arrival_time": float(command.get("arrival", 0)),
        "priority": int(command.get("priority", 0)),
        "cache_salt": command.get("salt") or None,
        # The engine core hashes blocks only when somebody could look them up.
        "block_hasher": _hasher(shape.page_size) if shape.caching else None,
    }
    return Request(**accepted(Request.__init__, values))
