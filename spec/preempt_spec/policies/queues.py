"""Where requests wait, and who is next."""

from __future__ import annotations

from itertools import zip_longest

from preempt_spec.policies.outputs import awaits_output
from preempt_spec.policies.policy import Memory, Order, Policy, Requeue
from preempt_spec.view import RequestView, View


def waiting_key(r: RequestView) -> tuple[int, int, str]:
    """The order of a priority queue. Source: vLLM 0.31.0 v1/request.py, Request.__lt__."""
    return (r.priority, r.arrival, r.id)


def by_priority(policy: Policy) -> bool:
    """Whether a better priority is admitted first."""
    return policy.order in (Order.PRIORITY, Order.PRIORITY_EACH_STEP)


def queue_up(s: View) -> tuple[str, ...]:
    """The waiting queue as a step finds it. Source: SGLang 0.5.23, SchedulePolicy._sort_by_priority_and_fcfs.

    Victims and arrivals enter at the back, at a fresh entry time: a stable sort by priority is one by entry, too.
    """
    if s.policy.order is not Order.PRIORITY_EACH_STEP:
        return tuple(s.waiting)
    return tuple(sorted(s.waiting, key=lambda w: s.request(w).priority))


def _sorted_index(s: View, request: str) -> int:
    key = waiting_key(s.request(request))
    return sum(waiting_key(s.request(w)) < key for w in s.waiting)


def enqueue_at(s: View, request: str) -> int:
    """Index at which an arrival joins the waiting queue."""
    return _sorted_index(s, request) if s.policy.order is Order.PRIORITY else len(s.waiting)


def requeue_at(s: View, request: str, queue: str = "waiting") -> int:
    """Index at which a victim joins a queue. Who is swapped comes back in the order of going."""
    if queue == "swapped":
        return len(s.swapped)
    match s.policy.requeue:
        case Requeue.FRONT:
            return 0
        case Requeue.BACK:
            return len(s.waiting)
        case Requeue.ARRIVED:
            came = {r: i for i, r in enumerate(s.live())}
            return sum(came[w] < came[request] for w in s.waiting)
        case Requeue.PRIORITY:
            return _sorted_index(s, request)


def next_admitted(s: View) -> str | None:
    """The request that is admitted next, if one is: nobody older and ready may be passed over."""
    if s.policy.memory is Memory.SWAP and s.swapped:
        return next((w for w in s.swapped if not awaits_output(s, w)), None)
    ready = (w for w in s.waiting if w not in s.plan.skipped and not awaits_output(s, w))
    return next(ready, None)


def taking_turns(s: View) -> tuple[str, ...]:
    """Who waits and is ready, in the order in which a step looks at them: a swapped one, then another, and so on."""
    swapped, waiting = iter(s.swapped), iter(s.waiting)
    turns = [r for pair in zip_longest(swapped, waiting) for r in pair if r is not None]
    return tuple(r for r in turns if r not in s.plan.skipped and not awaits_output(s, r))
