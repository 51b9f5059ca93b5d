"""Who is preempted when somebody does not fit, and who may be passed over instead."""

from __future__ import annotations

from collections.abc import Sequence

from preempt_spec.policies.blocks import swept
from preempt_spec.policies.outputs import room_for_outputs
from preempt_spec.policies.policy import AfterSelf, Fence, Lineup, Phase, Slots, Victim
from preempt_spec.policies.pressure import fits, pressure
from preempt_spec.policies.visits import passes_over, starved, unvisited
from preempt_spec.view import Fate, Place, RequestView, View


def going_key(r: RequestView) -> tuple[int, int]:
    """The greater, the sooner a request goes. Source: SGLang 0.5.23, ScheduleBatch._get_decode_retraction_order."""
    return (r.prompt - len(r.tokens), r.prompt)


def lined_up(s: View, running: Sequence[str], cause: str) -> tuple[str, ...]:
    """The running queue once somebody was preempted out of it."""
    if cause == "admission" or s.policy.lineup is Lineup.ADMISSION:
        return tuple(running)
    return tuple(sorted(running, key=lambda r: going_key(s.request(r))))


def eligible(s: View, requester: str) -> tuple[str, ...]:
    """Who may be preempted for `requester`, in the order in which they are looked at."""
    if s.policy.victim in (Victim.LAST_RUNNING, Victim.WORST_PRIORITY):
        return tuple(s.running)
    if s.policy.victim in (Victim.ITSELF_NEWEST_FIRST, Victim.ITSELF_OLDEST_FIRST):
        # Whoever cannot grow goes; whose turn came earlier was served, or is gone.
        stuck = tuple(r for r in s.running if r not in s.plan.granted and not fits(s, r))
        return stuck or ((requester,) if s.request(requester).place is Place.RUNNING else ())
    if s.policy.victim is Victim.FEWEST_OUTPUTS:
        return tuple(s.running) if len(s.running) > 1 else ()
    plan = s.plan
    if s.policy.victim is Victim.LAST_STARVED:
        # Behind a first victim some may fit by what it gave back, or what was findable: they starved all the same.
        who = starved(s) if len(s.running) > 1 else ()
        return who if plan.served or swept(s) else tuple(r for r in who if not fits(s, r))
    rest = tuple(r for r in s.running if r != requester and r not in plan.granted and r not in plan.pending)
    return rest or ((requester,) if s.request(requester).place is Place.RUNNING else ())


def victim(s: View, requester: str) -> str | None:
    """The victim: arg-max of the policy's total order over the eligible requests; None if nobody is eligible."""
    who = eligible(s, requester)
    match s.policy.victim:
        case Victim.LAST_RUNNING | Victim.LAST_UNPLANNED | Victim.ITSELF_NEWEST_FIRST | Victim.LAST_STARVED:
            return who[-1] if who else None
        case Victim.ITSELF_OLDEST_FIRST:
            return who[0] if who else None
        case Victim.WORST_PRIORITY:
            order = [(s.request(r).priority, s.request(r).arrival, -i, r) for i, r in enumerate(who)]
        case Victim.LATEST_UNPLANNED:
            order = [(s.request(r).arrival, i, 0, r) for i, r in enumerate(who)]
        case Victim.FEWEST_OUTPUTS:
            order = [(*going_key(s.request(r)), i, r) for i, r in enumerate(who)]
    return max(order)[-1] if order else None


def fenced(s: View, request: str) -> bool:
    """Whether a request's blocks could not be used at once if it gave them up now."""
    if s.policy.fence is Fence.NONE or not s.host_extent(0):
        return False
    return any(request in f and f[request].fate is not Fate.GONE for f in s.frames.values())


def held_back(s: View) -> bool:
    """Whether the pass over the running queue ends at a request whose victim would give nothing yet."""
    if s.policy.fence is Fence.NONE or not s.host_extent(0):
        return False
    for r in s.running:
        if r not in s.plan.granted and not fits(s, r):
            would_be = victim(s, r)
            if would_be is not None and fenced(s, would_be):
                return True
    return False


def skip_guard(s: View, request: str) -> str | None:
    """A true reason why a running request gets nothing in this step, or None."""
    r, plan = s.request(request), s.plan
    if request in plan.skipped:
        return plan.skipped[request]
    if s.paused:
        return "paused"
    if passes_over(s.policy):
        if guard := unvisited(s, request):
            return guard
    elif plan.spent_running >= s.limits.budget:
        return "budget"
    if s.policy.phase in (Phase.PREFILL_FIRST, Phase.TURNS) and plan.admitted:
        return "exclusive prefill"
    if s.policy.after_self is AfterSelf.STOP and plan.self_preempted:
        return "stopped"
    if s.policy.slots is Slots.BATCH and len(plan.granted) >= s.limits.max_running and not passes_over(s.policy):
        return "batch full"
    if s.policy.victim is Victim.LAST_STARVED and (plan.demoted or swept(s)):
        need, supply = pressure(s, starved(s))
        if need <= supply or len(s.running) == 1:
            return "room was made for the next step"
    if r.placeholders and r.placeholders >= room_for_outputs(s, r):
        return "its last output flies"
    if r.computed >= min(len(r.tokens) + r.placeholders, s.limits.max_length - 1):
        return "nothing to compute"
    if held_back(s):
        return "a victim flies"
    return None


def excused(s: View, request: str) -> bool:
    """Whether a running request may be passed over: for a guard, or because its next token still flies.

    To plan on an output in flight is an engine's choice (vLLM without async scheduling, in a pipeline, does not); one
    that did so once does.
    """
    r = s.request(request)
    flies = not s.ahead and r.placeholders > 0 and r.computed >= len(r.tokens)
    return flies or skip_guard(s, request) is not None
