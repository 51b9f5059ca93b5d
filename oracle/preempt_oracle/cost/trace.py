"""What the preemptions of a recorded trace cost, and what they would have cost the other way.

The trace says who was preempted with how many tokens computed, and where each came back to: a prefix hit is what the
engine really found. The prices are the model's. Work is counted from grants; `check` is what judges them.
"""

from __future__ import annotations

from fractions import Fraction
from os import PathLike
from typing import BinaryIO

from attrs import define, evolve, field, frozen

from preempt_oracle.trace import wire
from preempt_oracle.trace.acts import Demote
from preempt_oracle.trace.reader import read
from preempt_oracle.trace.streams import display_name
from preempt_spec.cost.recompute import attention_rate, causal_pairs, compute_time, gemm_rate, recompute_time
from preempt_spec.cost.swap import Trip, one_way_time, swap_time

from .copying import beyond
from .errors import CostInputError
from .question import NO_CACHE, Question, copies_of

_HITS = "prefix hits are those of the trace; a swap moves every token nevertheless"


@frozen
class Preemption:
    """One victim, once."""

    request: str
    kept: int
    """Tokens whose KV it had: what is swapped."""
    hit: int | None
    """Tokens that it found again when it came back; None: it never did."""


@define
class Story:
    """What of a trace is priced."""

    name: str
    engine: str
    page_size: int
    """Tokens per block."""
    preemptions: list[Preemption] = field(factory=list)
    tokens: int = 0
    """Granted in all, recomputed ones included."""
    pairs: dict[Fraction | None, Fraction] = field(factory=dict)
    """(query, key) pairs of all grants, by window."""
    longest: int = 0
    """Tokens of the longest request."""


def story(source: str | PathLike[str] | BinaryIO, windows: frozenset[Fraction | None]) -> Story:
    """Read a trace to its footer; `windows`: those of the model's layers. Raises TraceError."""
    lines = read(source)
    _, header = next(lines)
    assert isinstance(header, wire.Header)  # the reader yields it first, or raises
    told = Story(display_name(source), f"{header.engine} {header.version}, {header.policy}", header.groups[0].page_size)
    told.pairs = dict.fromkeys(windows, Fraction(0))
    teller = _Teller(told)
    for _, event in lines:
        if isinstance(event, wire.Step | wire.Control):
            for act in event.acts:
                if isinstance(act, Demote):
                    teller.demoted(act.request)
        if isinstance(event, wire.Step):
            teller.granted(event)
        elif isinstance(event, wire.Abort | wire.Finish | wire.Reject):
            teller.gone(event.request)
    for request in [*teller.stretches, *teller.away]:
        teller.gone(request)
    return told


@define
class _Teller:
    """Follows the requests of a trace."""

    told: Story
    stretches: dict[str, tuple[int, int]] = field(factory=dict)
    """Tokens from … to that a request was granted without a break: attention adds up over chunks, so that a stretch can
    be counted at once."""
    away: dict[str, int] = field(factory=dict)
    """Victims that are not back, and the tokens they had."""

    def granted(self, step: wire.Step) -> None:
        told, stretches, away = self.told, self.stretches, self.away
        told.tokens += sum(step.tokens)
        hits = {hit.request: hit.tokens for hit in step.hits} if step.hits else {}
        for i, (request, tokens) in enumerate(zip(step.requests, step.tokens, strict=True)):
            first, last = stretches.get(request, (-1, hits.get(request, 0)))
            begun = last if step.start is None else step.start[i]
            if request in away:
                kept = away.pop(request)
                told.preemptions.append(Preemption(request, kept, min(begun, kept)))
            if first >= 0 and begun != last:  # such as behind rejected drafts
                self._counted(first, last)
                first = begun
            stretches[request] = (begun if first < 0 else first, begun + tokens)

    def demoted(self, request: str) -> None:
        first, last = self.stretches.pop(request, (0, 0))
        self._counted(first, last)
        self.away[request] = last

    def gone(self, request: str) -> None:
        self._counted(*self.stretches.pop(request, (0, 0)))
        if request in self.away:
            self.told.preemptions.append(Preemption(request, self.away.pop(request), None))

    def _counted(self, first: int, last: int) -> None:
        self.told.longest = max(self.told.longest, last)
        for window in self.told.pairs:
            self.told.pairs[window] += causal_pairs(Fraction(last), Fraction(first), window)


@frozen
class Price:
    """Seconds, over all preemptions of a trace."""

    story: Story
    question: Question
    recompute: Fraction
    """What recomputing them took, by the model."""
    swap: Fraction
    """What swapping all of them would have taken."""
    best: Fraction
    """What the cheaper way for each would have taken."""
    swaps: int
    """For how many swap is the cheaper way."""
    recomputed: int
    """Tokens computed again."""
    arithmetic: Fraction
    """Of everything that was granted, recomputed tokens included."""
    again: Fraction
    """Of the tokens that were computed again."""

    @property
    def tax(self) -> Fraction:
        """The share of the arithmetic that went into computing again; 0 for a trace without grants."""
        return self.again / self.arithmetic if self.arithmetic else Fraction(0)


def windows_of(question: Question) -> frozenset[Fraction | None]:
    """The windows of the model's attention layers."""
    return frozenset(layers.window for layers in question.setting.shape.layers)


def price(told: Story, question: Question) -> Price:
    """Price a story. Raises CostInputError if a request is longer than the model can have it."""
    if told.longest > question.longest:
        limit = f"a context of {question.longest} tokens, and a request has {told.longest}"
        raise CostInputError(told.name, "", f"{question.model.name} has {limit}")
    said = [_HITS if text == NO_CACHE else text for text in question.assumptions]
    sizes = {b.size: None for p in told.preemptions if p.kept for b in copies_of(question, Fraction(p.kept))}
    said += filter(None, (beyond(question.path, size) for size in sizes))
    question = evolve(question, assumptions=tuple(said))
    s = question.setting
    shape, device, transfer = s.shape, s.device, s.transfer
    recompute, swap, best = Fraction(0), Fraction(0), Fraction(0)
    again, swaps, recomputed = Fraction(0), 0, 0
    for p in told.preemptions:
        kept = Fraction(p.kept)
        if p.hit is None:
            # It never came back: nothing was computed again, and of a swap only the way out would have been paid.
            gone = transfer.trip is Trip.WRITE_THROUGH or not p.kept
            swap += 0 if gone else one_way_time(shape, transfer, transfer.out, kept)
            continue
        if p.kept == p.hit:
            anew = Fraction(0)
        else:
            anew = recompute_time(shape, device, kept, Fraction(p.hit), s.run)
            again += compute_time(shape, device, kept, Fraction(p.hit))
        moved = swap_time(shape, transfer, kept) if p.kept else Fraction(0)
        recompute, swap, best = recompute + anew, swap + moved, best + min(anew, moved)
        swaps += moved < anew
        recomputed += p.kept - p.hit
    gemm = 2 * shape.params * told.tokens / gemm_rate(device)
    attention = sum((x.pair_flops * told.pairs[x.window] for x in shape.layers), start=Fraction(0))
    arithmetic = gemm + attention / attention_rate(device)
    return Price(told, question, recompute, swap, best, swaps, recomputed, arithmetic, again)
