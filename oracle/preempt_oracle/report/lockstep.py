"""What a lockstep campaign came to: mode × steps × divergences, and the first divergence as a diff of two states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from preempt_oracle.lockstep.compare import WORDS, Line
from preempt_oracle.lockstep.modes import SWITCHES, Mode
from preempt_oracle.lockstep.run import Cell, Divergence, Lockstep, reached
from preempt_oracle.report.version import version
from preempt_oracle.report.words import count, safe
from preempt_properties.scenario import dumps

FORMAT = "preempt-oracle-lockstep"
FORMAT_VERSION = 1

#: Shown of both states although they agree: what a reader needs to see where they are.
CONTEXT = ("requests", "tokens", "victims", "running", "waiting", "free_ids")


# -- the table --------------------------------------------------------------------------------------------------------


def rows(cells: Mapping[Mode, Cell]) -> Iterator[tuple[str, str, str, Cell, int, int]]:
    """(policy, how frames fly, drafts, sum of cells, combinations run, all of them), one per kind of flight."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for mode, cell in cells.items():
        f = mode.flight
        flight = f"{f.name}{f' {f.frames}' * (f.frames > 1)}, runner {f.runner}"
        groups.setdefault((mode.policy, flight, "drafts" if mode.drafts else ""), []).append(cell)
    for (policy, flight, drafts), found in sorted(groups.items()):
        yield policy, flight, drafts, total(found), sum(c.steps > 0 for c in found), len(found)


def total(cells: Iterable[Cell]) -> Cell:
    """Cells added up."""
    out = Cell()
    for c in cells:
        out.workloads += c.workloads
        out.steps += c.steps
        out.granting += c.granting
        out.events += c.events
        out.divergences += c.divergences
        out.outside += c.outside
        out.reached.update(c.reached)
    return out


def by_switch(cells: Mapping[Mode, Cell]) -> Iterator[tuple[str, Cell]]:
    """The same cells by one setting at a time, and no and yes of it."""
    for yes, (attribute, no) in SWITCHES.items():
        for word, value in ((yes, True), (no, False)):
            picked = [c for mode, c in cells.items() if getattr(mode, attribute) is value]
            if picked:
                yield word, total(picked)


# -- text -------------------------------------------------------------------------------------------------------------


def show(out: Console, found: Lockstep) -> None:
    """The whole report."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("policy", "frames", "drafts"):
        table.add_column(name, no_wrap=True)
    for name in ("modes", "workloads", "steps", "with grants", "divergences"):
        table.add_column(name, justify="right", no_wrap=True)
    for policy, flight, drafts, cell, ran, every in rows(found.cells):
        divergences = Text(f"{cell.divergences:,}", style="bold red" if cell.divergences else "")
        refused = cell.outside and not cell.steps
        steps = "refused" if refused else f"{cell.steps:,}"
        table.add_row(
            policy, flight, drafts, f"{ran} of {every}", f"{cell.workloads:,}", steps, f"{cell.granting:,}", divergences
        )
    out.print(table)
    switches = "; ".join(f"{word} {cell.steps:,}" for word, cell in by_switch(found.cells))
    out.print(f"\nsteps by setting: {switches}", soft_wrap=True)
    shown = ", ".join(f"{safe(name)} {n:,}" for name, n in reached(found).items())
    out.print(f"reached: {shown}", soft_wrap=True)
    for reason, times in found.refusals.items():
        out.print(f"refused by the engine: {count(times, 'workload')}: {safe(reason, 300)}", soft_wrap=True)
    if found.first is not None:
        out.print()
        show_divergence(out, found.first, found.engine, found.version)


def show_divergence(out: Console, d: Divergence, engine: str, told: str) -> None:
    """Where, both states field by field, the shortened scenario, and the command that shows it again."""
    head = Text.assemble(("DIVERGES ", "bold red"), f"at event {d.event} ({d.what}), step {d.step}: ")
    head.append(", ".join(WORDS[name] for name in d.fields), "bold")
    out.print(head, soft_wrap=True)
    out.print(f"  mode      {d.mode.policy}, {', '.join(d.mode.words)}", soft_wrap=True)
    cells = [
        ("!=" * line.differs, WORDS[line.field], shown(line.engine), shown(line.predicted))
        for line in d.lines
        if line.differs or line.field in CONTEXT
    ]
    wide = [max(map(len, column)) for column in zip(*cells, ("", "state", "engine", ""), strict=True)]
    out.print(f"  {'':<2}  {'state':<{wide[1]}}  {'engine':<{wide[2]}}  predicted", soft_wrap=True)
    for mark, what, real, predicted in cells:
        text = f"  {mark:<2}  {what:<{wide[1]}}  {real:<{wide[2]}}  {predicted}"
        out.print(Text(text, style="red" if mark else ""), soft_wrap=True)
    out.print("  scenario, shortened")
    for text in dumps(d.scenario).splitlines():
        out.print(f"    {safe(text)}", soft_wrap=True)
    out.print(f"  again     {command(d, engine, told)}", soft_wrap=True)


def command(d: Divergence, engine: str, told: str) -> str:
    """The command line that runs the workload of a divergence, unshortened."""
    mode = f"--policy {d.mode.policy} --mode {','.join(d.mode.words)}"
    return f"preempt-oracle lockstep {engine}=={told} {mode} --seed {d.seed} --workloads 1"


def shown(value: Any) -> str:
    """A field of a state in a few words."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{safe(str(k))}: {shown(v)}" for k, v in value.items()) or "none"
    if isinstance(value, set | frozenset):
        return ", ".join(sorted(map(shown, value))) or "none"
    if isinstance(value, tuple):
        return "[" + " ".join(map(shown, value)) + "]" if value else "none"
    return safe(str(value), 300)


# -- JSON -------------------------------------------------------------------------------------------------------------


class ModeRow(msgspec.Struct, frozen=True):
    """A combination of settings.

    `granting`: steps that granted tokens; `refused`: workloads the engine refused; `reached`: what the others came to.
    """

    policy: str
    mode: tuple[str, ...]
    workloads: int
    steps: int
    granting: int
    events: int
    divergences: int
    refused: int
    reached: dict[str, int]


class FieldRow(msgspec.Struct, frozen=True):
    """A field of both states, in words."""

    field: str
    what: str
    engine: str
    predicted: str
    differs: bool


class DivergenceRow(msgspec.Struct, frozen=True):
    """The first divergence. `scenario`: shortened, as TOML; `again`: the command that runs the whole workload."""

    policy: str
    mode: tuple[str, ...]
    seed: int
    event: int
    step: int
    what: str
    fields: tuple[FieldRow, ...]
    scenario: str
    again: str


class Report(msgspec.Struct, frozen=True):
    """A campaign. `broken`: why the harness gave up, if it did."""

    format: str
    format_version: int
    preempt_oracle: str
    engine: str
    version: str
    seed: int
    seconds: float
    workloads: int
    steps: int
    granting: int
    divergences: int
    interrupted: bool
    broken: str
    reached: dict[str, int]
    modes: tuple[ModeRow, ...]
    first: DivergenceRow | None


def document(found: Lockstep) -> bytes:
    """The report as JSON."""
    cells = sorted(found.cells.items(), key=lambda x: (x[0].policy, x[0].words))
    report = Report(
        FORMAT,
        FORMAT_VERSION,
        version(),
        found.engine,
        found.version,
        found.seed,
        round(found.seconds, 3),
        found.workloads,
        found.steps,
        found.granting,
        found.divergences,
        found.interrupted,
        found.broken,
        dict(reached(found)),
        tuple(
            ModeRow(
                m.policy,
                m.words,
                c.workloads,
                c.steps,
                c.granting,
                c.events,
                c.divergences,
                c.outside,
                {name: times for name, times in c.reached.items() if times},
            )
            for m, c in cells
        ),
        None if found.first is None else _first(found.first, found),
    )
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def _first(d: Divergence, found: Lockstep) -> DivergenceRow:
    again = command(d, found.engine, found.version)
    lines = tuple(map(_field, d.lines))
    return DivergenceRow(d.mode.policy, d.mode.words, d.seed, d.event, d.step, d.what, lines, dumps(d.scenario), again)


def _field(line: Line) -> FieldRow:
    return FieldRow(line.field, WORDS[line.field], shown(line.engine), shown(line.predicted), line.differs)
