"""A run as pictures: what the shadow state looked like behind each step, for the timeline of an HTML report.

Whatever the length of the trace, so many columns are kept and no more: uneventful steps are folded into one that says
how many they are, and of the eventful ones the first and the last are kept. Besides, the name of each request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator

from attrs import Factory, define, evolve, frozen

from preempt_oracle.monitor import Monitor
from preempt_oracle.report.events import line
from preempt_oracle.trace import wire
from preempt_spec.view import Place, View

FIRST, LAST = 300, 900  # columns kept of a long run, from its beginning and from its end
CONTEXT = 8  # uneventful steps shown in full around an eventful one
BINS = 128  # cells of a pool's strip: of a larger pool each stands for several blocks
TEXT = 6  # lines kept of what happened in a step

#: What a cell of a strip may be, besides a request's number.
FREE, CACHED, RESERVED, SHARED, HELD = -1, -2, -3, -4, -5
_LETTERS = {
    Place.RUNNING: "r",
    Place.WAITING: "w",
    Place.SWAPPED: "s",
    Place.LOADING: "l",
    Place.LIMBO: "x",
}


@frozen
class Column:
    """A step, or several that were folded into one.

    `places`: a letter for each request of `live`: R granted tokens in this step, r running without, w waiting, p
    waiting after a preemption, s swapped, l loading, x in between; D preempted in this step. `pools`: per group, runs
    of (cell, length).
    """

    step: int
    folded: int  # steps; 0: this one alone
    live: tuple[int, ...]
    places: str
    running: tuple[int, ...]
    waiting: tuple[int, ...]
    swapped: tuple[int, ...]
    pools: tuple[tuple[tuple[int, int], ...], ...]
    free: tuple[int, ...]
    flying: tuple[int, ...]
    happened: tuple[str, ...]


@define
class Film:
    """Shown every event behind the monitor; `columns` at the end."""

    monitor: Monitor
    requests: dict[str, int] = Factory(dict)  # id -> number, in order of appearance
    first: list[Column] = Factory(list)
    last: deque[Column] = Factory(lambda: deque(maxlen=LAST))
    quiet: deque[Column] = Factory(lambda: deque(maxlen=CONTEXT))
    folded: int = 0  # quiet columns that fell out of `quiet`
    cut: int = 0  # columns that fell out of `last`
    after: int = 0  # quiet columns still to be shown in full
    happened: deque[str] = Factory(lambda: deque(maxlen=TEXT))  # since the last column
    steps: int = 0

    def see(self, event: wire.Event) -> None:
        """Behind `monitor.feed`."""
        broken = bool(self.monitor.violations)
        if type(event) is not wire.Step:
            if broken or type(event) is not wire.Deliver:
                self.happened.append(line(event, 600 if broken else 200))
            if broken:  # behind the last step: a picture of its own
                self._flush()
                self._keep(self._column(self.monitor.shadow.last_frame, (), ()))
            return
        self.steps += 1
        busy = broken or self.happened or event.acts or event.resumed or event.hits or not event.requests
        demoted = [a.request for a in event.acts if type(a) is wire.Demote]
        self.happened.append(line(event, 600))
        column = self._column(event.frame, event.requests, demoted)
        if busy or any(x.full for x in event.sent):
            self._flush()
            self._keep(column)
            self.after = CONTEXT
        elif self.after:
            self.after -= 1
            self._keep(column)
        else:
            self.folded += len(self.quiet) == CONTEXT
            self.quiet.append(column)

    def columns(self) -> tuple[list[Column], int]:
        """All that was kept, in order, and behind which column others were left out (-1: none were)."""
        self._flush()
        return [*self.first, *self.last], len(self.first) - 1 if self.cut else -1

    def _flush(self) -> None:
        if self.folded and self.quiet:
            head = self.quiet[0]
            self._keep(evolve(head, folded=self.folded, happened=()))
        for column in self.quiet:
            self._keep(column)
        self.quiet.clear()
        self.folded = 0

    def _keep(self, column: Column) -> None:
        if len(self.first) < FIRST:
            self.first.append(column)
            return
        self.cut += len(self.last) == LAST
        self.last.append(column)

    def _column(self, step: int, granted: Collection[str], demoted: Collection[str]) -> Column:
        s, number = self.monitor.shadow, self._number
        live, granted = [*s.live()], {*granted}
        happened = tuple(self.happened)
        self.happened.clear()
        return Column(
            step=step,
            folded=0,
            live=tuple(map(number, live)),
            places="".join("D" if r in demoted else "R" if r in granted else _letter(s, r) for r in live),
            running=tuple(map(number, s.running)),
            waiting=tuple(map(number, s.waiting)),
            swapped=tuple(map(number, s.swapped)),
            pools=tuple(tuple(_runs(_cells(s, g, self.requests))) for g in range(len(s.pages))),
            free=tuple(s.free(g) for g in range(len(s.pages))),
            flying=tuple(s.frames),
            happened=happened,
        )

    def _number(self, request: str) -> int:
        return self.requests.setdefault(request, len(self.requests))


def _letter(s: View, request: str) -> str:
    r = s.request(request)
    return "p" if r.place is Place.WAITING and r.preempted else _LETTERS[r.place]


def _cells(s: View, group: int, numbers: dict[str, int]) -> list[int]:
    """What each cell of a pool's strip shows: of several blocks, what most of them are."""
    total = s.extent(group)
    held: list[int | None] = [None] * total
    for r in s.live():
        for b in s.request(r).tables[group]:
            if 0 <= b < total:
                held[b] = numbers[r]
    # Under pressure few are left: only those are asked for one by one.
    cells = [_idle(s, group, b) if who is None else who for b, who in enumerate(held)]
    for b in s.shared(group):
        cells[b] = SHARED
    for b in range(s.reserved(group)):
        cells[b] = RESERVED
    size = -(-total // BINS)
    if size < 2:
        return cells
    return [max({*part}, key=part.count) for part in (cells[i : i + size] for i in range(0, total, size))]


def _idle(s: View, group: int, block: int) -> int:
    """What a block is that is in nobody's table."""
    if not s.is_free(group, block):
        return HELD
    return CACHED if s.holds_page(group, block) else FREE


def _runs(cells: list[int]) -> Iterator[tuple[int, int]]:
    count = 0
    for i, cell in enumerate(cells):
        count += 1
        if i + 1 == len(cells) or cells[i + 1] != cell:
            yield cell, count
            count = 0
