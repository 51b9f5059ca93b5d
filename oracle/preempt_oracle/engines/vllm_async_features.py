"""What a version of vLLM can do beyond one frame at a time: schedule ahead, draft, reset, pause, count.

Runs in the engine's Python (standard library and vLLM only). What a version lacks is not announced, and refused when
asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from vllm.config import VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

try:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler as AsyncScheduler
except ImportError:  # before 0.11
    AsyncScheduler = None
try:
    from vllm.v1.outputs import DraftTokenIds
except ImportError:
    DraftTokenIds = None
try:
    from vllm.v1.core.sched.interface import PauseState
except ImportError:
    PauseState = None


def accepted(function: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """Those of `values` that `function` takes in this version."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return values
    return {name: value for name, value in values.items() if name in parameters}


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether this version's `function` has a parameter of that name."""
    return name in inspect.signature(function).parameters


def speculation(drafts: int, ahead: bool, model: Any, parallel: Any) -> Any:
    """Drafts that need no slots of their own. The harness says which are accepted, so nobody looks anything up."""
    from vllm.config import SpeculativeConfig

    # Ahead of the sampled tokens only a drafter on the device can work.
    method = "ngram_gpu" if ahead else "ngram"
    return SpeculativeConfig(
        method=method,
        model=method,
        num_speculative_tokens=drafts,
        prompt_lookup_max=drafts,
        prompt_lookup_min=1,
        target_model_config=model,
        target_parallel_config=parallel,
    )


@lru_cache(maxsize=1)
def traits() -> frozenset[str]:
    """The attributes that this version's requests have."""
    values = {
        "request_id": "probe",
        "prompt_token_ids": [1],
        "sampling_params": SamplingParams(max_tokens=1),
        "pooling_params": None,
        "eos_token_id": None,
    }
    return frozenset(dir(Request(**accepted(Request.__init__, values))))


def accounts_for_stale() -> bool:
    """Whether this version says of each request what in flight is stale."""
    return {"num_stale_output_tokens", "drop_stale_output", "num_in_flight_tokens"} <= traits()


def can_fly() -> bool:
    """Whether this version schedules ahead of its outputs."""
    return AsyncScheduler is not None and "num_output_placeholders" in traits()


def can_fly_many() -> bool:
    """Whether more than two frames may fly, with pipeline stages: before, their outputs are not told apart."""
    return can_fly() and accounts_for_stale() and hasattr(VllmConfig, "max_concurrent_batches")


def can_draft() -> bool:
    """Whether this version takes drafts from a drafter outside of the scheduler."""
    return DraftTokenIds is not None and hasattr(Scheduler, "update_draft_token_ids") and "spec_token_ids" in traits()


def can_reset() -> bool:
    """Whether this version can empty its cache under running requests."""
    reset = getattr(Scheduler, "reset_prefix_cache", None)
    return reset is not None and takes(reset, "reset_running_requests")


def can_pause() -> bool:
    """Whether this version can stop to schedule."""
    return PauseState is not None and hasattr(PauseState, "PAUSED_ALL") and hasattr(Scheduler, "set_pause_state")


def counts() -> bool:
    """Whether this version counts preemptions and cached tokens, request by request."""
    return {"num_preemptions", "prefill_stats"} <= traits()


def has_two_runners() -> bool:
    """Whether this version's scheduler speaks to either model runner."""
    # The attribute is set by the constructor: it is on no class, and its name is among those that the code uses.
    return "use_v2_model_runner" in Scheduler.__init__.__code__.co_names


def pause(scheduler: Any, paused: bool) -> None:
    """As `pause` with mode `keep` does, and `resume`: nothing is scheduled, who runs keeps its blocks."""
    assert PauseState is not None
    scheduler.set_pause_state(PauseState.PAUSED_ALL if paused else PauseState.UNPAUSED)


def paused(scheduler: Any) -> bool:
    """Whether it is paused, as vLLM says."""
    assert PauseState is not None
    return bool(scheduler.pause_state != PauseState.UNPAUSED)


def draft_tokens(names: list[str], counts: list[int]) -> Any:
    """What a drafter would propose: so many tokens for each; which ones is all the same to the scheduler."""
    assert DraftTokenIds is not None
    return DraftTokenIds(req_ids=names, draft_token_ids=[[1] * count for count in counts])


def runner_output(sampled: dict[str, list[int]], copied: Any = None) -> Any:
    """What the model runner would answer: sampled tokens per request of the frame, in its order, and what it copied."""
    names = list(sampled)
    values = {
        "req_ids": names,
        "req_id_to_index": {name: index for index, name in enumerate(names)},
        "sampled_token_ids": [list(tokens) for tokens in sampled.values()],
        "logprobs": None,
        "prompt_logprobs_dict": {},
        "pooler_output": [],
    }
    if copied is not None:
        values["kv_connector_output"] = copied
    return ModelRunnerOutput(**accepted(ModelRunnerOutput, values))
