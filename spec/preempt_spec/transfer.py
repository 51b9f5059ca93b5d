"""What moves between device and host: swaps ordered before a frame, asynchronous copies, loads.

A copy carries what its sources hold when it starts. What it brings is there when it is done: for a swap, and for a copy
ordered before a frame, when that frame is dispatched; for the others when `copy_done` says so.
"""

from __future__ import annotations

from attrs import evolve

from preempt_spec import events as ev
from preempt_spec.edit import change, own, without
from preempt_spec.memory import Block, Memory, Slot
from preempt_spec.state import State
from preempt_spec.view import Copy, Place


def swap(s: State, m: ev.Swap) -> State:
    """Out: the host blocks hold it from now on. In: the device blocks will when the frame runs."""
    if m.direction == "out":
        return evolve(s, host=_filled(s.host, m.blocks, _held(s.memory, m.blocks)))
    new = tuple((g, dst, slots) for (_, dst, g), slots in zip(m.blocks, _held(s.host, m.blocks), strict=True))
    return evolve(s, plan=evolve(s.plan, incoming=(*s.plan.incoming, *new)))


def copy_start(s: State, m: ev.CopyStart) -> State:
    """The host blocks an out-copy fills are in use from its start, for what it carries; it may fail still."""
    held = _held(s.memory if m.direction == "out" else s.host, m.blocks)
    if m.direction == "out":
        s = evolve(s, host=_filled(s.host, m.blocks, held))
    copies = {**s.copies, m.copy: Copy(m.direction, m.blocks, m.before)}
    return evolve(s, copies=copies, carried={**s.carried, m.copy: held})


def copy_done(s: State, m: ev.CopyDone) -> State:
    """Its destinations hold what it carried, or, if it failed, nothing that can be told."""
    copy, carried = s.copies[m.copy], s.carried[m.copy]
    if not m.ok:
        carried = tuple((None,) * len(slots) for slots in carried)
    s = evolve(
        s,
        copies={c: x for c, x in s.copies.items() if c != m.copy},
        carried={c: x for c, x in s.carried.items() if c != m.copy},
    )
    if copy.direction == "out":
        blocks = tuple((src, dst, g) for src, dst, g in copy.blocks if dst in s.host[g].blocks)
        held = tuple(x for (_, dst, g), x in zip(copy.blocks, carried, strict=True) if dst in s.host[g].blocks)
        return evolve(s, host=_filled(s.host, blocks, held))
    return evolve(s, memory=_filled(s.memory, copy.blocks, carried))


def arrive_before(s: State, frame: int) -> State:
    """All that is ordered before a frame is done when it is dispatched."""
    for copy in [c for c, x in s.copies.items() if x.before is not None and x.before <= frame]:
        s = copy_done(s, ev.CopyDone(copy))
    for g, dst, slots in s.plan.incoming:
        s = evolve(s, memory=_filled(s.memory, ((0, dst, g),), (slots,)))
    return evolve(s, plan=evolve(s.plan, incoming=()))


def load(s: State, m: ev.Load) -> State:
    """Who waited gets blocks, and waits for what fills them; or runs, if nothing has to."""
    s = own(s, m.request, m.blocks)
    if m.runs:
        known = len(s.requests[m.request].tokens)
        s = change(s, m.request, place=Place.RUNNING, computed=m.computed, goal=known)
        plan = evolve(s.plan, admitted=(*s.plan.admitted, m.request))
        return evolve(s, waiting=without(s.waiting, m.request), running=(*s.running, m.request), plan=plan)
    s = change(s, m.request, place=Place.LOADING, computed=m.computed)
    return evolve(s, waiting=without(s.waiting, m.request))


def evict(s: State, m: ev.Evict) -> State:
    """Host blocks are unused."""
    host = (*s.host[: m.group], s.host[m.group].without(m.blocks), *s.host[m.group + 1 :])
    return evolve(s, host=host)


def _held(tier: tuple[Memory, ...], blocks: tuple[tuple[int, int, int], ...]) -> tuple[tuple[Slot, ...], ...]:
    return tuple(tier[g].block(src).slots for src, _, g in blocks)


def _filled(
    tier: tuple[Memory, ...], blocks: tuple[tuple[int, int, int], ...], held: tuple[tuple[Slot, ...], ...]
) -> tuple[Memory, ...]:
    new = list(tier)
    for (_, dst, g), slots in zip(blocks, held, strict=True):
        had = new[g].blocks.get(dst)
        new[g] = new[g].having({dst: evolve(had, slots=slots) if had else Block(slots)})
    return tuple(new)
