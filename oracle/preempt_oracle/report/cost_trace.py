"""The price of a trace's preemptions, as text and as JSON."""

from __future__ import annotations

import msgspec
from rich.console import Console

from preempt_oracle.cost.trace import Price
from preempt_oracle.cost.units import SECONDS
from preempt_oracle.cost.wording import show
from preempt_oracle.report.cost import grid, whole
from preempt_oracle.report.cost_json import Document, Number, QuestionRow, head, number, question_row
from preempt_oracle.report.document import encode
from preempt_oracle.report.words import count, safe


class PreemptionRow(msgspec.Struct, frozen=True):
    """One victim, once. `hit_tokens` null: it never came back."""

    request: str
    kept_tokens: int
    hit_tokens: int | None


class TraceDocument(Document, frozen=True):
    """Of `cost trace`."""

    trace: str
    engine: str
    question: QuestionRow
    granted_tokens: int
    recomputed_tokens: int
    recompute_seconds: Number
    swap_seconds: Number
    cheaper_seconds: Number
    swap_is_cheaper_for: int
    recompute_share_of_arithmetic: Number
    preemptions: tuple[PreemptionRow, ...]


def trace_document(price: Price) -> bytes:
    """Of `cost trace`."""
    told = price.story
    return encode(
        TraceDocument(
            *head("trace"),
            told.name,
            told.engine,
            question_row(price.question),
            told.tokens,
            price.recomputed,
            number(price.recompute),
            number(price.swap),
            number(price.best),
            price.swaps,
            number(price.tax),
            tuple(PreemptionRow(p.request, p.kept, p.hit) for p in told.preemptions),
        )
    )


def show_price(out: Console, price: Price) -> None:
    """What the preemptions cost, and what they would have cost the other way."""
    told, q = price.story, price.question
    gpus = f" × {q.ranks}" if q.ranks > 1 else ""
    named = f"{safe(told.name, 200)}: {safe(told.engine, 120)}"
    out.print(f"{named}; priced as {safe(q.model.name, 80)} on {q.accelerator.name}{gpus}", soft_wrap=True)
    total = len(told.preemptions)
    back = [p for p in told.preemptions if p.hit is not None]
    found = sum(p.hit or 0 for p in back)
    returned = "all came back" if len(back) == total else f"{len(back)} came back"
    victims = f"{count(total, 'preemption')} of {count(len({p.request for p in told.preemptions}), 'request')}"
    hits = f", {count(found, 'token')} found again by prefix hits" if found else ""
    if not total:
        out.print("no preemption: nothing was paid", soft_wrap=True)
    else:
        out.print(f"{victims}, {returned}{hits}\n", soft_wrap=True)
        table = grid("", "in all", "per preemption")
        for name, seconds in (
            ("recompute", price.recompute), ("swap instead", price.swap), ("the cheaper way for each", price.best),
        ):  # fmt: skip
            table.add_row(name, show(seconds, SECONDS), show(seconds / total, SECONDS))
        whole(out, table)
        tax = f"{float(price.tax):.2%} of the arithmetic ({price.recomputed:,} of {told.tokens:,} granted tokens)"
        out.print(f"\nrecompute tax: {tax}", soft_wrap=True)
        out.print(f"swap is the cheaper way for {price.swaps} of the {len(back)} that came back", soft_wrap=True)
    out.print("\nAssumed")
    for text in q.assumptions:
        out.print(f"  {safe(text, 400)}", soft_wrap=True)
