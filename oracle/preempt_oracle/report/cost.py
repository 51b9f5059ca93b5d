"""The answers of the cost model as text: the verdict first, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from preempt_oracle.cost.answer import Answer
from preempt_oracle.cost.units import BANDWIDTH, BYTES, FLOP_RATE, SECONDS, TOKENS, Dimension
from preempt_oracle.cost.wording import show, show_factor
from preempt_oracle.report.words import safe
from preempt_spec.cost.certify import Certificate, Range
from preempt_spec.cost.decide import Choice
from preempt_spec.cost.lengths import Span

WINS = {Choice.SWAP: "SWAP wins", Choice.RECOMPUTE: "RECOMPUTE wins"}
STYLE = {Choice.SWAP: "bold blue", Choice.RECOMPUTE: "bold yellow"}


def show_answer(out: Console, a: Answer) -> None:
    """The verdict, both costs, where the answer turns, the certificate, the assumptions."""
    out.print(verdict(a), soft_wrap=True)
    out.print(subject(a), soft_wrap=True)
    for warning in warnings(a):
        out.print(Text(safe(warning, 400), style="yellow"), soft_wrap=True)
    out.print()
    costs = grid("", "per request", "per token")
    for name, seconds in (("swap", a.swap), ("recompute", a.recompute)):
        costs.add_row(name, show(seconds, SECONDS), show(seconds / a.length, SECONDS))
    whole(out, costs)
    out.print()
    for name, text in turns(a):
        out.print(f"{name + ':':<22} {text}", soft_wrap=True)
    out.print()
    show_certificate(out, a.certificate)
    out.print("\nAssumed")
    for text in a.question.assumptions:
        if not text.startswith("WARNING"):
            out.print(f"  {safe(text, 400)}", soft_wrap=True)


def verdict(a: Answer) -> Text:
    """One line: who wins, and by how much."""
    costs = {Choice.SWAP: a.swap, Choice.RECOMPUTE: a.recompute}
    won = costs.pop(a.choice)
    ((_, lost),) = costs.items()
    if won == lost:
        return Text(f"BOTH cost the same, {show(won, SECONDS)}", style="bold")
    factor = f"{show_factor(a.margin)} times faster"
    line = Text.assemble((WINS[a.choice], STYLE[a.choice]))
    return line.append(f": {show(won, SECONDS)} against {show(lost, SECONDS)}, {factor}")


def subject(a: Answer) -> str:
    """One line: what was asked about."""
    q = a.question
    gpus = f" × {q.ranks}" if q.ranks > 1 else ""
    each = " per GPU" if q.ranks > 1 else ""
    kv = f"{show(a.kv_bytes, BYTES)} of KV{each} each way" if a.kv_bytes else "no KV to move"
    return f"{safe(q.model.name, 80)} on {q.accelerator.name}{gpus}, {show(a.length, TOKENS)} tokens, {kv}"


def warnings(a: Answer) -> Iterator[str]:
    """What a reader must not overlook."""
    yield from (text for text in a.question.assumptions if text.startswith("WARNING"))
    yield from a.warnings


def turns(a: Answer) -> Iterator[tuple[str, str]]:
    """Where the answer turns, quantity by quantity."""
    reached = show(a.achieved, BANDWIDTH)
    wanted = show(a.break_even, BANDWIDTH)
    yield "break-even bandwidth", f"{wanted} per direction, effective; these copies reach {reached}"
    sizes = list(dict.fromkeys(batch.size for batch in a.copies))
    if a.most_overhead is not None:
        yield "break-even overhead", f"{show(a.most_overhead, SECONDS)} per copy of {show(sizes[0], BYTES)}"
    if a.least_size is not None:
        yield "break-even copy size", f"{show(a.least_size, BYTES)} at that overhead; these are {show(sizes[0], BYTES)}"
    yield "recompute wins", lengths(a.recompute_lengths, a.question.longest)
    if a.hybrid is not None:
        yield "both at once", hybrid(a)


def lengths(spans: Sequence[Span], longest: int) -> str:
    """The lengths at which recompute wins, in words."""
    if not spans:
        return f"at no length up to {longest:,} tokens"
    if spans == (Span(1, longest),):
        return f"at every length up to {longest:,} tokens"
    shown = [f"{s.first:,} to {s.last:,}" if s.last < longest else f"{s.first:,} and more" for s in spans]
    return f"at {' and '.join(shown)} tokens (of 1 to {longest:,})"


def hybrid(a: Answer) -> str:
    """What recomputing the front while the rest is loaded would bring."""
    split = a.hybrid
    assert split is not None
    if not 0 < split.recomputed < a.length:
        return "no division between both is faster"
    gain = show_factor(min(a.swap, a.recompute) / split.seconds)
    front = f"the first {show(split.recomputed, TOKENS)} tokens"
    return f"{show(split.seconds, SECONDS)}, {gain} times faster: recompute {front} while the others are swapped"


def show_certificate(out: Console, c: Certificate[Fraction]) -> None:
    """The box in which the answer stays the same. Bounds are rounded inwards: what is printed is proved."""
    loser = "recompute" if c.winner is Choice.SWAP else "swap"
    out.print(f"Certificate: {c.winner.value} takes no longer than {loser} for", soft_wrap=True)
    for name, r, dimension in (
        ("effective bandwidth", c.bandwidth, BANDWIDTH),
        ("GEMM rate", c.flops, FLOP_RATE),
        ("memory bandwidth", c.memory, BANDWIDTH),
        ("length", c.length, TOKENS),
    ):
        out.print(f"  {name:<20} {bounds(r, dimension)}", soft_wrap=True)
    out.print("because")
    for sentence in c.why:
        out.print(f"  {sentence}", soft_wrap=True)


def bounds(r: Range[Fraction], dimension: Dimension) -> str:
    """A range in words."""
    least = None if r.least is None else inwards(r.least, dimension, up=True)
    most = None if r.most is None else inwards(r.most, dimension, up=False)
    if least is None and most is None:
        return "any"
    unit = " tokens" if dimension.whole else ""
    if least is None:
        return f"{most}{unit} or less"
    if most is None:
        return f"{least}{unit} or more"
    return f"{most}{unit}" if r.least == r.most else f"{least} to {most}{unit}"


def inwards(bound: Fraction, dimension: Dimension, *, up: bool) -> str:
    """A bound for people that claims no more than the exact one does."""
    if dimension.whole:
        return f"{-(-bound // 1) if up else bound // 1:,}"
    nudge = Fraction(1001, 1000) if up else Fraction(999, 1000)
    for candidate in (bound, bound * nudge):
        text = show(candidate, dimension)
        number, unit = text.split(" ")
        shown = Fraction(number) * dimension.units[unit]
        if shown == bound or (shown > bound) is up:
            return text
    raise AssertionError(f"{bound} cannot be shown")  # a nudge is more than the rounding of four digits


def grid(*columns: str, left: int = 1) -> Table:
    """A table without lines but below its heading; the first columns to the left, the others to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i < left else "right", no_wrap=True)
    return table


def whole(out: Console, table: Table) -> None:
    """A table with every digit in it, also where the lines become too long: a terminal breaks them, nothing is lost."""
    narrow, out.width = out.width, max(out.width, 200)
    out.print(table)
    out.width = narrow


def show_comparison(out: Console, answers: Iterable[Answer], left_out: Iterable[tuple[str, str]]) -> None:
    """One line per model."""
    warned: dict[str, list[str]] = {}
    table = grid("model", "KV/token", "copy", "break-even", "swap", "recompute", "winner", "by", "recompute wins at")
    gb = 10**9
    for a in answers:
        setting = a.question.setting
        per_token = sum((layers.kv_bytes for layers in setting.shape.layers), start=Fraction(0))
        sizes = list(dict.fromkeys(batch.size for batch in a.copies))
        for warning in warnings(a):
            warned.setdefault(warning, []).append(a.question.model.id)
        table.add_row(
            safe(a.question.model.id, 30),
            show(per_token, BYTES),
            show(sizes[0], BYTES) if len(sizes) == 1 else "several",
            f"{float(a.break_even / gb):.3g} GB/s",
            show(a.swap, SECONDS, 3),
            show(a.recompute, SECONDS, 3),
            Text(a.choice.value, style=STYLE[a.choice].removeprefix("bold ")),
            f"{float(a.margin):.3g}×",
            _brief(a.recompute_lengths, a.question.longest),
        )
    whole(out, table)
    for warning, models in warned.items():
        text = f"{safe(warning, 300)} ({', '.join(safe(m, 60) for m in models)})"
        out.print(Text(text, style="yellow"), soft_wrap=True)
    for name, reason in left_out:
        out.print(f"left out: {safe(name, 60)}: {safe(reason, 200)}", soft_wrap=True)


def _brief(spans: Sequence[Span], longest: int) -> str:
    if not spans:
        return "none"
    return ", ".join(f"{s.first:,} to {s.last:,}" if s.last < longest else f"{s.first:,} and more" for s in spans)
