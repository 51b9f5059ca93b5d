"""The scheduler classes to name to vLLM: `vllm serve MODEL --scheduler-cls preempt_oracle.record.vllm.…`.

`RecordingScheduler` where scheduling is synchronous, `RecordingAsyncScheduler` where it is asynchronous. Configured by
environment variables, see `preempt_oracle.record.settings`; needs preempt-oracle installed in vLLM's environment.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from preempt_oracle.engines.vllm_traits import VERSION, listed, traits
from preempt_oracle.record.capture import Capture
from preempt_oracle.record.scheduler import begin, recording

__all__ = ["RecordingAsyncScheduler", "RecordingScheduler"]


def _start(scheduler: Any, *, ahead: bool) -> Capture:
    if bool(scheduler.scheduler_config.async_scheduling) is not ahead:
        right = "RecordingScheduler" if ahead else "RecordingAsyncScheduler"
        raise ValueError(f"--scheduler-cls: with this configuration vLLM needs preempt_oracle.record.vllm.{right}")
    return begin(scheduler, VERSION, traits(), listed())


class RecordingScheduler(recording(Scheduler, partial(_start, ahead=False))):  # type: ignore[misc]
    """vLLM's `Scheduler`, recorded."""


class RecordingAsyncScheduler(recording(AsyncScheduler, partial(_start, ahead=True))):  # type: ignore[misc]
    """vLLM's `AsyncScheduler`, recorded."""
