"""What a request is still owed, and what becomes of what flies for one that was preempted."""

from __future__ import annotations

from preempt_spec.policies.policy import Stale
from preempt_spec.view import Fate, RequestView, View


def room_for_outputs(s: View, r: RequestView) -> int:
    """Tokens a request may still emit: what is sampled beyond is cut off."""
    return min(r.prompt + r.max_tokens, s.limits.max_length) - len(r.tokens)


def awaits_output(s: View, request: str) -> bool:
    """Whether a stale output that will be appended still flies: resuming now would compute its position twice."""
    return any(f[request].fate is Fate.DELIVER for f in s.frames.values() if request in f)


def confirmed(s: View, request: str) -> int:
    """Computed tokens that no rejection of drafts can take back: those of flying frames apart."""
    dues = (f[request] for f in s.frames.values() if request in f)
    return s.request(request).computed - sum(x.tokens for x in dues if x.fate is Fate.LIVE)


def stale_fate(s: View, request: str, cause: str) -> Fate:
    """What becomes of the outputs that fly when a request is preempted."""
    dropped = any(f[request].fate is Fate.DROP for f in s.frames.values() if request in f)
    # Whose outputs were dropped once computes their positions anew: what still flies for them stays dropped (vLLM
    # 0.33.0 v1/core/sched/scheduler.py, _preempt_request).
    if dropped or cause == "reset" or s.policy.stale is Stale.DROP:
        return Fate.DROP
    return Fate.DELIVER


def ends(s: View, request: str) -> bool:
    """Whether there is nothing to compute for it until an output is back, or it is over."""
    r = s.request(request)
    return bool(
        (r.placeholders and r.placeholders >= room_for_outputs(s, r))
        or r.computed >= min(len(r.tokens) + r.placeholders, s.limits.max_length - 1)
    )
