"""What a micro-event changes: the pure transition behind `system.apply`. Total: it never asks whether a rule held.

What comes back from flying frames is in `delivery`, what moves between tiers in `transfer`.
"""

from __future__ import annotations

from attrs import evolve

from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.delivery import deliver, disown, promise
from preempt_spec.edit import change, forget, insert, loosened, own, resolved, without
from preempt_spec.memory import Block, Memory
from preempt_spec.policies.displacing import displaced
from preempt_spec.policies.outputs import stale_fate
from preempt_spec.policies.progress import waits
from preempt_spec.policies.queues import enqueue_at, queue_up
from preempt_spec.policies.victims import lined_up
from preempt_spec.state import Plan, Request, State
from preempt_spec.transfer import arrive_before, copy_done, copy_start, evict, load, swap
from preempt_spec.view import HOLE, Cycle, Fate, Place, with_holes


def apply_micro(s: State, m: mi.Micro) -> State:
    """The state after one micro-event."""
    match m:
        case ev.Arrive():
            empty: tuple[tuple[int, ...], ...] = ((),) * len(s.memory)
            new = Request(m.request, len(m.prompt), m.prompt, m.max_tokens, m.priority, m.arrival, m.salt, empty, empty)
            s = evolve(s, requests={**s.requests, m.request: new}, stall=0, cycle=None)
            return evolve(s, waiting=insert(s.waiting, enqueue_at(s, m.request), m.request))
        case ev.Reject():
            return forget(s, m.request)
        case ev.Finish():
            return evolve(forget(_fence(s, m.request, m.until), m.request), gated=False)
        case ev.Abort():
            s = evolve(forget(_fence(s, m.request, m.until), m.request), aborted=(*s.aborted, m.request))
            return evolve(s, gated=s.gated and bool(s.running))
        case mi.ControlDone():
            paused = {"pause": True, "resume": False}.get(m.kind, s.paused)
            s = _forgotten(s) if m.kind == "reset" else s
            gated = s.gated and bool(s.running)
            return evolve(s, stall=0, cycle=None, paused=paused, gated=gated, plan=_idle(s))
        case mi.Begin():
            plan = Plan(m.frame, s.running, published=s.plan.published)
            return evolve(s, last_frame=m.frame, waiting=queue_up(s), plan=plan)
        case mi.Grant():
            return _grant(s, m)
        case ev.Plan():
            s = own(s, m.request, m.blocks)
            plan = evolve(s.plan, pending={**s.plan.pending, m.request: (m.start, m.tokens)})
            return evolve(s, plan=_spend(plan, m.tokens, m.tokens))
        case ev.Unplan():
            pending = {r: g for r, g in s.plan.pending.items() if r != m.request}
            return evolve(s, plan=_spend(evolve(s.plan, pending=pending), -m.tokens, -m.tokens))
        case ev.Demote():
            return _demote(s, m)
        case ev.Release():
            s = loosened(_fence(s, m.request, m.until), m.request)
            empty = ((),) * len(s.memory)
            s = change(s, m.request, tables=empty, sent=empty, computed=m.kept)
            return evolve(s, plan=evolve(s.plan, fenced=m.until is not None))
        case ev.Requeue():
            return _requeue(s, m)
        case ev.Skip():
            return evolve(s, plan=evolve(s.plan, skipped={**s.plan.skipped, m.request: m.guard}))
        case ev.Publish() | ev.Withdraw() | ev.Pin() | ev.Unpin() | ev.Unfence():
            return _label(s, m)
        case ev.Shed():
            table = tuple(HOLE if b in m.blocks else b for b in s.requests[m.request].tables[m.group])
            sent = tuple(HOLE if b in m.blocks else b for b in s.requests[m.request].sent[m.group])
            return change(s, m.request, tables=_at(s, m, "tables", table), sent=_at(s, m, "sent", sent))
        case ev.Exchange():
            instead = dict(zip(m.blocks, m.instead, strict=True))
            table = tuple(instead.get(b, b) for b in s.requests[m.request].tables[m.group])
            return change(s, m.request, tables=_at(s, m, "tables", table))
        case ev.Swap():
            return swap(s, m)
        case ev.Load():
            return load(s, m)
        case ev.Evict():
            return evict(s, m)
        case mi.Dispatch():
            return _dispatch(s, m.frame)
        case mi.Close():
            return _close(s, m)
        case ev.Deliver():
            return deliver(s, m)
        case ev.CopyStart():
            return copy_start(s, m)
        case ev.CopyDone():
            return copy_done(s, m)
        case _:
            return s


def _at(s: State, m: ev.Shed | ev.Exchange, field: str, table: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    tables: tuple[tuple[int, ...], ...] = getattr(s.requests[m.request], field)
    return (*tables[: m.group], table, *tables[m.group + 1 :])


def _forgotten(s: State) -> State:
    """A reset: what nobody holds is nobody's prefix any more. The weights may be others from now on."""
    memory = []
    for g, m in enumerate(s.memory):
        free = s.free_ids(g)
        lost = {b: evolve(x, slots=(None,) * len(x.slots)) for b, x in m.blocks.items() if b in free}
        memory.append(m.having(lost))
    return evolve(s, memory=tuple(memory))


def _idle(s: State) -> Plan:
    """Between steps. What was published meanwhile is still to be looked at when the next step closes."""
    return Plan(s.plan.frame, (), published=s.plan.published)


def _spend(plan: Plan, tokens: int, running: int) -> Plan:
    return evolve(plan, spent=plan.spent + tokens, spent_running=plan.spent_running + running)


def _grant(s: State, m: mi.Grant) -> State:
    r = s.requests[m.request]
    admitted = r.place in (Place.WAITING, Place.SWAPPED, Place.LOADING)
    start = mi.grant_start(s, m)
    s = own(s, m.request, m.blocks)
    plan = evolve(s.plan, granted={**s.plan.granted, m.request: (start, m.tokens)}, served=())
    if m.drafts:
        plan = evolve(plan, drafts={**plan.drafts, m.request: m.drafts})
    plan = _spend(plan, m.tokens, 0 if admitted else m.tokens)
    s = evolve(s, ahead=s.ahead or start + m.tokens - m.drafts > len(r.tokens))
    if not admitted:
        return evolve(s, plan=plan)
    s = change(
        s, m.request, place=Place.RUNNING, computed=start, goal=len(r.tokens), since=(plan.frame, len(plan.admitted))
    )
    restored = (*plan.restored, m.request) if r.place is Place.SWAPPED else plan.restored
    plan = evolve(plan, admitted=(*plan.admitted, m.request), restored=restored)
    s = evolve(s, waiting=without(s.waiting, m.request), swapped=without(s.swapped, m.request))
    return evolve(s, plan=plan, running=(*s.running, m.request))


def _demote(s: State, m: ev.Demote) -> State:
    r = s.requests[m.request]
    fate = stale_fate(s, m.request, m.cause)
    s = disown(s, m.request, fate)
    if fate is Fate.DROP:
        # What it wrote for tokens that are dropped now will never be anybody's prefix.
        s = resolved(s, r, len(r.tokens))
    computed = min(r.computed, len(r.tokens)) if fate is Fate.DROP else r.computed
    s = change(
        s,
        m.request,
        place=Place.LIMBO,
        computed=computed,
        preempted=True,
        incarnation=r.incarnation + 1,
        placeholders=0,
        drafts=0,
    )
    plan = evolve(
        s.plan,
        demoted=(*s.plan.demoted, m.request),
        displaced=(*s.plan.displaced, *displaced(m)),
        served=m.beneficiaries,
        fenced=False,
        self_preempted=s.plan.self_preempted or m.request in m.beneficiaries,
    )
    standing = tuple(a for a in plan.admitted if a != m.request or a in plan.granted)
    plan = _second_pass(evolve(plan, admitted=standing))
    running = lined_up(s, without(s.running, m.request), m.cause)
    return evolve(s, plan=plan, running=running, gated=bool(running), preemptions=s.preemptions + 1)


def _requeue(s: State, m: ev.Requeue) -> State:
    victim = s.requests[m.request].place is not Place.LOADING  # else its load failed: it waits again
    plan = evolve(s.plan, requeued=(*s.plan.requeued, m.request) if victim else s.plan.requeued)
    if m.queue == "swapped":
        at = len(s.swapped) if m.index is None else m.index
        s = change(s, m.request, place=Place.SWAPPED)
        return evolve(s, swapped=insert(s.swapped, at, m.request), plan=plan)
    at = len(s.waiting) if m.index is None else m.index
    s = change(s, m.request, place=Place.WAITING)
    return evolve(s, waiting=insert(s.waiting, at, m.request), plan=plan)


def _fence(s: State, request: str, until: int | None) -> State:
    if until is None:
        return s
    memory = list(s.memory)
    for g, table in enumerate(s.requests[request].tables):
        # Also what others hold: should they give it up first, it is still not free.
        held = {b: memory[g].block(b) for b in table if b != HOLE}
        memory[g] = memory[g].having({b: evolve(x, fence=max(until, x.fence or 0)) for b, x in held.items()})
    return evolve(s, memory=tuple(memory))


def _label(s: State, m: ev.Publish | ev.Withdraw | ev.Pin | ev.Unpin | ev.Unfence) -> State:
    memory = s.memory[m.group]
    new: dict[int, Block] = {}
    published = s.plan.published
    for b in m.blocks:
        block = memory.block(b)
        match m:
            case ev.Publish():
                r = s.requests[m.request]
                table = r.tables[m.group]
                # A page that is not full of known tokens, or not the request's, can never be what it is published as.
                end = (table.index(b) + 1) * memory.page if b in table else 0
                prefix = (r.salt, r.tokens[:end]) if 0 < end <= len(r.tokens) else None
                new[b] = evolve(block, published=prefix)
                published = (*published, (m.group, b))
            case ev.Withdraw():
                new[b] = evolve(block, published=None)
                published = tuple(p for p in published if p != (m.group, b))
            case ev.Pin():
                new[b] = evolve(block, pins=block.pins + 1)
            case ev.Unpin():
                new[b] = evolve(block, pins=max(block.pins - 1, 0))
            case ev.Unfence():
                new[b] = evolve(block, fence=None)
    memories = (*s.memory[: m.group], memory.having(new), *s.memory[m.group + 1 :])
    plan = evolve(s.plan, published=published)
    if isinstance(m, ev.Withdraw):
        plan = _second_pass(evolve(plan, swept=True))
    return evolve(s, memory=memories, plan=plan)


def _second_pass(plan: Plan) -> Plan:
    """Where nobody was served, room is made and everybody is looked at anew, whom a hit alone admitted among them.

    Noted whatever the policy, which alone says whether there is a second pass: so no state hangs on it.
    """
    return plan if plan.granted else evolve(plan, anew=len(plan.admitted))


def _dispatch(s: State, frame: int) -> State:
    """Swaps ordered before the frame are done; every grant's KV is written; computed tokens advance.

    A flying frame is owed a delivery, an empty one is not.
    """
    s = arrive_before(s, frame)
    # A recurrent state is read before it is written.
    torn = tuple(r for r, (start, _) in s.plan.granted.items() if not s.carries(r, start))
    s = evolve(s, plan=evolve(s.plan, torn=torn))
    due = {}
    for request, (start, tokens) in s.plan.granted.items():
        r = s.requests[request]
        end = start + tokens
        due[request] = owed = promise(s, r, end, tokens, s.plan.drafts.get(request, 0))
        memory = tuple(_write(m, r, t, start, end) for m, t in zip(s.memory, r.tables, strict=True))
        again = max(min(end, r.peak) - start, 0)
        s = evolve(s, memory=memory, recomputed=s.recomputed + again)
        drafts = s.limits.drafts if owed.outputs else 0
        s = change(s, request, computed=end, placeholders=r.placeholders + owed.outputs, drafts=drafts)
    return evolve(s, frames={**s.frames, s.plan.frame: due} if due else s.frames)


def _write(m: Memory, r: Request, table: tuple[int, ...], start: int, end: int) -> Memory:
    new: dict[int, Block] = {}
    if m.group.kind == "recurrent":
        return m.having({table[-1]: evolve(m.block(table[-1]), slots=(r.prefix(end),))}) if table else m
    for p in range(start, end):
        i, slot = divmod(p, m.page)
        if i < len(table) and table[i] != HOLE:
            block = new.get(table[i]) or m.block(table[i])
            slots = (*block.slots[:slot], r.prefix(p + 1), *block.slots[slot + 1 :])
            new[table[i]] = evolve(block, slots=slots)
    return m.having(new) if new else m


def _close(s: State, m: mi.Close) -> State:
    for x in m.step.sent:
        had = s.requests[x.request].sent
        told = with_holes(s.groups[x.group], s.memory[x.group].reserved, x.blocks)
        now = told if x.full else (*had[x.group], *told)
        s = change(s, x.request, sent=(*had[: x.group], now, *had[x.group + 1 :]))
    moved = False
    for request, (start, tokens) in s.plan.granted.items():
        r = s.requests[request]
        moved = moved or start + tokens > r.peak
        s = change(s, request, peak=max(r.peak, start + tokens))
    for request in s.plan.admitted:
        s = change(s, request, preempted=False)
    idle = waits(s)
    stall = 0 if moved or not s.requests else s.stall if idle else s.stall + 1
    cycle = None if not stall else s.cycle if idle else _aged(s)
    return evolve(s, stall=stall, cycle=cycle, aborted=(), plan=Plan(s.plan.frame, ()))


def _aged(s: State) -> Cycle:
    if s.cycle is None:
        return Cycle(s.fingerprint(), s.preemptions)
    if s.cycle.age + 1 == s.cycle.until:
        return Cycle(s.fingerprint(), s.preemptions, until=2 * s.cycle.until)
    return evolve(s.cycle, age=s.cycle.age + 1)
