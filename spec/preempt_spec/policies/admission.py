"""The gates of an admission."""

from __future__ import annotations

from preempt_spec.policies.blocks import blocks_at_once, blocks_for, pages_for, room
from preempt_spec.policies.policy import AfterPreemption, FullHit, Gate, Hits, Slots
from preempt_spec.policies.queues import next_admitted, taking_turns
from preempt_spec.policies.visits import passes_over, readable
from preempt_spec.view import Place, RequestView, View


def slot_free(s: View) -> bool:
    """Whether one more request may be admitted, as far as slots go."""
    taken = s.running if s.policy.slots is Slots.RUNNING else s.plan.granted
    return len(taken) < s.limits.max_running


def gate_closed(s: View) -> bool:
    """Whether an earlier preemption keeps everybody out."""
    match s.policy.after_preemption:
        case AfterPreemption.CLOSED:
            return len(s.plan.demoted) > len(s.plan.displaced)
        case AfterPreemption.OPEN:
            return False
        case AfterPreemption.UNTIL_FINISH:
            return s.gated


def kept_back(s: View) -> int:
    """Blocks of each group that the reference keeps free at an admission, where a policy leaves open how many."""
    return 1 if s.policy.gate is Gate.CONSERVATIVE and s.running else 0


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
    return end > s.limits.max_length or any(
        blocks_at_once(group, end - 1) > s.total(g) for g, group in enumerate(s.groups)
    )


def surely_fits(s: View, request: str) -> bool:
    """Whether a waiting request's first tokens fit, however little of its prefix the engine finds."""
    r, limits = s.request(request), s.limits
    known, left = len(r.tokens), s.limits.budget - s.plan.spent
    lack = known - r.computed
    tokens = min(lack, left, limits.long_prefill or lack) if limits.chunked else lack
    if tokens < 1 or tokens > left:
        return False
    end = known if limits.whole_fit else r.computed + tokens
    mark = limits.watermark if s.running else 0
    for g, group in enumerate(s.groups):
        # Findable pages that nobody holds are free until they are hit.
        idle = blocks_for(s.best_hit(request), group.page_size) if limits.caching else 0
        need = max(blocks_at_once(group, end), pages_for(group, r.computed + tokens))
        if need - len(r.tables[g]) + idle + mark > room(s, g):
            return False
    return readable(s, request, max(r.computed, s.best_hit(request) if limits.caching else 0))


def overtaken(s: View, request: str) -> str | None:
    """The first that had to be admitted before `request`; None: nobody had to."""
    if not passes_over(s.policy):
        first = next_admitted(s)
        return None if first == request else str(first)
    turns = taking_turns(s)
    older = turns[: turns.index(request)] if request in turns else ()
    if s.plan.admitted:  # whose turn it is among both queues is not told any more by what is left of them
        queue = s.swapped if request in s.swapped else s.waiting
        older = tuple(w for w in older if w in queue)
    return next((w for w in older if surely_fits(s, w)), None)


def adopts(s: View, request: str) -> bool:
    """Whether a waiting request that hits something is admitted even if it does not fit, once it is looked at."""
    open_to_all = s.policy.hits is Hits.ALL and s.limits.budget > s.plan.spent and slot_free(s)
    # Not whom this step preempted: it would hit again what it gave up, starve again, and so on.
    waits = s.request(request).place is Place.WAITING and request not in s.plan.demoted
    return open_to_all and waits and readable(s, request, 0)
