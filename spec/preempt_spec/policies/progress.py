"""How long nothing may happen."""

from __future__ import annotations

from preempt_spec.events import Limits
from preempt_spec.policies.blocks import blocks_for
from preempt_spec.policies.policy import Policy, Progress
from preempt_spec.view import View


def waits(s: View) -> bool:
    """Whether a step was empty because the engine waits for somebody else."""
    asked = s.frames or s.copies or s.paused or all(r in s.plan.skipped for r in s.live())
    return not s.plan.granted and bool(asked)


def patience(policy: Policy, limits: Limits) -> int:
    """K of live/progress, in steps."""
    match policy.progress:
        case Progress.CHUNKED:
            # Between two high-water marks the engine can only refill what preemptions took: at most every running
            # request's whole sequence, one chunk of one of them per step at the least; plus the step in which the
            # last running request preempted itself and the one in which its successor is admitted.
            chunk = min(limits.budget, limits.long_prefill or limits.budget)
            return limits.max_running * blocks_for(limits.max_length, chunk) + 1 + limits.frames
        case Progress.EVERY_BATCH:
            # Every batch yields a token per request; a step is empty only when the last running request preempted
            # itself, and the next step refills it at once.
            return 2 + limits.frames
