"""What this vLLM is like: the traits of `vllm_versions`, looked at in the code that is installed.

Runs in the engine's Python (standard library and vLLM only). A version that is listed and shows other traits than the
table gives it was changed, or is not what it says: that is a broken harness, and no verdict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines import vllm_async_features as features
    from preempt_oracle.engines import vllm_versions as versions
    from preempt_oracle.engines.child import Unsupported
    from preempt_oracle.engines.vllm_async_features import takes
else:
    import vllm_async_features as features
    import vllm_versions as versions
    from child import Unsupported
    from vllm_async_features import takes

from vllm import __version__ as VERSION
from vllm.config import SchedulerConfig
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.output import CachedRequestData
from vllm.v1.core.sched.scheduler import Scheduler

__all__ = ["VERSION", "listed", "traits"]


def _field(cls: Any, name: str) -> bool:
    return name in {field.name for field in dataclasses.fields(cls)}


def _assigns(method: Callable[..., Any], name: str) -> bool:
    # An attribute that a constructor sets is on no class; its name is among those that the code uses.
    return name in method.__code__.co_names


_SEEN: Mapping[str, Callable[[], bool]] = {
    "preempt-method": lambda: hasattr(Scheduler, "_preempt_request"),
    "reset": features.can_reset,
    "resumed-tokens": lambda: _field(CachedRequestData, "all_token_ids"),
    "preemption-count": lambda: "num_preemptions" in features.traits(),
    "v2-runner": features.has_two_runners,
    "pause": features.can_pause,
    "whole-fit": lambda: takes(SchedulerConfig, "scheduler_reserve_full_isl"),
    "cached-count": lambda: "prefill_stats" in features.traits(),
    "watermark": lambda: takes(SchedulerConfig, "watermark") and _assigns(KVCacheManager.__init__, "watermark_blocks"),
    "cadence": lambda: (
        "next_decode_eligible_step" in features.traits() and _assigns(Scheduler.__init__, "current_step")
    ),
    "stale": features.accounts_for_stale,
    "fence": lambda: hasattr(Scheduler, "_request_blocks_can_be_freed"),
    "holding-queue": lambda: _assigns(Scheduler.__init__, "kv_holding_waiting"),
}


def listed() -> bool:
    """Whether this is one of the versions the adapter was run with."""
    return VERSION in versions.VERSIONS


@lru_cache(maxsize=1)
def traits() -> frozenset[str]:
    """What this vLLM has of `vllm_versions.SINCE`.

    Raises `Unsupported` naming the first trait in which a listed version is not what the table says.
    """
    seen = frozenset(name for name, look in _SEEN.items() if look())
    if listed():
        wanted = versions.traits(VERSION)
        for name in versions.SINCE:
            if (name in seen) != (name in wanted):
                has, should = ("lacks", "has") if name in wanted else ("has", "does not have")
                raise Unsupported(
                    f"vLLM {VERSION} {has} the trait {name!r}; the vLLM {VERSION} that we know {should} it"
                )
    return seen
