"""Small changes of the pure state that several transitions make."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from preempt_spec.state import State, Tables
from preempt_spec.view import HOLE, Fate


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
    """With blocks appended to a request's tables. A sliding group has its null block for pages the window passed."""
    if not any(blocks):
        return s
    tables = tuple(
        (*t, *(HOLE if m.group.kind == "sliding" and b < m.reserved else b for b in new))
        for t, new, m in zip(s.requests[request].tables, blocks, s.memory, strict=True)
    )
    return change(s, request, tables=tables)


def fated(s: State, request: str, fate: Fate) -> State:
    """With all that flying frames owe a request given a fate."""
    frames = {
        f: {r: evolve(due, fate=fate) if r == request else due for r, due in frame.items()}
        for f, frame in s.frames.items()
    }
    return evolve(s, frames=frames)


def forget(s: State, request: str) -> State:
    """The request is over: nothing is kept of it but what its blocks hold."""
    gone = s.requests[request]
    s = fated(s, request, Fate.GONE)
    return evolve(
        s,
        requests={r: x for r, x in s.requests.items() if r != request},
        memory=tuple(m.resolved(request, gone.salt, gone.tokens, len(gone.tokens)) for m in s.memory),
        running=without(s.running, request),
        waiting=without(s.waiting, request),
        swapped=without(s.swapped, request),
        stall=0,
        cycle=None,
    )
