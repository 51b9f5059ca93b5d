"""What the cost model says to a question at one length: both costs, what would turn the answer, and its proof."""

from __future__ import annotations

from fractions import Fraction

from attrs import evolve, frozen

from preempt_spec.cost.certify import Certificate, certify
from preempt_spec.cost.copies import Affine, overhead_for, size_for
from preempt_spec.cost.decide import (
    Choice,
    achieved_bandwidth,
    break_even_bandwidth,
    cached,
    choose,
    recompute_cost,
    swap_cost,
)
from preempt_spec.cost.hybrid import Split, hybrid_split
from preempt_spec.cost.lengths import Span, recompute_lengths
from preempt_spec.cost.swap import Batch, moved_bytes

from .copying import beyond
from .question import Question, copies_of


@frozen
class Answer:
    """Seconds, bytes and bytes/s are per request and GPU; bandwidths per direction."""

    question: Question
    length: Fraction
    choice: Choice
    swap: Fraction
    recompute: Fraction
    kv_bytes: Fraction
    """Bytes that cross the link in one direction."""
    copies: tuple[Batch[Fraction], ...]
    """Copies of one direction."""
    break_even: Fraction
    """Effective bytes/s at which both cost the same."""
    achieved: Fraction
    """Effective bytes/s of the copies as described."""
    most_overhead: Fraction | None
    """Seconds per copy below which swap wins with copies of this size; None: does not apply, or it never does."""
    least_size: Fraction | None
    """Bytes per copy above which swap wins with this overhead; None: does not apply, or no size does."""
    recompute_lengths: tuple[Span, ...]
    """Lengths up to the question's longest at which recompute is cheaper, block rounding aside."""
    certificate: Certificate[Fraction]
    hybrid: Split[Fraction] | None
    """The best division between both; None: not modelled with a prefix hit."""

    @property
    def margin(self) -> Fraction:
        """How many times faster the winner is (1 or more)."""
        return max(self.swap, self.recompute) / min(self.swap, self.recompute)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the numbers rest on that nobody measured."""
        sizes = dict.fromkeys(batch.size for batch in self.copies)
        return tuple(said for size in sizes if (said := beyond(self.question.path, size)))


def answer(question: Question, length: Fraction) -> Answer:
    """The answer at `length` tokens, which the question has checked."""
    setting = question.setting
    copies = copies_of(question, length)
    overhead, size = _turning_points(question, length, copies)
    return Answer(
        question,
        length,
        choice=choose(setting, length),
        swap=swap_cost(setting, length),
        recompute=recompute_cost(setting, length),
        kv_bytes=moved_bytes(setting.shape, setting.transfer, length, cached(setting, length)),
        copies=copies,
        break_even=break_even_bandwidth(setting, length),
        achieved=achieved_bandwidth(setting, length),
        most_overhead=overhead,
        least_size=size,
        recompute_lengths=recompute_lengths(setting, question.longest),
        certificate=certify(setting, length),
        hybrid=None if setting.hit is not None else hybrid_split(setting, length),
    )


def _turning_points(
    question: Question, length: Fraction, copies: tuple[Batch[Fraction], ...]
) -> tuple[Fraction | None, Fraction | None]:
    """The overhead and the size of a copy at which the answer turns, where all copies are alike and the law affine."""
    out, back = question.path.given
    if not isinstance(out, Affine) or not isinstance(back, Affine) or out.overhead == 0 or len(copies) != 1:
        return None, None
    setting = question.setting
    wanted = break_even_bandwidth(setting, length)
    # Both directions as one: what they reach together if a copy costs nothing but its bytes.
    free = evolve(setting.transfer, out=Affine(Fraction(0), out.bandwidth), back=Affine(Fraction(0), back.bandwidth))
    link = achieved_bandwidth(evolve(setting, transfer=free), length)
    if link <= wanted:
        return None, None
    return overhead_for(copies[0].size, link, wanted), size_for(Affine(out.overhead, link), wanted)
