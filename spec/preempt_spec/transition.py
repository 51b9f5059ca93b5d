"""What a micro-event changes: the pure transition behind `system.apply`. Total: it never asks whether a rule held."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.policies.functions import enqueue_at
from preempt_spec.state import Block, Memory, Plan, Request, State
from preempt_spec.view import Place


def apply_micro(s: State, m: mi.Micro) -> State:
    """The state after one micro-event."""
    match m:
        case ev.Arrive():
            empty: tuple[tuple[int, ...], ...] = ((),) * len(s.memory)
            new = Request(m.request, len(m.prompt), m.prompt, m.max_tokens, m.priority, m.arrival, m.salt, empty, empty)
            s = evolve(s, requests={**s.requests, m.request: new}, stall=0)
            return evolve(s, waiting=_insert(s.waiting, enqueue_at(s, m.request), m.request))
        case ev.Reject() | ev.Finish():
            return _forget(s, m.request)
        case ev.Abort():
            return evolve(_forget(s, m.request), aborted=(*s.aborted, m.request))
        case mi.ControlDone():
            return evolve(s, stall=0, plan=Plan(s.last_frame, ()))
        case mi.Begin():
            return evolve(s, last_frame=m.frame, plan=Plan(m.frame, s.running))
        case mi.Grant():
            return _grant(s, m)
        case ev.Plan():
            s = _own(s, m.request, m.blocks)
            plan = evolve(s.plan, pending={**s.plan.pending, m.request: (m.start, m.tokens)})
            return evolve(s, plan=_spend(plan, m.tokens, m.tokens))
        case ev.Unplan():
            pending = {r: g for r, g in s.plan.pending.items() if r != m.request}
            return evolve(s, plan=_spend(evolve(s.plan, pending=pending), -m.tokens, -m.tokens))
        case ev.Demote():
            return _demote(s, m)
        case ev.Release():
            s = _fence(s, m) if m.until is not None else s
            empty = ((),) * len(s.memory)
            s = _with(s, m.request, tables=empty, sent=empty, computed=0)
            return evolve(s, plan=evolve(s.plan, fenced=m.until is not None))
        case ev.Requeue():
            at = len(s.waiting) if m.index is None else m.index
            s = _with(s, m.request, place=Place.WAITING)
            waiting = _insert(s.waiting, at, m.request)
            return evolve(s, waiting=waiting, plan=evolve(s.plan, requeued=(*s.plan.requeued, m.request)))
        case ev.Skip():
            return evolve(s, plan=evolve(s.plan, skipped={**s.plan.skipped, m.request: m.guard}))
        case ev.Publish() | ev.Withdraw() | ev.Pin() | ev.Unpin() | ev.Unfence():
            return _label(s, m)
        case mi.Dispatch():
            return _dispatch(s)
        case mi.Close():
            return _close(s, m)
        case ev.Deliver():
            return _deliver(s, m)
        case _:
            return s


def _with(s: State, request: str, **change: Any) -> State:
    return evolve(s, requests={**s.requests, request: evolve(s.requests[request], **change)})


def _without(queue: tuple[str, ...], request: str) -> tuple[str, ...]:
    return tuple(r for r in queue if r != request)


def _insert(queue: tuple[str, ...], at: int, request: str) -> tuple[str, ...]:
    return (*queue[:at], request, *queue[at:])


def _forget(s: State, request: str) -> State:
    """The request is over: nothing is kept of it but what its blocks hold."""
    requests = {r: x for r, x in s.requests.items() if r != request}
    return evolve(
        s, requests=requests, running=_without(s.running, request), waiting=_without(s.waiting, request), stall=0
    )


def _own(s: State, request: str, blocks: tuple[tuple[int, ...], ...]) -> State:
    if not any(blocks):
        return s
    tables = tuple((*t, *new) for t, new in zip(s.requests[request].tables, blocks, strict=True))
    return _with(s, request, tables=tables)


def _spend(plan: Plan, tokens: int, running: int) -> Plan:
    return evolve(plan, spent=plan.spent + tokens, spent_running=plan.spent_running + running)


def _grant(s: State, m: mi.Grant) -> State:
    r = s.requests[m.request]
    admitted = r.place is Place.WAITING
    start = mi.grant_start(s, m)
    s = _own(s, m.request, m.blocks)
    plan = evolve(s.plan, granted={**s.plan.granted, m.request: (start, m.tokens)}, served=())
    plan = _spend(plan, m.tokens, 0 if admitted else m.tokens)
    if not admitted:
        return evolve(s, plan=plan)
    s = _with(s, m.request, place=Place.RUNNING, computed=start)
    plan = evolve(plan, admitted=(*plan.admitted, m.request))
    return evolve(s, plan=plan, running=(*s.running, m.request), waiting=_without(s.waiting, m.request))


def _demote(s: State, m: ev.Demote) -> State:
    r = s.requests[m.request]
    s = _with(s, m.request, place=Place.LIMBO, preempted=True, incarnation=r.incarnation + 1)
    plan = evolve(
        s.plan,
        demoted=(*s.plan.demoted, m.request),
        served=m.beneficiaries,
        fenced=False,
        self_preempted=s.plan.self_preempted or m.request in m.beneficiaries,
    )
    return evolve(s, plan=plan, running=_without(s.running, m.request))


def _fence(s: State, m: ev.Release) -> State:
    memory = list(s.memory)
    for g, table in enumerate(s.requests[m.request].tables):
        alone = [b for b in table if b not in s.shared(g)]
        memory[g] = memory[g].having({b: evolve(memory[g].block(b), fence=m.until) for b in alone})
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
                new[b] = evolve(block, published=r.prefix(end) if 0 < end <= len(r.tokens) else None)
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
    return evolve(s, memory=memories, plan=evolve(s.plan, published=published))


def _dispatch(s: State) -> State:
    """Every grant's KV is written; computed tokens advance. A flying frame is owed a delivery, an empty one is not."""
    due = {}
    for request, (start, tokens) in s.plan.granted.items():
        r = s.requests[request]
        end = start + tokens
        memory = tuple(_write(m, r, t, start, end) for m, t in zip(s.memory, r.tables, strict=True))
        s = _with(evolve(s, memory=memory), request, computed=end)
        due[request] = end == len(r.tokens)
    return evolve(s, frames={**s.frames, s.plan.frame: due} if due else s.frames)


def _write(m: Memory, r: Request, table: tuple[int, ...], start: int, end: int) -> Memory:
    new: dict[int, Block] = {}
    for p in range(start, end):
        i, slot = divmod(p, m.page)
        if i < len(table):
            block = new.get(table[i]) or m.block(table[i])
            slots = (*block.slots[:slot], r.prefix(p + 1), *block.slots[slot + 1 :])
            new[table[i]] = evolve(block, slots=slots)
    return m.having(new) if new else m


def _close(s: State, m: mi.Close) -> State:
    for x in m.step.sent:
        had = s.requests[x.request].sent
        now = x.blocks if x.full else (*had[x.group], *x.blocks)
        s = _with(s, x.request, sent=(*had[: x.group], now, *had[x.group + 1 :]))
    moved = False
    for request, (start, tokens) in s.plan.granted.items():
        r = s.requests[request]
        moved = moved or start + tokens > r.peak
        s = _with(s, request, peak=max(r.peak, start + tokens))
    for request in s.plan.admitted:
        s = _with(s, request, preempted=False)
    stall = 0 if moved or not s.requests else s.stall + 1
    return evolve(s, stall=stall, aborted=(), plan=Plan(s.plan.frame, ()))


def _deliver(s: State, m: ev.Deliver) -> State:
    for i, request in enumerate(m.requests):
        state = m.disposition[i] if m.disposition is not None else "delivered"
        if request in s.requests and m.tokens[i] and state == "delivered":
            s = evolve(_with(s, request, tokens=s.requests[request].tokens + m.tokens[i]), stall=0)
    return evolve(s, frames={f: due for f, due in s.frames.items() if f != m.frame})
