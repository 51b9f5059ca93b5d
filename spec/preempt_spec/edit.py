"""Small changes of the pure state that several transitions make."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from preempt_spec.memory import resolve
from preempt_spec.state import Request, State, Tables
from preempt_spec.view import HOLE, Fate, with_holes


def change(s: State, request: str, **fields: Any) -> State:
    """With fields of one request replaced."""
    return evolve(s, requests={**s.requests, request: evolve(s.requests[request], **fields)})


def without(queue: tuple[str, ...], request: str) -> tuple[str, ...]:
    """A queue without a request."""
    return tuple(r for r in queue if r != request)


def insert(queue: tuple[str, ...], at: int, request: str) -> tuple[str, ...]:
    """A queue with a request at an index."""
    return (*queue[:at], request, *queue[at:])


def own(s: State, request: str, blocks: Tables) -> State:
    """With blocks appended to a request's tables."""
    if not any(blocks):
        return s
    tables = tuple(
        (*t, *with_holes(m.group, m.reserved, new))
        for t, new, m in zip(s.requests[request].tables, blocks, s.memory, strict=True)
    )
    return change(s, request, tables=tables)


def fated(s: State, request: str, fate: Fate) -> State:
    """With all that flying frames owe a request given a fate; of an earlier request of its id they owe nothing."""
    frames = {
        f: {r: evolve(x, fate=fate) if r == request and x.fate is not Fate.GONE else x for r, x in frame.items()}
        for f, frame in s.frames.items()
    }
    return evolve(s, frames=frames)


def resolved(s: State, r: Request, upto: int | None) -> State:
    """With what `r` wrote ahead known as far as its tokens go, wherever a copy of it is; beyond `upto`, lost."""
    held = {c: tuple(resolve(slots, r.id, r.salt, r.tokens, upto) for slots in x) for c, x in s.carried.items()}
    incoming = tuple((g, b, resolve(slots, r.id, r.salt, r.tokens, upto)) for g, b, slots in s.plan.incoming)
    return evolve(
        s,
        memory=tuple(m.resolved(r.id, r.salt, r.tokens, upto) for m in s.memory),
        host=tuple(m.resolved(r.id, r.salt, r.tokens, upto) for m in s.host),
        carried=held,
        plan=evolve(s.plan, incoming=incoming),
    )


def loosened(s: State, request: str) -> State:
    """With a request's blocks noted as still written by the latest frame that flies for it."""
    flying = [f for f, frame in s.frames.items() if request in frame and frame[request].fate is not Fate.GONE]
    if not flying:
        return s
    tables = s.requests[request].tables
    loose = {(g, b): max(flying) for g, table in enumerate(tables) for b in table if b != HOLE}
    return evolve(s, loose={**s.loose, **loose})


def forget(s: State, request: str) -> State:
    """The request is over: nothing is kept of it but what its blocks hold."""
    gone, s = s.requests[request], loosened(s, request)
    s = resolved(fated(s, request, Fate.GONE), gone, len(gone.tokens))
    return evolve(
        s,
        requests={r: x for r, x in s.requests.items() if r != request},
        running=without(s.running, request),
        waiting=without(s.waiting, request),
        swapped=without(s.swapped, request),
        stall=0,
        cycle=None,
    )
