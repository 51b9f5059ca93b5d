"""What a micro-event changes in the mutable shadow: `preempt_spec.transition`, in place.

A Hypothesis property holds this file, the cohort's short cuts and the pure system to the same violations, exercise
counts and state, event by event.
"""

from __future__ import annotations

from collections.abc import Sequence

from preempt_oracle.monitor.plan import Flight, Granted, Plan
from preempt_oracle.monitor.request import Req
from preempt_oracle.monitor.shadow import Shadow
from preempt_oracle.trace import wire
from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.policies.functions import enqueue_at
from preempt_spec.view import Place


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
            s.plan = Plan(m.frame, tuple(s.running), Granted())
        case mi.Dispatch():
            _dispatch(s)
        case mi.Close():
            close(s, m.step.sent)
        case ev.Arrive():
            arrive(s, m)
        case ev.Reject() | ev.Finish():
            forget(s, m.request)
        case ev.Abort():
            forget(s, m.request)
            s.aborted.append(m.request)
        case ev.Deliver():
            _deliver(s, m)
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
        case ev.Publish() | ev.Withdraw() | ev.Pin() | ev.Unpin() | ev.Unfence():
            _label(s, m)
        case mi.ControlDone():
            s.stall = 0
            s.plan = Plan(s.last_frame, ())
        case _:
            pass


def arrive(s: Shadow, m: ev.Arrive) -> None:
    """A new request waits."""
    r = Req(s, m.request, m.prompt, len(s.memory))
    r.max_tokens, r.priority, r.arrival, r.salt = m.max_tokens, m.priority, m.arrival, m.salt
    s.requests[m.request] = r
    s.stall = 0
    s.waiting.insert(enqueue_at(s, m.request), m.request)


def forget(s: Shadow, request: str) -> None:
    """The request is over: nothing is kept of it but what its blocks hold."""
    r = s.requests.pop(request)
    s.leave(r)
    release(s, r, None)
    s.epoch += 1
    while request in s.waiting:
        s.waiting.remove(request)
    s.stall = 0


def release(s: Shadow, r: Req, until: int | None) -> None:
    """All its blocks go back, behind a fence if `until` names a frame."""
    s.melt(r)
    for g, m in enumerate(s.memory):
        alone = [b for b in r.tables[g] if m.holders(b) == 1] if until is not None else ()
        m.give_all(r.tables[g], r)
        for b in alone:
            m.fence(b, until or 0)
        r.tables[g] = []
    r.apart = None
    r.base = r.noted = 0
    r.suspect, r.plain = False, True


def own(s: Shadow, r: Req, blocks: Sequence[Sequence[int]], hit: int = 0) -> None:
    """Blocks join its tables; those behind the hit are its own from now on."""
    for g, new in enumerate(blocks):
        if new:
            r.split()
            m = s.memory[g]
            shared = -(-hit // m.page)
            for b in new[:shared]:
                _look_at(s, m.owner[b], g, b)
                m.take(b)
            for b in new[shared:]:
                if m.refs[b]:
                    _crowd(s, g, b)
            m.take_all(new[shared:], r)
            r.tables[g].extend(new)


def _look_at(s: Shadow, owner: Req | None, g: int, b: int) -> None:
    """Somebody else reads a block: its owner, if it still writes there, is followed token by token from now on."""
    if owner is not None and owner.steady:
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
    admitted = r.place is Place.WAITING
    start = mi.grant_start(s, m)
    own(s, r, m.blocks, (m.hit or 0) if admitted else 0)
    enter(s, r, start, m.tokens)


def enter(s: Shadow, r: Req, start: int, tokens: int) -> None:
    """A grant enters the plan; who waited runs."""
    plan, request = s.plan, r.id
    plan.granted.enter(request, start, tokens)
    plan.served = ()
    plan.spent += tokens
    if r.place is not Place.WAITING:
        plan.spent_running += tokens
        return
    r.place = Place.RUNNING
    s.resumes += r.preempted
    r.base = start
    r.plain = not start or all(start % page == 0 for page in s.pages)
    plan.admitted += (request,)
    while request in s.waiting:
        s.waiting.remove(request)
    s.running.append(request)
    s.rows.append(r)


def demote(s: Shadow, m: ev.Demote | wire.Demote) -> None:
    """A running request is a victim from now on."""
    r, plan = s.requests[m.request], s.plan
    s.leave(r)
    r.place = Place.LIMBO
    s.preemptions += 1
    r.preempted = True
    r.incarnation += 1
    plan.demoted += (m.request,)
    plan.served = m.beneficiaries
    plan.fenced = False
    plan.self_preempted = plan.self_preempted or m.request in m.beneficiaries


def give_back(s: Shadow, m: ev.Release | wire.Release) -> None:
    """A victim's blocks go back."""
    release(s, s.requests[m.request], m.until)
    s.plan.fenced = m.until is not None


def requeue(s: Shadow, m: ev.Requeue | wire.Requeue) -> None:
    """A victim waits."""
    r = s.requests[m.request]
    s.odd = s.odd or r.place is not Place.LIMBO
    r.place = Place.WAITING
    s.waiting.insert(len(s.waiting) if m.index is None else m.index, m.request)
    s.plan.requeued += (m.request,)


def _label(s: Shadow, m: ev.Publish | ev.Withdraw | ev.Pin | ev.Unpin | ev.Unfence) -> None:
    memory = s.memory[m.group]
    for b in m.blocks:
        match m:
            case ev.Publish():
                r = s.requests[m.request]
                table = r.tables[m.group]
                end = (table.index(b) + 1) * memory.page if b in table else 0
                memory.published[b] = (r.tokens, r.salt, end) if 0 < end <= len(r.tokens) else None
                s.plan.published += ((m.group, b),)
            case ev.Withdraw():
                memory.published.pop(b, None)
                s.plan.published = tuple(p for p in s.plan.published if p != (m.group, b))
            case ev.Pin():
                memory.pin(b)
            case ev.Unpin():
                memory.unpin(b)
            case ev.Unfence():
                memory.unfence(b)


def _dispatch(s: Shadow) -> None:
    ends = {}
    for request, (start, tokens) in s.plan.granted.items():
        r = s.requests[request]
        s.melt(r)
        end = start + tokens
        s.write(r, start, end)
        r.base = end
        ends[request] = end == len(r.tokens)
    if ends:
        s.frames[s.plan.frame] = Flight(tuple(ends), ends)


def close(s: Shadow, sent: Sequence[ev.Sent]) -> None:
    """The step is over: the worker's tables, the high-water marks, the stall counter."""
    tell(s, sent)
    moved = False
    for request, (start, tokens) in s.plan.granted.items():
        r = s.requests[request]
        moved = moved or start + tokens > r.peak
        r.set_peak(start + tokens)
    settle_step(s, moved)


def tell(s: Shadow, sent: Sequence[ev.Sent | wire.Sent]) -> None:
    """The worker is told of tables."""
    for x in sent:
        r = s.requests[x.request]
        table = r.split()[x.group]
        if x.full:
            table.clear()
        table.extend(x.blocks)
        if r.apart == r.tables:
            r.apart = None


def settle_step(s: Shadow, moved: bool) -> None:
    """What lasted for one step ends with it."""
    for request in s.plan.admitted:
        s.requests[request].preempted = False
    s.stall = 0 if moved or not s.requests else s.stall + 1
    s.aborted.clear()
    s.plan = Plan(s.plan.frame, ())


def _deliver(s: Shadow, m: ev.Deliver) -> None:
    for i, request in enumerate(m.requests):
        delivered = m.disposition is None or m.disposition[i] == "delivered"
        r = s.requests.get(request)
        if r is not None and m.tokens[i] and delivered:
            s.melt(r)
            r.tokens.extend(m.tokens[i])
            s.stall = 0
    del s.frames[m.frame]
    rejoin(s, m.requests)


def rejoin(s: Shadow, requests: Sequence[str]) -> None:
    """Who decodes steadily again goes back into the cohort."""
    if len(s.memory) > 1:
        return
    for request in requests:
        r = s.requests.get(request)
        if r is not None and not r.steady and r.place is Place.RUNNING and r.plain and not r.suspect:
            m = s.memory[0]
            room = len(r.tables[0]) * m.page
            tail = r.tables[0][r.base // m.page] if r.base < room else None
            if len(r.tokens) == r.base + 1 and room >= r.base and (tail is None or m.refs[tail] == 1):
                s.join(r)
