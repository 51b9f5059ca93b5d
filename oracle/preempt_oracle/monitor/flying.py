"""What flying frames owe, and what becomes of it: `preempt_spec.delivery`, in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from preempt_oracle.monitor.content import cut
from preempt_oracle.monitor.flight import Flight
from preempt_oracle.monitor.request import Req
from preempt_oracle.monitor.shadow import Shadow
from preempt_oracle.monitor.transfer import arrive_before
from preempt_spec import delivery
from preempt_spec import events as ev
from preempt_spec.policies.outputs import stale_fate
from preempt_spec.state import State
from preempt_spec.view import HOLE, Due, Fate, Place


def promise(s: Shadow, r: Req, end: int, tokens: int, drafts: int) -> Due:
    """What a grant up to `end` will bring: `delivery.promise`."""
    known, after = len(r.tokens) + r.placeholders, None
    if r.placeholders:
        for f in reversed(s.frames):
            due = s.frames[f].get(r.id)
            if due is not None and due.fate is Fate.LIVE and due.outputs:
                after = f
                break
    return Due(tokens, known, 1 + drafts if end - drafts == known else 0, after)


def stale(s: Shadow, r: Req, cause: str) -> None:
    """A victim's outputs in flight touch nothing but its stream any more, if that."""
    fate = stale_fate(s, r.id, cause)
    for flight in s.frames.values():
        flight.fated(r.id, fate)
    if fate is Fate.DROP:
        if r.reach > len(r.tokens):
            # What it wrote ahead is nobody's prefix: it stands in a list that grows no more.
            r.tokens, r.reach = [*r.tokens], 0
        r.base = min(r.base, len(r.tokens))
    r.promised(-r.placeholders)
    r.drafts = 0


def over(s: Shadow, request: str) -> None:
    """What frames still bring to a request that is over is dropped."""
    for flight in s.frames.values():
        flight.fated(request, Fate.GONE)


def loosen(s: Shadow, r: Req) -> None:
    """Blocks it gives up are still written by the latest frame that flies for it."""
    flying = [f for f, flight in s.frames.items() if r.id in flight and flight[r.id].fate is not Fate.GONE]
    if flying:
        latest = max(flying)
        s.loose.update({(g, b): latest for g, table in enumerate(r.tables) for b in table if b != HOLE})


def tighten(s: Shadow, frame: int) -> None:
    """What only this frame still wrote is written."""
    s.loose = {b: f for b, f in s.loose.items() if f != frame}


def dispatch(s: Shadow, frame: int) -> None:
    """Copies ordered before the frame are done; every grant's KV is written; computed tokens advance."""
    arrive_before(s, frame)
    # A recurrent state is read before it is written.
    s.plan.torn = tuple([r for r, (start, _) in s.plan.granted.items() if not s.carries(r, start)])
    due: dict[str, Due] = {}
    owing: list[Req] = []
    for request, (start, tokens) in s.plan.granted.items():
        r = s.requests[request]
        s.melt(r)
        end = start + tokens
        owed = due[request] = promise(s, r, end, tokens, s.plan.drafts.get(request, 0))
        advance(s, r, start, end, owed)
        owing.append(r)
    if due:
        streams = [r.tokens for r in owing]
        loose = [r for r in owing if due[r.id].outputs]
        s.frames[s.plan.frame] = Flight(tuple(due), due, streams, loose, s.clock)


def advance(s: Shadow, r: Req, start: int, end: int, owed: Due) -> None:
    """The KV of one that is not steady is written."""
    s.recomputed += max(min(end, r.peak) - start, 0)
    s.write(r, start, end)
    r.base = end
    r.reach = max(r.reach, end)
    r.promised(owed.outputs)
    r.drafts = s.limits.drafts if owed.outputs else 0


def deliver(s: Shadow, m: ev.Deliver) -> None:
    """A frame comes back."""
    frame: Mapping[str, Due] = s.frames.pop(m.frame, {})
    if s.loose:
        tighten(s, m.frame)
    touched: list[Req] = []
    for i, request in enumerate(m.requests):
        due = frame.get(request)
        if due is None or due.fate is Fate.GONE or request not in s.requests:
            continue
        r = s.requests[request]
        s.melt(r)
        touched.append(r)
        state = m.disposition[i] if m.disposition is not None else "delivered"
        sampled = len(m.tokens[i]) if state == "delivered" else 0
        before = len(r.tokens)
        if sampled:
            new = delivery.appended(cast(State, s), m, i)
            r.tokens.extend(new)
            r.brought(m.frame)
            s.stall, s.cycle = 0, None
            s.delivered += len(new)
        if due.fate is Fate.LIVE and due.outputs:
            r.promised(-due.outputs)
            r.base += sampled - due.outputs
            _settle(s, r, due, sampled, max(before, r.base))
        elif due.fate is Fate.DELIVER and due.outputs:
            upto = due.position + sampled - 1
            _settle(s, r, due, sampled, max(before, upto) if sampled < due.outputs else None)
            if sampled < due.outputs:
                r.base = min(r.base, upto)  # who was not released yet keeps no more than that
        if m.proposed is not None and due.fate is Fate.LIVE and r.place is Place.RUNNING:
            r.drafts = m.proposed[i]
    s.settle_in(touched)


def _settle(s: Shadow, r: Req, due: Due, sampled: int, upto: int | None) -> None:
    """What was written ahead beyond `upto` will never be known; what comes later stands that much further in front."""
    if upto is not None and r.reach > upto:
        wide = s.copied or r.astray
        for g, m in enumerate(s.memory):
            m.cut(range(m.total) if wide else {b for b in r.tables[g] if b >= 0}, r.tokens, upto)
        if s.copied:
            cut_copies(s, r.tokens, upto)
        r.reach = upto
    if sampled != due.outputs:
        for flight in s.frames.values():
            flight.shift(r.id, due.fate, due.outputs - sampled)


def cut_copies(s: Shadow, tokens: list[int], upto: int) -> None:
    """The same for what was copied meanwhile."""
    for h in s.host:
        h.cut(tokens, upto)
    s.carried = {c: [cut(held, tokens, upto) for held in carried] for c, carried in s.carried.items()}
    s.plan.incoming = tuple([(g, b, cut(held, tokens, upto)) for g, b, held in s.plan.incoming])
