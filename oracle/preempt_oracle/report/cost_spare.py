"""Spare compute, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from rich.console import Console

from preempt_oracle.cost.riding import COUNTS, Spare
from preempt_oracle.cost.units import BANDWIDTH, SECONDS, SHARE, TOKENS
from preempt_oracle.cost.wording import show
from preempt_oracle.report.cost import grid, whole
from preempt_oracle.report.cost_json import Document, Number, QuestionRow, head, maybe, number, question_row
from preempt_oracle.report.document import encode
from preempt_oracle.report.words import safe
from preempt_spec.cost.decide import achieved_bandwidth


class CountRow(msgspec.Struct, frozen=True):
    """Tokens per step by one way to count; 0 or less: nothing to spare."""

    how: str
    tokens: Number
    tokens_at_peak: Number


class SpareDocument(Document, frozen=True):
    """Of `cost spare`."""

    question: QuestionRow
    batch: int
    context_tokens: int
    step_seconds: Number
    counts: tuple[CountRow, ...]
    wait_seconds: Number | None
    break_even_bytes_per_second: Number | None


def spare_document(s: Spare) -> bytes:
    """Of `cost spare`."""
    rows = zip(COUNTS, map(number, s.counts), map(number, s.at_peak), strict=True)
    return encode(
        SpareDocument(
            *head("spare"),
            question_row(s.question),
            int(s.batch),
            int(s.context),
            number(s.step),
            tuple(CountRow(*row) for row in rows),
            maybe(s.wait),
            maybe(s.break_even),
        )
    )


def show_spare(out: Console, s: Spare) -> None:
    """The step, the counts, the wait."""
    q = s.question
    gpus = f" × {q.ranks}" if q.ranks > 1 else ""
    who = f"{safe(q.model.name, 80)} on {q.accelerator.name}{gpus}"
    step = f"a memory-bound decode step of {show(s.batch, TOKENS)} requests at {show(s.context, TOKENS)} tokens"
    out.print(f"{who}: {step} takes {show(s.step, SECONDS)}\n", soft_wrap=True)
    device = q.setting.device
    efficiencies = dict.fromkeys(show(x, SHARE) for x in (device.gemm_efficiency, device.attention_efficiency))
    table = grid("tokens that ride along in it", f"at {' / '.join(efficiencies)} of peak", "at peak")
    for name, tokens, most in zip(COUNTS, s.counts, s.at_peak, strict=True):
        table.add_row(name, *(show(x, TOKENS) if x > 0 else "none" for x in (tokens, most)))
    whole(out, table)
    out.print()
    for line in _wait(s):
        out.print(line, soft_wrap=True)


def _wait(s: Spare) -> Iterator[str]:
    if s.wait is None:
        yield "With attention charged the step has no compute to spare: a recompute takes its time from others."
        return
    wait = f"{show(s.wait, SECONDS)}, {float(s.wait / s.step):,.1f} steps"
    yield f"A victim of {show(s.context, TOKENS)} tokens is back after {wait}, others lose nothing (attention charged)."
    if s.break_even is not None:
        own = achieved_bandwidth(s.question.setting, s.context)
        way = "a swap" if own > s.break_even else "riding along"
        bound, reached = show(s.break_even, BANDWIDTH), show(own, BANDWIDTH)
        yield f"A swap is sooner above {bound} per direction, effective; these copies reach {reached}: {way} is sooner."
