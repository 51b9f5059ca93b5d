"""Which situations a run of the reference came through: the proof that generated workloads look where it hurts."""

from __future__ import annotations

from collections.abc import Iterator

from preempt_spec import events as ev
from preempt_spec.state import State
from preempt_spec.view import Place

#: What is counted, per workload, and why it matters.
SITUATIONS = {
    "preemption": "a running request became a victim",
    "several victims": "more than one victim in one step",
    "further victim": "more than one victim for the same requester: victim/minimal is put to the test",
    "preempted again": "a request became a victim for the second time",
    "self-preemption": "the requester was the victim",
    "victim already granted": "the victim had a grant in this very step, which was taken back",
    "victim in mid-prefill": "the victim had not computed all it knows",
    "full pool": "no block was free at the end of a step",
    "resume": "a victim was admitted again",
    "partial-hit resume": "a victim found some of its pages again, not all",
    "hit on another's block": "an admission shares blocks that somebody else holds",
    "abort while waiting": "a request was cancelled before it ever ran",
    "abort while running": "a request was cancelled while it ran",
    "abort while preempted": "a victim was cancelled before it resumed",
    "abort in flight": "a request was cancelled between a step and its delivery",
    "passed over": "the head of the queue had to wait though somebody ran",
    "empty step": "nothing could be granted",
}


def situations(state: State, event: ev.Event) -> Iterator[str]:
    """The situations that this event, seen in the state before it, shows."""
    match event:
        case ev.Abort():
            r = state.request(event.request)
            yield f"abort while {'preempted' if r.preempted and r.place is not Place.RUNNING else r.place.value}"
            if any(event.request in frame for frame in state.frames.values()):
                yield "abort in flight"
        case ev.Step():
            yield from _of_step(state, event)


def _of_step(state: State, step: ev.Step) -> Iterator[str]:
    victims = [a for a in step.acts if isinstance(a, ev.Demote)]
    if victims:
        yield "preemption"
    if len(victims) > 1:
        yield "several victims"
    served = [(a.beneficiaries, a.after) for a in victims]
    if len(set(served)) < len(served):
        yield "further victim"
    for a in victims:
        r = state.request(a.request)
        if r.incarnation:
            yield "preempted again"
        if a.request in a.beneficiaries:
            yield "self-preemption"
        if r.computed < len(r.tokens) - 1:
            yield "victim in mid-prefill"
    if any(isinstance(a, ev.Plan) for a in step.acts):
        yield "victim already granted"
    if step.observed.free is not None and not min(step.observed.free):
        yield "full pool"
    hits = {h.request: h.tokens for h in step.hits}
    if step.resumed:
        yield "resume"
    for back in step.resumed:
        if 0 < hits.get(back.request, 0) < ((back.known or 1) - 1) // max(state.pages) * max(state.pages):
            yield "partial-hit resume"
    owned = {b for r in state.requests.values() for b in r.tables[0]}
    if any(d.request in hits and owned.intersection(d.blocks) for d in step.blocks):
        yield "hit on another's block"
    if state.waiting and state.running and state.waiting[0] not in step.requests:
        yield "passed over"
    if not step.requests:
        yield "empty step"
