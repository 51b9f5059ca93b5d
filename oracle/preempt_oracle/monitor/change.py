"""What a micro-event changes in the mutable shadow: `preempt_spec.transition`, in place.

What flying frames bring is in `flying`, what moves between tiers in `transfer`. A Hypothesis property holds these
files, the cohort's short cuts and the pure system to the same violations, exercise counts and state, event by event.
"""

from __future__ import annotations

from collections.abc import Sequence

from preempt_oracle.monitor.ends import close
from preempt_oracle.monitor.flying import deliver, dispatch, loosen, over, stale
from preempt_oracle.monitor.plan import Granted, Plan
from preempt_oracle.monitor.request import Req
from preempt_oracle.monitor.shadow import Shadow
from preempt_oracle.monitor.transfer import copy_done, copy_start, evict, swap
from preempt_oracle.trace import wire
from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.policies.blocks import shared_pages
from preempt_spec.policies.displacing import displaced
from preempt_spec.policies.policy import Order
from preempt_spec.policies.queues import enqueue_at, queue_up
from preempt_spec.policies.victims import lined_up
from preempt_spec.view import HOLE, Place, with_holes


def change(s: Shadow, m: mi.Micro) -> None:
    """Apply one micro-event."""
    match m:
        case mi.Grant():
            _grant(s, m)
        case ev.Demote():
            demote(s, m)
        case ev.Release():
            give_back(s, m)
        case ev.Requeue():
            requeue(s, m)
        case mi.Begin():
            s.last_frame = m.frame
            line_up_waiting(s)
            s.plan = Plan(m.frame, tuple(s.running), Granted(), s.plan.published)
        case mi.Dispatch():
            dispatch(s, m.frame)
        case mi.Close():
            close(s, m.step.sent)
        case ev.Arrive():
            arrive(s, m)
        case ev.Reject():
            forget(s, m.request, None)
        case ev.Finish():
            forget(s, m.request, m.until)
            s.gated = False
        case ev.Abort():
            forget(s, m.request, m.until)
            s.aborted.append(m.request)
            s.gated = s.gated and bool(s.running)
        case ev.Deliver():
            deliver(s, m)
        case ev.Plan():
            own(s, s.requests[m.request], m.blocks)
            s.plan.pending = {**s.plan.pending, m.request: (m.start, m.tokens)}
            s.plan.spent += m.tokens
            s.plan.spent_running += m.tokens
        case ev.Unplan():
            s.plan.pending = {r: grant for r, grant in s.plan.pending.items() if r != m.request}
            s.plan.spent -= m.tokens
            s.plan.spent_running -= m.tokens
        case ev.Skip():
            s.plan.skipped = {**s.plan.skipped, m.request: m.guard}
        case ev.Publish():
            publish(s, m)
        case ev.Withdraw():
            withdraw(s, m)
        case ev.Pin() | ev.Unpin() | ev.Unfence():
            _label(s, m)
        case ev.Shed():
            _shed(s, m)
        case ev.Exchange():
            _exchange(s, m)
        case ev.Load():
            _load(s, m)
        case ev.Swap():
            swap(s, m)
        case ev.Evict():
            evict(s, m)
        case ev.CopyStart():
            copy_start(s, m)
        case ev.CopyDone():
            copy_done(s, m)
        case mi.ControlDone():
            s.stall, s.cycle = 0, None
            if m.kind == "reset":
                _forgotten(s)
            s.gated = s.gated and bool(s.running)
            s.paused = {"pause": True, "resume": False}.get(m.kind, s.paused)
            s.plan = Plan(s.plan.frame, (), None, s.plan.published)
        case _:
            pass


def line_up_waiting(s: Shadow) -> None:
    """A step begins: those who wait stand as the policy has it."""
    if s.policy.order is Order.PRIORITY_EACH_STEP:
        s.waiting[:] = queue_up(s)


def arrive(s: Shadow, m: ev.Arrive) -> None:
    """A new request waits."""
    r = Req(s, m.request, m.prompt, len(s.memory))
    r.max_tokens, r.priority, r.arrival, r.salt = m.max_tokens, m.priority, m.arrival, m.salt
    r.limit = min(r.prompt + r.max_tokens, s.limits.max_length)
    s.requests[m.request] = r
    s.stall, s.cycle = 0, None
    s.waiting.insert(enqueue_at(s, m.request), m.request)


def forget(s: Shadow, request: str, until: int | None) -> None:
    """The request is over: nothing is kept of it but what its blocks hold."""
    r = s.requests.pop(request)
    s.leave(r)
    release(s, r, until, 0)
    over(s, request)
    for queue in (s.waiting, s.swapped):
        while request in queue:
            queue.remove(request)
    s.stall, s.cycle = 0, None


def release(s: Shadow, r: Req, until: int | None, kept: int) -> None:
    """All its blocks go back, behind a fence if `until` names a frame; `kept` tokens count as computed still."""
    s.melt(r)
    if s.hosts:  # else nothing could fill a block that nobody gave to a frame
        loosen(s, r)
    for g, m in enumerate(s.memory):
        table = r.tables[g]
        if HOLE in table:
            table = [b for b in table if b != HOLE]
        m.give_all(table, r)
        for b in table if until is not None else ():
            m.fence(b, max(until or 0, m.fences.get(b, 0)))
        r.tables[g] = []
    r.apart = None
    r.base = r.noted = kept
    r.suspect, r.plain, r.astray = False, True, True


def own(s: Shadow, r: Req, blocks: Sequence[Sequence[int]], hit: int = 0) -> None:
    """Blocks join its tables; those behind the hit are its own from now on."""
    for g, new in enumerate(blocks):
        if new:
            r.split()
            m = s.memory[g]
            if m.kind == "sliding":
                new = with_holes(m.group, m.reserved, new)
            shared = shared_pages(m.group, hit)
            fresh = new[shared:]
            for b in new[:shared]:
                if b != HOLE:
                    owner = m.owner[b]
                    if owner is not None and owner.steady:
                        _look_at(s, owner, g, b)
                    m.take(b)
            if m.kind == "sliding":
                fresh = [b for b in fresh if b != HOLE]
            for b in fresh:
                if m.refs[b]:
                    _crowd(s, g, b)
            m.take_all(fresh, r)
            r.tables[g].extend(new)


def _look_at(s: Shadow, owner: Req, g: int, b: int) -> None:
    """Somebody else reads a block: its owner, if it still writes there, is followed token by token from now on."""
    at = owner.computed // s.pages[g]
    s.settle(owner)
    if at < len(owner.tables[g]) and owner.tables[g][at] == b:
        s.melt(owner)
        owner.plain = False


def _crowd(s: Shadow, g: int, b: int) -> None:
    """A block is given afresh while others hold it: whatever they wrote comes before what the new owner writes."""
    for other in s.requests.values():
        if b in other.tables[g]:
            s.melt(other)
            other.plain = False


def _grant(s: Shadow, m: mi.Grant) -> None:
    r = s.requests[m.request]
    s.melt(r)
    start = mi.grant_start(s, m)
    own(s, r, m.blocks, (m.hit or 0) if r.place is not Place.RUNNING else 0)
    s.ahead = s.ahead or start + m.tokens - m.drafts > len(r.tokens)
    if m.drafts:
        s.plan.drafts = {**s.plan.drafts, m.request: m.drafts}
    enter(s, r, start, m.tokens)


def enter(s: Shadow, r: Req, start: int, tokens: int) -> None:
    """A grant enters the plan; who waited, was swapped or loading, runs."""
    plan, request = s.plan, r.id
    plan.granted.enter(request, start, tokens)
    plan.served = ()
    plan.spent += tokens
    if r.place not in (Place.WAITING, Place.SWAPPED, Place.LOADING):
        plan.spent_running += tokens
        return
    if r.place is Place.SWAPPED:
        plan.restored += (request,)
    r.place = Place.RUNNING
    r.goal = len(r.tokens)
    r.since = (plan.frame, len(plan.admitted))
    s.resumes += r.preempted
    r.base = start
    r.plain = not start or all(start % page == 0 for page in s.pages)
    plan.admitted += (request,)
    for queue in (s.waiting, s.swapped):
        while request in queue:
            queue.remove(request)
    s.running.append(request)
    s.rows.append(r)


def demote(s: Shadow, m: ev.Demote | wire.Demote) -> None:
    """A running request is a victim from now on."""
    r, plan = s.requests[m.request], s.plan
    s.leave(r)
    s.line_up(lined_up(s, s.running, m.cause))
    stale(s, r, m.cause)
    r.place = Place.LIMBO
    s.preemptions += 1
    s.gated = bool(s.running)
    r.preempted = True
    if m.request in plan.admitted and m.request not in plan.granted:
        plan.admitted = tuple([a for a in plan.admitted if a != m.request])
    _second_pass(plan)
    plan.demoted += (m.request,)
    plan.displaced += displaced(m)
    plan.served = m.beneficiaries
    plan.fenced = False
    plan.self_preempted = plan.self_preempted or m.request in m.beneficiaries


def _second_pass(plan: Plan) -> None:
    """Where nobody was served, room is made and everybody is looked at anew, whom a hit alone admitted among them."""
    if not plan.granted:
        plan.anew = len(plan.admitted)


def give_back(s: Shadow, m: ev.Release | wire.Release) -> None:
    """A victim's blocks go back."""
    release(s, s.requests[m.request], m.until, m.kept)
    s.plan.fenced = m.until is not None


def requeue(s: Shadow, m: ev.Requeue | wire.Requeue) -> None:
    """A victim waits, or is swapped."""
    r = s.requests[m.request]
    s.odd = s.odd or r.place not in (Place.LIMBO, Place.LOADING)
    if r.place is not Place.LOADING:  # else its load failed: it waits again
        s.plan.requeued += (m.request,)
    queue, r.place = (s.swapped, Place.SWAPPED) if m.queue == "swapped" else (s.waiting, Place.WAITING)
    queue.insert(len(queue) if m.index is None else m.index, m.request)


def publish(s: Shadow, m: ev.Publish | wire.Publish) -> None:
    """Blocks are findable as pages of the request, if they are full of known tokens."""
    memory, r = s.memory[m.group], s.requests[m.request]
    table = r.tables[m.group]
    for b in m.blocks:
        end = (table.index(b) + 1) * memory.page if b in table else 0
        memory.published[b] = (r.tokens, r.salt, end) if 0 < end <= len(r.tokens) else None
    s.plan.published += tuple([(m.group, b) for b in m.blocks])


def withdraw(s: Shadow, m: ev.Withdraw | wire.Withdraw) -> None:
    """Blocks are not findable any more."""
    published = s.memory[m.group].published
    published.update(dict.fromkeys(m.blocks))
    s.plan.swept = True
    _second_pass(s.plan)
    if s.plan.published:
        gone = {(m.group, b) for b in m.blocks}
        if not gone.isdisjoint(s.plan.published):
            s.plan.published = tuple([p for p in s.plan.published if p not in gone])


def _label(s: Shadow, m: ev.Pin | ev.Unpin | ev.Unfence) -> None:
    memory = s.memory[m.group]
    for b in m.blocks:
        match m:
            case ev.Pin():
                memory.pin(b)
            case ev.Unpin():
                memory.unpin(b)
            case ev.Unfence():
                memory.unfence(b)


def _shed(s: Shadow, m: ev.Shed) -> None:
    r, memory = s.requests[m.request], s.memory[m.group]
    s.melt(r)
    r.split()
    gone = [b for b in r.tables[m.group] if b in m.blocks and b != HOLE]
    memory.give_all(gone, r)
    r.astray = True
    for tables in (r.tables, r.split()):
        tables[m.group] = [HOLE if b in m.blocks else b for b in tables[m.group]]
    r.rejoin()


def _exchange(s: Shadow, m: ev.Exchange) -> None:
    r, memory, instead = s.requests[m.request], s.memory[m.group], dict(zip(m.blocks, m.instead, strict=True))
    s.doubt(r)  # what it attends is looked at
    r.split()
    # It may write where others read: from now on it is looked at slot by slot.
    r.astray, r.plain = True, False
    table = [b for b in r.tables[m.group] if b != HOLE]
    for b in [instead[b] for b in table if b in instead]:
        owner = memory.owner[b]
        if owner is not None and owner.steady:
            _look_at(s, owner, m.group, b)
        memory.take(b)
    memory.give_all([b for b in table if b in instead], r)
    r.tables[m.group] = [instead.get(b, b) for b in r.tables[m.group]]
    r.rejoin()


def _load(s: Shadow, m: ev.Load) -> None:
    r = s.requests[m.request]
    own(s, r, m.blocks, m.hit)
    r.place, r.base = Place.LOADING, m.computed
    while m.request in s.waiting:
        s.waiting.remove(m.request)
    if m.runs:
        r.place, r.goal = Place.RUNNING, len(r.tokens)
        s.resumes += r.preempted
        r.plain = all(m.computed % page == 0 for page in s.pages)
        s.plan.admitted += (m.request,)
        s.running.append(m.request)
        s.rows.append(r)
        s.doubt(r)  # what it attends is looked at


def _forgotten(s: Shadow) -> None:
    """A reset: what nobody holds is nobody's prefix any more."""
    for m in s.memory:
        for b in m.free_ids():
            m.put(b, ())
