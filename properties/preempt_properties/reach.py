"""Which situations a run of the reference came through: the proof that generated workloads look where it hurts."""

from __future__ import annotations

from collections.abc import Iterator

from preempt_spec import events as ev
from preempt_spec.policies.policy import Memory
from preempt_spec.state import State
from preempt_spec.view import Fate, Place

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

#: The same, of what needs more than one frame, tier or group, or an operator.
BEYOND = {
    "frames fly at a preemption": "several frames were in flight when a request became a victim",
    "victim flies": "a frame that was in flight owed the victim an output",
    "stale output delivered": "an output of before a preemption was appended after it",
    "stale output dropped": "an output of before a reset was dropped after it",
    "output for the gone": "an output came for a request that was over",
    "resumed over stale frames": "a request ran again while a frame of before its preemption still flew",
    "drafts accepted": "a frame brought more than one token for a request",
    "drafts rejected": "a frame brought fewer tokens for a request than it was granted",
    "reset": "the operator reset the cache while somebody ran",
    "paused": "the operator paused the scheduler while somebody was live",
    "swap out": "a victim's KV went to the host",
    "swap in": "it came back",
    "host pool full": "a victim was dropped because the host had no room for it",
    "several components back": "blocks of more than one group came back together",
    "window passed": "a block left a table behind its window",
    "store done": "a copy to the host ended",
    "load started": "a request waits for copies",
    "load done": "and they came",
    "load failed": "or not",
    "copies out of order": "a copy ended before an older one",
    "fence set": "blocks were given up behind a pass that may still write them",
    "fence drained": "the pass came back",
    "abort while swapped": "a request was cancelled while the host held its KV",
    "abort while loading": "a request was cancelled while copies filled its blocks",
}


def situations(state: State, event: ev.Event) -> Iterator[str]:
    """The situations that this event, seen in the state before it, shows."""
    match event:
        case ev.Abort():
            r = state.request(event.request)
            if r.place not in (Place.SWAPPED, Place.LOADING):
                waits = r.preempted and r.place is not Place.RUNNING
                yield f"abort while {'preempted' if waits else r.place.value}"
            if any(event.request in frame for frame in state.frames.values()):
                yield "abort in flight"
        case ev.Step():
            yield from _of_step(state, event)


def beyond(state: State, event: ev.Event) -> Iterator[str]:
    """The situations of `BEYOND` that this event, seen in the state before it, shows."""
    match event:
        case ev.Abort():
            place = state.request(event.request).place
            if place in (Place.SWAPPED, Place.LOADING):
                yield f"abort while {place.value}"
        case ev.Step():
            yield from _of_acts(state, event)
        case ev.Deliver():
            yield from _of_delivery(state, event)
        case ev.Control():
            if event.kind == "reset" and state.running:
                yield "reset"
        case ev.CopyDone():
            out = state.copies[event.copy].direction == "out"
            yield "store done" if out else "load done" if event.ok else "load failed"
            if min(state.copies) < event.copy:
                yield "copies out of order"
    if isinstance(event, ev.Abort | ev.Finish) and event.until is not None:
        yield "fence set"


def _of_acts(state: State, step: ev.Step) -> Iterator[str]:
    if state.paused and state.requests:
        yield "paused"
    for act in step.acts:
        match act:
            case ev.Demote():
                if len(state.frames) > 1:
                    yield "frames fly at a preemption"
                if any(act.request in f and f[act.request].outputs for f in state.frames.values()):
                    yield "victim flies"
            case ev.Swap():
                yield f"swap {act.direction}"
                if act.direction == "in" and len({g for *_, g in act.blocks}) > 1:
                    yield "several components back"
            case ev.Release():
                if act.until is not None:
                    yield "fence set"
                if state.policy.memory is Memory.SWAP and state.request(act.request).computed and not act.kept:
                    yield "host pool full"
            case ev.Shed():
                yield "window passed"
            case ev.Load():
                yield "load started"


def _of_delivery(state: State, event: ev.Deliver) -> Iterator[str]:
    for r, tokens in zip(event.requests, event.tokens, strict=True):
        due = state.frames[event.frame][r]
        match due.fate:
            case Fate.DELIVER:
                yield "stale output delivered"
            case Fate.DROP:
                yield "stale output dropped"
                if state.request(r).place is Place.RUNNING:
                    yield "resumed over stale frames"
            case Fate.GONE:
                yield "output for the gone"
            case Fate.LIVE:
                if len(tokens) > 1:
                    yield "drafts accepted"
                if len(tokens) < due.outputs:
                    yield "drafts rejected"
    if any(isinstance(a, ev.Unfence) for a in event.acts):
        yield "fence drained"


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
    back = {b.request: b.known or 1 for b in step.resumed}
    for load in step.acts:
        if isinstance(load, ev.Load) and load.runs:  # admitted by its hit alone, to be granted tokens another time
            hits[load.request] = load.hit or 0
            if state.request(load.request).incarnation:
                back[load.request] = len(state.request(load.request).tokens)
    if back:
        yield "resume"
    for request, known in back.items():
        if 0 < hits.get(request, 0) < (known - 1) // max(state.pages) * max(state.pages):
            yield "partial-hit resume"
    owned = {b for r in state.requests.values() for b in r.tables[0]}
    if any(d.request in hits and owned.intersection(d.blocks) for d in step.blocks):
        yield "hit on another's block"
    if state.waiting and state.running and state.waiting[0] not in step.requests:
        yield "passed over"
    if not step.requests:
        yield "empty step"
