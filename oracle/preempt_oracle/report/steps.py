"""A run as a table: one row per step, and one for whatever happens between steps."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from preempt_oracle.report.events import acts, back, blocks, delivered, grants, ids, line
from preempt_oracle.report.words import safe
from preempt_oracle.trace import wire

LEGEND = "+a 5+3: a arrives, 5 prompt tokens and at most 3 outputs; a 2@4: a is granted 2 tokens from position 4"
ROWS = 400  # steps shown of a long run: the last ones, where it broke


def show_steps(out: Console, events: Sequence[wire.Event]) -> None:
    """Print the table."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, expand=False)
    table.add_column("step", no_wrap=True, justify="right")
    for name in ("granted", "new blocks", "preempted", "delivered", "running", "waiting", "free"):
        table.add_column(name, overflow="fold")
    rows = _rows(events)
    if len(rows) > ROWS:
        out.print(f"… {len(rows) - ROWS} rows left out")
    for row in rows[-ROWS:]:
        table.add_row(*map(safe, row))
    out.print(table)
    out.print(LEGEND, soft_wrap=True)


NARROW = 64  # columns; below that a table of steps is no help


def show_last(out: Console, events: Sequence[wire.Event], most: int) -> None:
    """The steps that matter, up to the one that broke a rule: who ran, who was preempted, queues, free blocks."""
    if out.width < NARROW:
        out.print("  last events")
        for event in events[-most:]:
            out.print(f"    {line(event)}", soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False, show_edge=False, expand=False)
    table.add_column("  step", no_wrap=True, justify="right")
    for name in ("ran", "preempted", "running", "waiting", "free"):
        table.add_column(name, overflow="fold")
    rows = _rows(events)[-most:]
    for i, (step, ran, _, gone, _, *books) in enumerate(rows):
        # What is in no step, such as an arrival, stands in the second column.
        table.add_row(f"{'>' * (i == len(rows) - 1)} {step}", *map(safe, (ran, gone, *books)))
    out.print("  last steps, > where it broke")
    out.print(table)


def _rows(events: Sequence[wire.Event]) -> list[list[str]]:
    rows: list[list[str]] = []
    flying: dict[int, list[str]] = {}  # frame -> the row its delivery is told in
    for event in events:
        match event:
            case wire.Step():
                o = event.observed
                rows.append(
                    [
                        str(event.frame),
                        grants(event) or event.reason or "nothing",
                        blocks(event),
                        "; ".join(acts(event.acts)),
                        "",
                        "" if o.running is None else ids(o.running),
                        "" if o.waiting is None else ids(o.waiting),
                        "" if o.free is None else " ".join(map(str, o.free)),
                    ]
                )
                flying[event.frame] = rows[-1]
            case wire.Deliver() if event.frame in flying:
                flying[event.frame][4] = delivered(event)
            case wire.Finish() if rows and rows[-1][0]:
                rows[-1][4] += f"{'; ' * bool(rows[-1][4])}{event.request} ends{back(event.blocks)}"
            case wire.Arrive():
                rows.append(["", f"+{event.request} {len(event.prompt)}+{event.max_tokens}", *[""] * 6])
            case _:
                rows.append(["", line(event), *[""] * 6])
    return rows
