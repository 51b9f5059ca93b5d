"""The table of theorems, their counterexamples in real units, and what the second solver says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from preempt_oracle.prove import rendered
from preempt_oracle.report.words import count, safe
from preempt_oracle.second_solver import Second
from preempt_properties.theorems import Theorem
from preempt_properties.z3.verdict import Verdict


def show_table(
    out: Console, theorems: Sequence[Theorem], verdicts: Sequence[Verdict], second: Mapping[str, Second]
) -> None:
    """One line for each: id, verdict, milliseconds (of both solvers, if both were asked), sentence."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("theorem", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("ms", justify="right", no_wrap=True)
    if second:
        table.add_column("cvc5", no_wrap=True)
        table.add_column("ms", justify="right", no_wrap=True)
    table.add_column("sentence")
    for theorem, verdict in zip(theorems, verdicts, strict=True):
        cells: list[str | Text] = [theorem.id, _verdict(verdict), f"{verdict.ms:.0f}"]
        if second:
            answer = second.get(theorem.id)
            cells += [_answer(answer), f"{answer.ms:.0f}"] if answer else ["-", "-"]
        table.add_row(*cells, theorem.sentence)
    out.print(table)


def _verdict(verdict: Verdict) -> Text:
    return Text(verdict.outcome.value, style="green" if verdict.stands else "bold red")


def _answer(answer: Second) -> Text:
    if answer.undecided:
        return Text("undecided", style="yellow")
    return Text("DISAGREES" if answer.wrong else "agrees", style="bold red" if answer.wrong else "green")


def show_details(out: Console, theorem: Theorem, verdict: Verdict, *, full: bool) -> None:
    """Why a theorem does not stand; the point of a counterexample or witness; `full`: what is granted, too."""
    if verdict.stands and not verdict.point and not full:
        return
    out.print()
    out.print(Text.assemble(f"{theorem.id}  ", _verdict(verdict), f"  {theorem.sentence}"), soft_wrap=True)
    if verdict.reason:
        out.print(f"  why: {safe(verdict.reason, 600)}", soft_wrap=True)
    if full:
        for name in theorem.hypotheses:
            out.print(f"  granted: {name}", soft_wrap=True)
            if name in theorem.assumed:
                out.print(f"    though not necessary: {theorem.assumed[name]}", soft_wrap=True)
        for name in theorem.lemmas:
            out.print(f"  by the lemma: {name}", soft_wrap=True)
    if verdict.point:
        values = (f"{name} = {rendered(x, theorem.parameters[name].unit)}" for name, x in verdict.point.items())
        out.print(f"  at {', '.join(values)}", soft_wrap=True)
    for name, x in verdict.shows.items():
        out.print(f"    {name}: {rendered(x, theorem.shows[name][1])}", soft_wrap=True)


def show_second(out: Console, second: Mapping[str, Second]) -> None:
    """How the second solver came out: what it contradicts, and what it cannot decide, by id."""
    out.print()
    agrees = sum(not s.undecided and not s.wrong for s in second.values())
    out.print(f"cvc5 agrees with {agrees} of {count(len(second), 'theorem')}", soft_wrap=True)
    undecided = [id for id, s in second.items() if s.undecided]
    if undecided:
        out.print(f"  undecided in its time: {', '.join(undecided)}", soft_wrap=True)
    for id, s in second.items():
        if s.wrong:
            out.print(f"  DISAGREES on {id}: {safe(s.answer, 300)} instead of {s.expected}", soft_wrap=True)


def show_summary(out: Console, verdicts: Sequence[Verdict]) -> None:
    """One line for all."""
    out.print()
    stand = sum(v.stands for v in verdicts)
    spent = sum(v.ms for v in verdicts)
    slowest = max(verdicts, key=lambda v: v.ms, default=None)
    longest = f", the longest {slowest.ms:.0f} ms ({slowest.id})" if slowest else ""
    words = "all stand" if stand == len(verdicts) else f"{len(verdicts) - stand} DO NOT STAND"
    time = f"{spent / 1000:.1f} s of processor time{longest}"
    out.print(f"{count(len(verdicts), 'theorem')}: {words}; {time}", soft_wrap=True)
