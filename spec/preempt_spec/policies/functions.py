"""What the knobs of a policy mean: small pure functions over the view. All block counts are blocks of one group."""

from __future__ import annotations

from collections.abc import Sequence

from preempt_spec.events import Limits
from preempt_spec.policies.policy import (
    AfterSelf,
    FullHit,
    Need,
    Order,
    Phase,
    Policy,
    Progress,
    Requeue,
    Slots,
    Victim,
)
from preempt_spec.view import Place, RequestView, View


def blocks_for(tokens: int, page: int) -> int:
    """Blocks that hold this many tokens."""
    return -(-tokens // page)


def want(s: View, request: str) -> int:
    """Tokens a running request asks for in this step: what is known and not computed, within caps and budget."""
    r = s.request(request)
    room = min(len(r.tokens) - r.computed, s.limits.max_length - r.computed, s.limits.budget - s.plan.spent)
    if s.limits.long_prefill and len(s.live()) > 1:
        # vLLM's adaptive threshold never caps below a fair share of the budget (0.31.0 v1/core/sched/scheduler.py).
        room = min(room, max(s.limits.long_prefill, s.limits.budget // len(s.live())))
    return max(room, 0)


def growth(s: View, request: str) -> int:
    """Blocks its next grant lacks, in the group that lacks most."""
    r = s.request(request)
    end = r.computed + want(s, request)
    return max(0, *(blocks_for(end, page) - len(r.tables[g]) for g, page in enumerate(s.pages)))


def need(s: View, request: str) -> int:
    """Free blocks a running request must see to be granted tokens."""
    return 1 if s.policy.need is Need.ONE_FREE else growth(s, request)


def supply(s: View) -> int:
    """Free blocks, in the group that has fewest."""
    return min(s.free(g) for g in range(len(s.pages)))


def eligible(s: View, requester: str) -> tuple[str, ...]:
    """Who may be preempted for `requester`, in running order."""
    if s.policy.victim in (Victim.LAST_RUNNING, Victim.WORST_PRIORITY):
        return tuple(s.running)
    plan = s.plan
    rest = tuple(r for r in s.running if r != requester and r not in plan.granted and r not in plan.pending)
    return rest or ((requester,) if s.request(requester).place is Place.RUNNING else ())


def victim(s: View, requester: str) -> str | None:
    """The victim: arg-max of the policy's total order over the eligible requests; None if nobody is eligible."""
    who = eligible(s, requester)
    match s.policy.victim:
        case Victim.LAST_RUNNING | Victim.LAST_UNPLANNED:
            return who[-1] if who else None
        case Victim.WORST_PRIORITY:
            order = [(s.request(r).priority, s.request(r).arrival, -i, r) for i, r in enumerate(who)]
        case Victim.LATEST_UNPLANNED:
            order = [(s.request(r).arrival, i, 0, r) for i, r in enumerate(who)]
    return max(order)[-1] if order else None


def waiting_key(r: RequestView) -> tuple[int, int, str]:
    """The order of a priority queue. Source: vLLM 0.31.0 v1/request.py, Request.__lt__."""
    return (r.priority, r.arrival, r.id)


def _sorted_index(s: View, request: str) -> int:
    key = waiting_key(s.request(request))
    return sum(waiting_key(s.request(w)) < key for w in s.waiting)


def enqueue_at(s: View, request: str) -> int:
    """Index at which an arrival joins the waiting queue."""
    return _sorted_index(s, request) if s.policy.order is Order.PRIORITY else len(s.waiting)


def requeue_at(s: View, request: str) -> int:
    """Index at which a victim joins the waiting queue."""
    return _sorted_index(s, request) if s.policy.requeue is Requeue.PRIORITY else 0


def next_admitted(s: View) -> str | None:
    """The request that is admitted next, if one is: nobody older and ready may be passed over."""
    ready = (w for w in s.waiting if w not in s.plan.skipped)
    return next(ready, None)


def slot_free(s: View) -> bool:
    """Whether one more request may be admitted, as far as slots go."""
    taken = s.running if s.policy.slots is Slots.RUNNING else s.plan.granted
    return len(taken) < s.limits.max_running


def skip_guard(s: View, request: str) -> str | None:
    """A true reason why a running request gets nothing in this step, or None."""
    r, plan = s.request(request), s.plan
    if request in plan.skipped:
        return plan.skipped[request]
    if plan.spent_running >= s.limits.budget:
        return "budget"
    if s.policy.phase is Phase.PREFILL_FIRST and plan.admitted:
        return "exclusive prefill"
    if s.policy.after_self is AfterSelf.STOP and plan.self_preempted:
        return "stopped"
    if s.policy.slots is Slots.BATCH and len(plan.granted) >= s.limits.max_running:
        return "batch full"
    if r.computed >= min(len(r.tokens), s.limits.max_length - 1):
        return "nothing to compute"
    return None


def hit_limit(s: View, request: str) -> int:
    """The most tokens a prefix hit may cover at admission."""
    known = len(s.request(request).tokens)
    match s.policy.full_hit:
        case FullHit.LEAVE_ONE:
            return known - 1


def oversize(s: View, request: RequestView) -> bool:
    """Whether the request can never be finished: longer than the engine or its pool allows."""
    end = request.prompt + request.max_tokens
    # The last emitted token is never computed: its KV needs no slot.
    return end > s.limits.max_length or any(blocks_for(end - 1, page) > s.total(g) for g, page in enumerate(s.pages))


def patience(policy: Policy, limits: Limits) -> int:
    """K of live/progress, in steps."""
    match policy.progress:
        case Progress.CHUNKED:
            # Between two high-water marks the engine can only refill what preemptions took: at most every running
            # request's whole sequence, one chunk of one of them per step at the least; plus the step in which the
            # last running request preempted itself and the one in which its successor is admitted.
            chunk = min(limits.budget, limits.long_prefill or limits.budget)
            return limits.max_running * blocks_for(limits.max_length, chunk) + 2
        case Progress.EVERY_BATCH:
            # Every batch yields a token per request; a step is empty only when the last running request preempted
            # itself, and the next step refills it at once.
            return 3


def table_pages(tables: Sequence[Sequence[int]], pages: Sequence[int]) -> int:
    """Tokens that fit in a request's tables: the group with least room decides."""
    return min(len(t) * page for t, page in zip(tables, pages, strict=True))
