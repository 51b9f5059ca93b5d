"""Two engines that part: the state of both side by side, what led there, and the rules that tell them apart."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from preempt_oracle.lockstep.compare import WORDS
from preempt_oracle.parting import Parting
from preempt_oracle.report.events import line
from preempt_oracle.report.failure import field
from preempt_oracle.report.lockstep import shown
from preempt_oracle.report.words import safe
from preempt_spec.rules import RULES

CONTEXT = ("requests", "running", "waiting", "free")


def show_parting(out: Console, parting: Parting, names: tuple[str, str]) -> None:
    """Print it."""
    head = Text.assemble(
        ("THEY PART ", "bold red"), f"at event {parting.event} ({parting.what}), step {parting.step}: "
    )
    head.append(", ".join(WORDS[name] for name in parting.fields), "bold")
    out.print(head, soft_wrap=True)
    for event in parting.before:
        out.print(f"    {line(event)}", soft_wrap=True)
    rows = [
        ("!=" * x.differs, WORDS[x.field], shown(x.engine), shown(x.predicted))
        for x in parting.lines
        if x.differs or x.field in CONTEXT
    ]
    one, other = (safe(name, 60) for name in names)
    wide = [max(map(len, column)) for column in zip(*rows, ("", "state", one, ""), strict=True)]
    out.print(f"      {'state':<{wide[1]}}  {one:<{wide[2]}}  {other}", soft_wrap=True)
    for mark, what, mine, theirs in rows:
        text = f"  {mark:<2}  {what:<{wide[1]}}  {mine:<{wide[2]}}  {theirs}"
        out.print(Text(text, style="red" if mark else ""), soft_wrap=True)
    if parting.only == ((), ()):
        field(out, "rules", "none tells them apart: both do what the specification allows, or break the same")
    for name, rules in zip((one, other), parting.only, strict=True):
        for rule in rules:
            field(out, "rules", f"only {name} breaks {rule}: {RULES[rule].sentence}")
