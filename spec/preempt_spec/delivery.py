"""What flying frames owe, and what becomes of it: promised at dispatch, fixed at demotion, kept at delivery.

A frame that reaches the end of a request's known tokens promises an output. The next frame may be planned on that
promise: the request then counts a placeholder, and its computed tokens run ahead of its known ones. A preemption ends
the promises: what still comes is stale, and touches neither placeholders nor computed tokens any more.
"""

from __future__ import annotations

from attrs import evolve

from preempt_spec import events as ev
from preempt_spec.edit import change, fated, resolved
from preempt_spec.policies.outputs import room_for_outputs
from preempt_spec.state import Request, State
from preempt_spec.view import Due, Fate, Place


def promise(s: State, r: Request, end: int, tokens: int, drafts: int) -> Due:
    """What a grant up to `end` will bring. With all its placeholders resolved, the request knows that many tokens."""
    known = len(r.tokens) + r.placeholders
    reaches = end - drafts == known
    before = [f for f, frame in s.frames.items() if r.id in frame and frame[r.id].fate is Fate.LIVE]
    owing = [f for f in before if s.frames[f][r.id].outputs]
    after = owing[-1] if owing and r.placeholders else None
    return Due(tokens, known, 1 + drafts if reaches else 0, after)


def disown(s: State, request: str, fate: Fate) -> State:
    """A victim's outputs in flight are stale. Who was dropped stays dropped."""
    return fated(s, request, fate)


def appended(s: State, m: ev.Deliver, i: int) -> tuple[int, ...]:
    """What the i-th request of a delivery gets appended, if its output is appended: no more than it may emit."""
    room = room_for_outputs(s, s.requests[m.requests[i]])
    return m.tokens[i][:room]


def deliver(s: State, m: ev.Deliver) -> State:
    """A frame comes back."""
    frame = s.frames.get(m.frame, {})
    s = evolve(
        s,
        frames={f: due for f, due in s.frames.items() if f != m.frame},
        loose={b: f for b, f in s.loose.items() if f != m.frame},
    )
    for i, request in enumerate(m.requests):
        due = frame.get(request)
        if due is None or due.fate is Fate.GONE or request not in s.requests:
            continue
        state = m.disposition[i] if m.disposition is not None else "delivered"
        sampled = len(m.tokens[i]) if state == "delivered" else 0
        if sampled:
            new = appended(s, m, i)
            r = s.requests[request]
            s = change(s, request, tokens=r.tokens + new, last=m.frame)
            s = evolve(s, stall=0, cycle=None, delivered=s.delivered + len(new))
        if due.fate is Fate.LIVE and due.outputs:
            s = _resolve(s, request, due, sampled)
        elif due.fate is Fate.DELIVER and due.outputs:
            # The victim's former blocks hold what its frames wrote; rejected drafts are nobody's prefix.
            upto = due.position + sampled - 1 if sampled < due.outputs else None
            s = _settle(s, request, due, sampled, upto)
            if upto is not None:  # who was not released yet keeps no more than that
                s = change(s, request, computed=min(s.requests[request].computed, upto))
        if m.proposed is not None and due.fate is Fate.LIVE and s.requests[request].place is Place.RUNNING:
            s = change(s, request, drafts=m.proposed[i])
    return s


def _resolve(s: State, request: str, due: Due, sampled: int) -> State:
    """The promise is kept. Rejected drafts were computed for nothing: the worker goes on where they began."""
    r = s.requests[request]
    computed = r.computed - due.outputs + sampled
    s = change(s, request, placeholders=r.placeholders - due.outputs, computed=computed)
    return _settle(s, request, due, sampled, computed)


def _settle(s: State, request: str, due: Due, sampled: int, upto: int | None) -> State:
    """What was written ahead is known now, as far as `upto`; later frames write behind it what rejected drafts held."""
    r = s.requests[request]
    s = resolved(s, r, upto)
    if sampled == due.outputs:
        return s
    back = due.outputs - sampled
    frames = {
        f: {
            q: evolve(d, position=d.position - back) if q == request and d.fate is due.fate else d
            for q, d in frame.items()
        }
        for f, frame in s.frames.items()
    }
    return evolve(s, frames=frames)
