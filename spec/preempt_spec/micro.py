"""A step in slow motion: the micro-events the rules are attached to.

A `Step` packs one scheduling decision into parallel arrays and acts. `expand` unfolds it into what happened, in
order: Begin, then acts and grants as they came, then Dispatch (the frame's KV writes count from here, all at once:
within one forward pass every layer writes before it attends), then Close (the step is over; the books are compared).
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from preempt_spec.events import (
    Abort,
    Act,
    Arrive,
    Control,
    CopyDone,
    CopyStart,
    Deliver,
    EngineError,
    Event,
    Finish,
    Reject,
    Step,
)
from preempt_spec.view import Place, View


class Malformed(Exception):
    """An event that cannot be understood in this state. `field` names the part at fault."""

    def __init__(self, field: str, reason: str) -> None:
        """Say which field of the event, and why."""
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


@frozen
class Begin:
    """A step starts."""

    frame: int


@frozen
class Grant:
    """`tokens` tokens for `request` in this step; `start` None: from the computed tokens. `blocks` join its table.

    The last `drafts` of the tokens are drafts.
    """

    request: str
    tokens: int
    start: int | None
    blocks: tuple[tuple[int, ...], ...]
    hit: int | None
    drafts: int = 0


def grant_start(s: View, e: Grant) -> int:
    """Where a grant begins: as told; else behind what is computed, or what an admission hit."""
    if e.start is not None:
        return e.start
    r = s.request(e.request)
    return max(r.computed, e.hit or 0) if r.place is Place.WAITING else r.computed


@frozen
class Dispatch:
    """The frame leaves for the worker."""

    frame: int


@frozen
class Close:
    """The step is over. `stray`: blocks that joined a table without a grant."""

    step: Step
    stray: tuple[str, ...]


@frozen
class ControlDone:
    """A control is over."""

    kind: str


Micro = (
    Begin
    | Grant
    | Dispatch
    | Close
    | Act
    | Arrive
    | Reject
    | Abort
    | Finish
    | Deliver
    | EngineError
    | CopyStart
    | CopyDone
    | ControlDone
)


def expand(event: Event, groups: int) -> Iterator[Micro]:
    """The micro-events of one event, in order. Raises Malformed."""
    if isinstance(event, Step):
        yield from _step(event, groups)
    elif isinstance(event, Abort):
        yield from event.acts
        yield event
    elif isinstance(event, Control):
        yield from event.acts
        yield ControlDone(event.kind)
    elif isinstance(event, Deliver):
        yield event
        yield from event.acts
    else:
        yield event


def _step(step: Step, groups: int) -> Iterator[Micro]:
    nothing: tuple[tuple[int, ...], ...] = ((),) * groups
    blocks: dict[str, tuple[tuple[int, ...], ...]] = {}
    for d in step.blocks:
        if not 0 <= d.group < groups:
            raise Malformed("blocks", f"there is no group {d.group}")
        had = blocks.get(d.request, nothing)
        blocks[d.request] = (*had[: d.group], had[d.group] + d.blocks, *had[d.group + 1 :])
    hits = {h.request: h.tokens for h in step.hits}
    drafts = {d.request: d.tokens for d in step.drafts}
    yield Begin(step.frame)
    acts = iter(step.acts)
    act = next(acts, None)
    for i, request in enumerate(step.requests):
        while act is not None and act.after <= i:
            yield act
            act = next(acts, None)
        start = None if step.start is None else step.start[i]
        # A second grant of the same request (a violation) gets no blocks: they were counted with the first.
        yield Grant(
            request, step.tokens[i], start, blocks.pop(request, nothing), hits.get(request), drafts.get(request, 0)
        )
    while act is not None:
        yield act
        act = next(acts, None)
    yield Dispatch(step.frame)
    yield Close(step, tuple(blocks))
