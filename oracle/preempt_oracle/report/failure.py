"""A failure in full: the rule and its sentence, where, the last steps, the diverging state, how to see it again."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from preempt_oracle.divergence import Compared
from preempt_oracle.report.cause import CAUSES
from preempt_oracle.report.steps import show_last
from preempt_oracle.report.words import count, safe
from preempt_oracle.verdict import EXCUSED, Failure
from preempt_spec.rules import RULES

EVENTS = 6  # shown of a failure's context


def show_failure(out: Console, failure: Failure, times: int = 1) -> None:
    """Print one failure."""
    rule = RULES[failure.violation.rule]
    word, style = _word(failure)
    head = Text.assemble((word, style), (rule.id, "bold"), f" ({rule.kind.value}): {rule.sentence}")
    out.print(head, soft_wrap=True)
    field(out, "what", failure.violation.message)
    step = f", step {failure.frame}" if failure.frame >= 0 else ""
    moment = f", at {failure.divergence.moment}" if failure.divergence else ""
    field(out, "where", f"{failure.where}{step}{moment}")
    if times > 1:
        field(out, "seen", f"{count(times, 'run')} broke this rule; this is the first")
    if failure.known:
        field(out, "known", failure.known)
        return  # somebody has looked at it already
    cause = CAUSES[rule.id]
    field(out, "cause", f"most likely {cause[0].lower()}{cause[1:]}")
    if failure.tail:
        show_last(out, failure.tail, EVENTS)
    if failure.divergence:
        _diff(out, failure.divergence.books)
    if failure.note:
        field(out, "scenario", failure.note)
    if failure.replay:
        # Never wrapped: it is there to be copied.
        out.print(f"  replay    {safe(failure.replay)}", soft_wrap=True)


def _word(failure: Failure) -> tuple[str, str]:
    """What was seen out of contract accuses nobody; an advisory rule, or what is known, changes no verdict."""
    if failure.note == EXCUSED:
        return "EXCUSED ", "yellow"
    if failure.advisory:
        return "ADVISORY ", "yellow"
    return ("KNOWN ", "yellow") if failure.known else ("FAILED ", "bold red")


def field(out: Console, name: str, value: str) -> None:
    """One labelled line."""
    out.print(f"  {name:<9} {safe(value)}", soft_wrap=True)


def _diff(out: Console, books: tuple[Compared, ...]) -> None:
    """The engine's books beside the shadow state; `!=` marks a line on which they disagree."""
    cells = [("!=" * c.differs, safe(c.what), safe(c.engine or "-", 300), safe(c.shadow, 300)) for c in books]
    compared = [c for c in cells if not c[1].startswith("request ")]
    wide = [max(map(len, column)) for column in zip(*compared, ("", "", "engine says", ""), strict=True)]
    out.print(f"  {'state':<{wide[1] + 4}}  {'engine says':<{wide[2]}}  the shadow state has", soft_wrap=True)
    for mark, what, engine, shadow in compared:
        text = f"  {mark:<2}  {what:<{wide[1]}}  {engine:<{wide[2]}}  {shadow}"
        out.print(Text(text, style="red" if mark else ""), soft_wrap=True)
    for _, what, _, shadow in cells:
        if what.startswith("request "):
            out.print(f"      {what}: {shadow}", soft_wrap=True)
