"""Tables of the cohort grow: the one thing that happens in nearly every step."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from preempt_oracle.monitor.request import Req
from preempt_oracle.monitor.shadow import Shadow
from preempt_oracle.trace import wire
from preempt_oracle.trace.raw import Deltas, Rest

Grown = Mapping[Req, tuple[int, ...]]  # whose tables grow, by what


class Told:
    """Tables that grow by just what the worker is told of them, each of them once.

    `grown`: those of the cohort, by `fresh` blocks that are free; `full`: those described in full, of requests that are
    admitted, if all is well.
    """

    __slots__ = ("fresh", "full", "grown")

    def __init__(self, grown: Grown, full: dict[str, tuple[int, ...]], fresh: int) -> None:
        self.grown, self.full, self.fresh = grown, full, fresh


def growing_as_told(s: Shadow, e: wire.Step | Rest, told: Deltas = ()) -> Told | None:
    """How the tables grow in this step; None unless all do it as told.

    `told`: what is known to be, if that stands apart from the event.
    """
    m, deltas, sent = s.memory[0], e.blocks, e.sent
    if len(deltas) != len(sent) or m.special():
        return None
    requests, refs, reserved, total = s.requests, m.refs, m.reserved, m.total
    grown: dict[Req, tuple[int, ...]] = {}
    full: dict[str, tuple[int, ...]] = {}
    fresh: list[int] = []
    here = [*told]
    for d, x in zip(deltas, sent):  # noqa: B905 - as many: looked at just now, and to say so costs as much as a table
        name, new = d.request, d.blocks
        if x.blocks != new or x.request != name or d.group or x.group or not new:
            return None
        if x.full:
            full[name] = new
        else:
            here.append((name, 0, new))
    for name, group, new in here:
        if group or not new:
            return None
        r = requests.get(name)
        if r is None or not r.steady or r.apart is not None:
            return None
        for b in new:
            if b < reserved or b >= total or refs[b]:
                return None
        fresh += new
        grown[r] = new
    once = len(grown) + len(full) == len(sent) + len(told) and len(set(fresh)) == len(fresh)
    return Told(grown, full, len(fresh)) if once else None


def paired(e: wire.Step) -> bool:
    """Whether the worker is told of just the blocks that join tables, table by table, each of them once."""
    deltas, sent = e.blocks, e.sent
    if len(deltas) != len(sent):
        return False
    for d, x in zip(deltas, sent, strict=True):
        blocks = d.blocks
        if x.blocks != blocks or x.request != d.request or d.group or x.group or not blocks:
            return False
    return len(sent) < 2 or len({x.request for x in sent}) == len(sent)


def growing(s: Shadow, blocks: Iterable[tuple[str, tuple[int, ...]]]) -> Grown | None:
    """Whose tables grow; None unless all are of the cohort, and all blocks are free and given once."""
    m, requests = s.memory[0], s.requests
    if m.special():
        return None
    refs, reserved, total = m.refs, m.reserved, m.total
    grown: dict[Req, tuple[int, ...]] = {}
    fresh: list[int] = []
    for request, new in blocks:
        r = requests.get(request)
        if r is None or not r.steady:
            return None
        for b in new:
            if b < reserved or b >= total or refs[b]:
                return None
        fresh += new
        grown[r] = new
    return grown if len(set(fresh)) == len(fresh) else None


def all_grow(s: Shadow, requests: Container[Req | None]) -> bool:
    """Whether all members of the cohort whose table is full are among these."""
    clock = s.clock
    for r in s.calendar.get(clock, ()):  # a loop: a generator would cost more than all of it
        if r in requests or not r.steady or r.due != clock:
            continue
        return False
    return True


def grow(s: Shadow, grown: Grown) -> None:
    """Blocks that `growing` looked at join the tables."""
    m, clock, calendar, tracks = s.memory[0], s.clock, s.calendar, s.tracks
    page, refs, owner, top, under = m.page, m.refs, m.owner, m.top, m.under
    for r, blocks in grown.items():
        table, base, noted = r.tables[0], r.base, r.noted
        now, index = base + clock, noted // page
        if now == noted + page and noted == index * page and tracks and refs[last := table[index]] == 1:
            # What `settle` comes to when exactly one page was filled since.
            top[last] = (r.tokens, r.salt, index, noted, now)
            if last in under:
                del under[last]
            r.noted = now
        else:
            s.settle(r)
        for b in blocks:
            refs[b] = 1
            owner[b] = r
        m.nfree -= len(blocks)
        table += blocks
        due = r.due = len(table) * page - base
        if due in calendar:
            calendar[due].append(r)
        else:
            calendar[due] = [r]
