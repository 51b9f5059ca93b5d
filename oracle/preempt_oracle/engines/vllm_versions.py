"""The versions of vLLM that the adapter was run with, and what sets them apart. The one place where versions are named.

Standard library only: the installer and the tests read it here, the adapter in the engine's Python. A *trait* is
something the adapter can see of a version (`vllm_traits` says how). A version that is listed here must show exactly the
traits this table gives it, or the adapter refuses to work with it; one that is not listed is taken as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Oldest first.
VERSIONS = (
    "0.11.0",
    "0.13.0",
    "0.16.0",
    "0.18.1",
    "0.20.0",
    "0.22.1",
    "0.25.1",
    "0.28.0",
    "0.30.0",
    "0.31.0",
    "0.32.0",
    "0.33.0",
)
#: Of these the whole is checked: expected verdicts, and that every fault put into them is caught.
FULL = ("0.11.0", "0.20.0", "0.31.0", "0.33.0")
#: Of these traces are shipped, and every run of the continuous integration drives them.
EVERY_RUN = ("0.31.0", "0.33.0")

#: Trait -> the first listed version that has it. What every listed version has is no trait.
SINCE: Mapping[str, str] = {
    "preempt-method": "0.13.0",  # Scheduler._preempt_request; before, a victim is preempted inside schedule()
    "reset": "0.13.0",  # reset_prefix_cache(reset_running_requests=True)
    "resumed-tokens": "0.13.0",  # a resumed request is sent with its tokens: CachedRequestData.all_token_ids
    "preemption-count": "0.13.0",  # Request.num_preemptions
    "v2-runner": "0.13.0",  # Scheduler.use_v2_model_runner
    "pause": "0.18.1",  # Scheduler.set_pause_state
    "whole-fit": "0.20.0",  # scheduler_reserve_full_isl
    "cached-count": "0.20.0",  # Request.prefill_stats
    "watermark": "0.25.1",  # KVCacheManager.watermark_blocks
    "cadence": "0.25.1",  # Request.next_decode_eligible_step, Scheduler.current_step
    "stale": "0.28.0",  # Request.num_stale_output_tokens; more than two frames may fly
    "fence": "0.30.0",  # Scheduler._request_blocks_can_be_freed
    "holding-queue": "0.31.0",  # Scheduler.kv_holding_waiting; skipped_waiting before
}

#: Modules that a version imports and that the common base does not have: (first, last version, requirements).
_MORE = (
    ("0.11.0", "0.11.0", ("setproctitle==1.3.8",)),
    ("0.11.0", "0.13.0", ("blake3==1.0.11",)),
    ("0.11.0", "0.18.1", ("diskcache==5.6.3",)),
    ("0.13.0", "0.22.1", ("gguf==0.19.0",)),
    (
        "0.16.0",
        "0.16.0",
        (
            "mistral-common==1.13.1",
            "jsonschema==4.26.0",
            "jsonschema-specifications==2025.9.1",
            "referencing==0.37.0",
            "rpds-py==2026.9.1",
            "pydantic-extra-types==2.11.1",
            "pycountry==26.2.16",
            "tiktoken==0.14.0",
        ),
    ),
    ("0.30.0", "0.30.0", ("einops==0.8.2",)),
)


def order(version: str) -> tuple[int, ...]:
    """A version as numbers, for comparing: what is no number in it ends it."""
    found = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        found.append(int(part))
    return tuple(found)


def traits(version: str) -> frozenset[str]:
    """The traits that a listed version must have."""
    return frozenset(name for name, since in SINCE.items() if order(since) <= order(version))


def more(version: str) -> tuple[str, ...]:
    """The requirements that go beside a version, listed or not, on top of the common base."""
    at = order(version)
    return tuple(pin for first, last, pins in _MORE if order(first) <= at <= order(last) for pin in pins)
