"""What the knobs of a policy mean: small pure functions over the view. All block counts are blocks of one group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

from preempt_spec.events import Group, Limits
from preempt_spec.policies.policy import (
    AfterPreemption,
    AfterSelf,
    Fence,
    FullHit,
    Gate,
    Hits,
    Idle,
    Lineup,
    Memory,
    Need,
    Order,
    Phase,
    Policy,
    Progress,
    Reads,
    Release,
    Requeue,
    Slots,
    Stale,
    Victim,
)
from preempt_spec.view import HOLE, Fate, Place, RequestView, View


def blocks_for(tokens: int, page: int) -> int:
    """Blocks that hold this many tokens."""
    return -(-tokens // page)


def pages_for(group: Group, tokens: int) -> int:
    """Entries of a request's table that this many tokens take in a group."""
    return min(tokens, 1) if group.kind == "recurrent" else blocks_for(tokens, group.page_size)


def blocks_at_once(group: Group, tokens: int) -> int:
    """Blocks of a group that a request of this many tokens needs at once, at the least: a window moves on."""
    pages = pages_for(group, tokens)
    return min(pages, blocks_for(group.window, group.page_size) + 1) if group.kind == "sliding" else pages


def shared_pages(group: Group, hit: int) -> int:
    """Leading blocks of an admission that a prefix hit brings. A recurrent state is never shared: it is overwritten."""
    return 0 if group.kind == "recurrent" else blocks_for(hit, group.page_size)


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


def lazily_held(s: View, group: int, but: str = "") -> set[int]:
    """Blocks that only waiting requests hold, `but` apart: under a lazy release, whoever needs them takes them back."""
    if s.policy.release is not Release.LAZY:
        return set()
    names = Counter(b for w in s.waiting if w != but for b in s.request(w).tables[group])
    if not names:
        return set()
    shared = s.shared(group)
    return {b for b, n in names.items() if shared.get(b, 1) == n and b != HOLE}


def supply(s: View, group: int) -> int:
    """Blocks that a running request can get without a victim: free ones, and those that wait to be taken back."""
    return s.free(group) + len(lazily_held(s, group))


def room(s: View, group: int) -> int:
    """Free blocks that can be had at once, where findable ones cannot."""
    return s.free(group) - (s.idle(group) if s.policy.idle is Idle.STARVED else 0)


def pressure(s: View, requests: Sequence[str]) -> tuple[int, int]:
    """Blocks that running requests must see free to be granted tokens, and those that are, where it is tightest."""
    if s.policy.need is Need.ONE_FREE:
        return len(requests), min(supply(s, g) for g in range(len(s.groups)))
    needs = [sum(growth(s, r, g) for r in requests) for g in range(len(s.groups))]
    group = max(range(len(needs)), key=lambda g: needs[g] - supply(s, g))
    return needs[group], supply(s, group)


def beneficiaries(s: View, request: str) -> tuple[str, ...]:
    """For whom somebody is preempted where a running request cannot grow; as long as it is for the same, the same."""
    if s.policy.need is not Need.TOGETHER:
        return (request,)
    return s.plan.served if request in s.plan.served else unserved(s)


def makes_room_for_one(policy: Policy) -> bool:
    """Whether a victim is for one request that cannot grow, not for all of them."""
    return policy.need is not Need.TOGETHER and policy.victim is not Victim.LAST_STARVED


def unserved(s: View) -> tuple[str, ...]:
    """Running requests without a grant in this step, in running order."""
    return tuple(r for r in s.running if r not in s.plan.granted and r not in s.plan.pending)


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


def passes_over(policy: Policy) -> bool:
    """Whether a step looks at everybody before it makes room, and passes over who does not fit."""
    return policy.phase in (Phase.DECODE_FIRST, Phase.CHUNKS_FIRST)


def visiting(s: View, first: bool = False) -> tuple[str, ...]:
    """Those who run, in the order in which a step looks at them; whom it admitted comes behind all others.

    `first`: in its first pass, whether or not another one follows.
    """
    if s.policy.victim is Victim.ITSELF_NEWEST_FIRST:
        return tuple(reversed(s.running))
    if not passes_over(s.policy):
        return tuple(s.running)
    decoders_first = s.policy.phase is Phase.DECODE_FIRST
    late = tuple(s.plan.admitted)[0 if first else s.plan.anew :]

    def decodes(r: str) -> bool:
        at, _ = s.plan.granted.get(r, (s.request(r).computed, 0))  # a grant may end its prefill
        return at >= s.request(r).goal

    return tuple(sorted(s.running, key=lambda r: (r in late, r not in late and decodes(r) is not decoders_first)))


def spent_before(s: View, request: str) -> tuple[int, int]:
    """Tokens of the step's budget that are gone when it is `request`'s turn, and the requests that took them."""
    if not passes_over(s.policy):
        return s.plan.spent, len(s.plan.granted)
    order = visiting(s)
    if request not in order:
        return s.plan.spent, len(s.plan.granted)
    before = [s.plan.granted[r][1] for r in order[: order.index(request)] if r in s.plan.granted]
    return sum(before), len(before)


def unvisited(s: View, request: str) -> str | None:
    """Why the pass over those who run ended before it came to `request`, or None if it did come there."""
    tokens, requests = spent_before(s, request)
    if tokens >= s.limits.budget:
        return "budget"
    if s.policy.slots is Slots.BATCH and requests >= s.limits.max_running:
        return "batch full"
    return None if readable(s, request, s.request(request).computed) else "reads"


def readable(s: View, request: str, start: int) -> bool:
    """Whether a step may read what it takes to go on from `start`, behind all that it read before this request."""
    whole = [s.total(g) * group.page_size for g, group in enumerate(s.groups) if group.kind == "full"]
    if s.policy.reads is Reads.ANY or not whole:
        return True
    order = visiting(s)
    before = order[: order.index(request)] if request in order else tuple(s.plan.granted)
    return sum(s.plan.granted[r][0] for r in before if r in s.plan.granted) + max(start, 1) <= min(whole)


def starved(s: View) -> tuple[str, ...]:
    """Who was looked at in this step, got nothing, and still runs. The grants of the step are all made by then."""
    # Whoever starved in a pass that served nobody did so in the order of that pass.
    order = visiting(s, first=not s.plan.granted)
    rest = (r for r in order if r not in s.plan.granted and r not in s.plan.pending)
    return tuple(r for r in rest if unvisited(s, r) is None and not ends(s, r))


def ends(s: View, request: str) -> bool:
    """Whether there is nothing to compute for it until an output is back, or it is over."""
    r = s.request(request)
    return bool(
        (r.placeholders and r.placeholders >= room_for_outputs(s, r))
        or r.computed >= min(len(r.tokens) + r.placeholders, s.limits.max_length - 1)
    )


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
        return who if plan.served or plan.swept else tuple(r for r in who if not fits(s, r))
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


def going_key(r: RequestView) -> tuple[int, int]:
    """The greater, the sooner a request goes. Source: SGLang 0.5.23, ScheduleBatch._get_decode_retraction_order."""
    return (r.prompt - len(r.tokens), r.prompt)


def lined_up(s: View, running: Sequence[str], cause: str) -> tuple[str, ...]:
    """The running queue once somebody was preempted out of it."""
    if cause == "admission" or s.policy.lineup is Lineup.ADMISSION:
        return tuple(running)
    return tuple(sorted(running, key=lambda r: going_key(s.request(r))))


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


def stale_fate(s: View, request: str, cause: str) -> Fate:
    """What becomes of the outputs that fly when a request is preempted."""
    dropped = any(f[request].fate is Fate.DROP for f in s.frames.values() if request in f)
    # Whose outputs were dropped once computes their positions anew: what still flies for them stays dropped (vLLM
    # 0.33.0 v1/core/sched/scheduler.py, _preempt_request).
    if dropped or cause == "reset" or s.policy.stale is Stale.DROP:
        return Fate.DROP
    return Fate.DELIVER


def awaits_output(s: View, request: str) -> bool:
    """Whether a stale output that will be appended still flies: resuming now would compute its position twice."""
    return any(f[request].fate is Fate.DELIVER for f in s.frames.values() if request in f)


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


def adopts(s: View, request: str) -> bool:
    """Whether a waiting request that hits something is admitted even if it does not fit, once it is looked at."""
    open_to_all = s.policy.hits is Hits.ALL and s.limits.budget > s.plan.spent and slot_free(s)
    return open_to_all and s.request(request).place is Place.WAITING and readable(s, request, 0)


def gate_closed(s: View) -> bool:
    """Whether an earlier preemption keeps everybody out."""
    match s.policy.after_preemption:
        case AfterPreemption.CLOSED:
            return len(s.plan.demoted) > len(s.plan.displaced)
        case AfterPreemption.OPEN:
            return False
        case AfterPreemption.UNTIL_FINISH:
            return s.gated


def room_for_outputs(s: View, r: RequestView) -> int:
    """Tokens a request may still emit: what is sampled beyond is cut off."""
    return min(r.prompt + r.max_tokens, s.limits.max_length) - len(r.tokens)


def admits_first(s: View) -> bool:
    """Whether a step looks at those who wait before it looks at those who run. A rule never asks: turns are open."""
    if s.policy.phase is not Phase.TURNS:
        return s.policy.phase is Phase.PREFILL_FIRST
    # As LMDeploy 0.18.0 pytorch/engine/inputs_maker.py, do_prefill_default(), has it, a clock for its counter.
    asked = sum(len(s.request(w).tokens) - s.request(w).computed for w in s.waiting)
    due = s.last_frame % (max(s.limits.lookahead, 1) + 1) == 0
    return due or 2 * len(s.running) < s.limits.max_running or asked >= s.limits.budget


def slot_free(s: View) -> bool:
    """Whether one more request may be admitted, as far as slots go."""
    taken = s.running if s.policy.slots is Slots.RUNNING else s.plan.granted
    return len(taken) < s.limits.max_running


def kept_back(s: View) -> int:
    """Blocks of each group that the reference keeps free at an admission, where a policy leaves open how many."""
    return 1 if s.policy.gate is Gate.CONSERVATIVE and s.running else 0


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
    if s.policy.victim is Victim.LAST_STARVED and (plan.demoted or plan.swept):
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


def confirmed(s: View, request: str) -> int:
    """Computed tokens that no rejection of drafts can take back: those of flying frames apart."""
    dues = (f[request] for f in s.frames.values() if request in f)
    return s.request(request).computed - sum(x.tokens for x in dues if x.fate is Fate.LIVE)


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


def table_room(groups: Sequence[Group], tables: Sequence[Sequence[int]], most: int) -> int:
    """Tokens, at most `most`, that fit in a request's tables: the group with least room decides."""
    return min(
        most if group.kind == "recurrent" and table else len(table) * group.page_size * (group.kind != "recurrent")
        for table, group in zip(tables, groups, strict=True)
    )
