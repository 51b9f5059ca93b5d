"""What it means that a waiting request displaces running ones: the cause `admission` of a policy, as pure functions.

A request that waits for a slot may take it from requests of worse priority, at its very admission: it enters in the
step that preempts them. Source: SGLang 0.5.23 srt/managers/schedule_policy.py, PrefillAdder.preempt_to_schedule().
"""

from __future__ import annotations

from typing import Protocol

from preempt_spec.policies.blocks import pages_for
from preempt_spec.policies.policy import Policy
from preempt_spec.view import RequestView, View


class Demoted(Protocol):
    """A demotion, in whatever form it is read."""

    @property
    def request(self) -> str:
        """The victim."""

    @property
    def cause(self) -> str:
        """For what."""

    @property
    def beneficiaries(self) -> tuple[str, ...]:
        """For whom."""


def displaces(policy: Policy) -> bool:
    """Whether a waiting request may displace running ones."""
    return "admission" in policy.causes


def displaced(e: Demoted) -> tuple[tuple[str, str], ...]:
    """The victim of an admission, and for whom it makes way; nothing for any other victim."""
    return tuple((e.request, w) for w in e.beneficiaries[:1]) if e.cause == "admission" else ()


def displaceable(s: View, waiting: str) -> tuple[str, ...]:
    """Who may be displaced for `waiting`: priorities worse by more than the threshold; nobody whom this step admitted.

    Never an equal, however late it came: two of them could displace each other for ever.
    """
    best = s.request(waiting).priority + s.limits.threshold
    return tuple(r for r in s.running if r not in s.plan.admitted and s.request(r).priority > best)


def leaving_key(r: RequestView) -> tuple[int, tuple[int, int]]:
    """The greater, the sooner it is displaced: the worst priority, then the latest entry into the waiting queue.

    Equals are admitted in the order of their entry (queue/order), so that of equals the last admitted entered last.
    """
    return (r.priority, r.since)


def next_displaced(s: View, waiting: str) -> str | None:
    """The arg-max over who may be displaced for `waiting`; None if nobody may."""
    return max(displaceable(s, waiting), key=lambda r: leaving_key(s.request(r)), default=None)


def first_of_those_who_stay(s: View) -> str | None:
    """Behind a step: of those who ran before it and run on, who would have been displaced first."""
    stays = [r for r in s.running if r in s.plan.entered and r not in s.plan.admitted]
    return max(stays, key=lambda r: leaving_key(s.request(r)), default=None)


def line_before(s: View, waiting: str) -> tuple[str, ...]:
    """It, and who is admitted before it, if it is: an engine may tell of those later than of its victims."""
    queue = tuple(w for w in s.waiting if w not in s.plan.skipped)
    return queue[: queue.index(waiting) + 1] if waiting in queue else (waiting,)


def slots(s: View, waiting: str) -> tuple[int, int]:
    """Slots that it takes until it is admitted, those before it included, and slots that are free."""
    return len(line_before(s, waiting)), s.limits.max_running - len(s.running)


def ample(s: View, waiting: str) -> bool:
    """Whether it fits without a further victim, by any estimate of what is still emitted: all that may be is reserved.

    One block more each: for an estimate that rounds up.
    """
    need, supply = slots(s, waiting)
    if need > supply:
        return False
    for g, group in enumerate(s.groups):
        wanted = s.limits.watermark + sum(pages_for(group, _end(s, w)) + 1 for w in line_before(s, waiting))
        for r in s.running:
            wanted += max(pages_for(group, _end(s, r)) - len(s.request(r).tables[g]), 0)
        if wanted > s.free(g):
            return False
    return True


def _end(s: View, request: str) -> int:
    r = s.request(request)
    return min(r.prompt + r.max_tokens, s.limits.max_length)
