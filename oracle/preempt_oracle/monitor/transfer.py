"""What moves between device and host: `preempt_spec.transfer`, in place."""

from __future__ import annotations

from collections.abc import Sequence

from preempt_oracle.monitor.content import Held
from preempt_oracle.monitor.shadow import Shadow
from preempt_spec import events as ev
from preempt_spec.view import Copy, Place

Blocks = tuple[tuple[int, int, int], ...]


def swap(s: Shadow, m: ev.Swap) -> None:
    """Out: the host blocks hold it from now on. In: the device blocks will when the frame runs."""
    s.copied = True
    if m.direction == "out":
        for (_, dst, g), held in zip(m.blocks, _held(s, m.direction, m.blocks), strict=True):
            s.host[g].blocks[dst] = held
    else:
        new = zip(m.blocks, _held(s, m.direction, m.blocks), strict=True)
        s.plan.incoming += tuple([(g, dst, held) for (_, dst, g), held in new])


def copy_start(s: Shadow, m: ev.CopyStart) -> None:
    """The host blocks an out-copy fills are in use from its start, for what it carries; it may fail still."""
    s.copied = True
    held = _held(s, m.direction, m.blocks)
    if m.direction == "out":
        for (_, dst, g), what in zip(m.blocks, held, strict=True):
            s.host[g].blocks[dst] = what
    elif m.before is None:
        for _, dst, g in m.blocks:
            s.memory[g].filled(dst)
    s.copies[m.copy] = Copy(m.direction, m.blocks, m.before)
    s.carried[m.copy] = held


def copy_done(s: Shadow, m: ev.CopyDone) -> None:
    """Its destinations hold what it carried, or, if it failed, nothing that can be told."""
    copy, carried = s.copies.pop(m.copy), s.carried.pop(m.copy)
    if copy.direction == "in" and copy.before is None:
        for _, dst, g in copy.blocks:
            s.memory[g].arrived(dst)
    for (_, dst, g), what in zip(copy.blocks, carried, strict=True):
        held = what if m.ok else ()
        if copy.direction == "in":
            _fill(s, g, dst, held)
        elif dst in s.host[g].blocks:
            s.host[g].blocks[dst] = held


def arrive_before(s: Shadow, frame: int) -> None:
    """All that is ordered before a frame is done when it is dispatched."""
    for copy in [c for c, x in s.copies.items() if x.before is not None and x.before <= frame]:
        copy_done(s, ev.CopyDone(copy))
    for g, dst, held in s.plan.incoming:
        _fill(s, g, dst, held)
    s.plan.incoming = ()


def evict(s: Shadow, m: ev.Evict) -> None:
    """Host blocks are unused."""
    for b in m.blocks:
        s.host[m.group].blocks.pop(b, None)


def _held(s: Shadow, direction: str, blocks: Blocks) -> list[Held]:
    if direction == "out":
        return [s.held(g, src) for src, _, g in blocks]
    return [s.host[g].blocks.get(src, ()) for src, _, g in blocks]


def _fill(s: Shadow, g: int, b: int, held: Sequence[tuple[list[int], str, int, int, int]]) -> None:
    """A device block holds what was copied. Whoever runs on it is looked at from now on."""
    for r in s.requests.values():
        if b in r.tables[g]:
            s.melt(r)
            if r.place is Place.RUNNING and r.id not in s.plan.admitted:
                s.doubt(r)
    if s.tracks:
        s.memory[g].put(b, tuple(held))
