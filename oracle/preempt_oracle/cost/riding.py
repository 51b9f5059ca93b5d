"""How many tokens of a recompute ride along in a decode step, by three ways to count, and how long a victim waits."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from attrs import evolve, frozen

from preempt_spec.cost.recompute import Device
from preempt_spec.cost.shape import Shape
from preempt_spec.cost.spare import (
    decode_step_time,
    piggyback_break_even,
    piggyback_time,
    spare_tokens,
    spare_tokens_by_kernel,
    spare_tokens_with_attention,
)
from preempt_spec.cost.swap import crossings

from .question import Question

ONE: Final = Fraction(1)
#: The counts, from the most hopeful to the most careful.
COUNTS: Final = ("by products over the whole step", "with attention charged", "by products, kernel by kernel")


@frozen
class Spare:
    """Tokens per step; 0 or less: the step has nothing to spare."""

    question: Question
    batch: Fraction
    context: Fraction
    step: Fraction
    """Seconds of the decode step."""
    counts: tuple[Fraction, ...]
    """At the efficiencies asked for, in the order of `COUNTS`."""
    at_peak: tuple[Fraction, ...]
    """The same at the peak."""
    wait: Fraction | None
    """Seconds until a victim as long as the context has ridden along, attention charged; None: it never would."""
    break_even: Fraction | None
    """Effective bytes/s per direction below which that is sooner than a swap; None: never, or there are windows."""


def spare(question: Question, batch: Fraction, context: Fraction) -> Spare:
    """What a decode step of `batch` requests of `context` tokens each has to spare."""
    shape, device = question.setting.shape, question.setting.device
    peak = evolve(device, gemm_efficiency=ONE, attention_efficiency=ONE)
    step = decode_step_time(shape, device, batch, context)
    counts = _counts(shape, device, step, batch, context)
    riding = counts[1]
    wait, even = None, None
    if riding > 0:
        wait = piggyback_time(context, riding, step)
        if shape.state is None and all(layers.window is None for layers in shape.layers):
            even = piggyback_break_even(shape, riding, step, crossings(question.setting.transfer))
    return Spare(question, batch, context, step, counts, _counts(shape, peak, step, batch, context), wait, even)


def _counts(
    shape: Shape[Fraction], device: Device[Fraction], step: Fraction, batch: Fraction, context: Fraction
) -> tuple[Fraction, ...]:
    return (
        spare_tokens(shape, device, step, batch),
        # A token of a victim as long as the others sees half of it on average.
        spare_tokens_with_attention(shape, device, step, batch, context, context / 2),
        spare_tokens_by_kernel(shape, device, batch),
    )
