"""What running requests need to go on, beside what there is."""

from __future__ import annotations

from collections.abc import Sequence

from preempt_spec.policies.blocks import pages_for, room, supply
from preempt_spec.policies.policy import Idle, Need, Policy, Victim
from preempt_spec.policies.visits import spent_before
from preempt_spec.view import Place, View


def want(s: View, request: str) -> int:
    """Tokens a running request asks for in this step: known, promised or drafted, not computed; within the caps."""
    r = s.request(request)
    lack = len(r.tokens) + r.placeholders + r.drafts - r.computed
    # The last token that may be known is sampled, never computed.
    room = min(lack, s.limits.max_length - 1 - r.computed, s.limits.budget - spent_before(s, request)[0])
    if s.limits.long_prefill and len(s.live()) > 1:
        # vLLM's adaptive threshold never caps below a fair share of the budget (0.31.0 v1/core/sched/scheduler.py).
        room = min(room, max(s.limits.long_prefill, s.limits.budget // len(s.live())))
    return max(room, 0)


def entries(s: View, request: str, end: int, group: int) -> int:
    """Entries that a request's table must have for a grant up to token `end`."""
    r = s.request(request)
    least = pages_for(s.groups[group], end)
    if s.policy.need is not Need.AHEAD:
        return least
    known, had = len(r.tokens), len(r.tables[group])
    if r.place is Place.RUNNING and pages_for(s.groups[group], known + 1) <= had:
        return max(least, had)
    # LMDeploy 0.18.0 pytorch/paging/scheduler.py, schedule_running(): asked for one token more than is known, it
    # allocates prefill_interval more; an admission allocates those anyway.
    return max(least, pages_for(s.groups[group], known + max(s.limits.lookahead, 1)))


def growth(s: View, request: str, group: int) -> int:
    """Blocks of a group that its next grant lacks."""
    r = s.request(request)
    return max(0, entries(s, request, r.computed + want(s, request), group) - len(r.tables[group]))


def pressure(s: View, requests: Sequence[str]) -> tuple[int, int]:
    """Blocks that running requests must see free to be granted tokens, and those that are, where it is tightest."""
    if s.policy.need is Need.ONE_FREE:
        return len(requests), min(supply(s, g) for g in range(len(s.groups)))
    needs = [sum(growth(s, r, g) for r in requests) for g in range(len(s.groups))]
    group = max(range(len(needs)), key=lambda g: needs[g] - supply(s, g))
    return needs[group], supply(s, group)


def unserved(s: View) -> tuple[str, ...]:
    """Running requests without a grant in this step, in running order."""
    return tuple(r for r in s.running if r not in s.plan.granted and r not in s.plan.pending)


def beneficiaries(s: View, request: str) -> tuple[str, ...]:
    """For whom somebody is preempted where a running request cannot grow; as long as it is for the same, the same."""
    if s.policy.need is not Need.TOGETHER:
        return (request,)
    return s.plan.served if request in s.plan.served else unserved(s)


def makes_room_for_one(policy: Policy) -> bool:
    """Whether a victim is for one request that cannot grow, not for all of them."""
    return policy.need is not Need.TOGETHER and policy.victim is not Victim.LAST_STARVED


def squeeze(s: View, request: str) -> tuple[int, int]:
    """The pressure under which a running request is granted tokens: its own, or that of all who are still to be."""
    need, supply = pressure(s, unserved(s) if s.policy.need is Need.TOGETHER else (request,))
    if s.policy.idle is Idle.STARVED and s.limits.caching:
        lacks = [(growth(s, request, g), room(s, g)) for g in range(len(s.groups))]
        return max(lacks, key=lambda x: x[0] - x[1])
    return need, supply


def fits(s: View, request: str) -> bool:
    """Whether a running request may be granted tokens without a victim."""
    need, supply = squeeze(s, request)
    return need <= supply
