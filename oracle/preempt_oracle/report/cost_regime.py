"""The regime map in words."""

from __future__ import annotations

from fractions import Fraction

from preempt_oracle.cost.question import Question
from preempt_oracle.cost.regime import Regime
from preempt_oracle.cost.units import FLOP_RATE, SHARE
from preempt_oracle.cost.wording import show
from preempt_oracle.report.words import safe
from preempt_spec.cost.recompute import Run
from preempt_spec.cost.swap import Directions, Trip


def summary(regime: Regime) -> str:
    """The map in a line."""
    top = max(regime.break_even)
    at = regime.lengths[regime.break_even.index(top)]
    own = f"these copies reach {reach(regime)} GB/s"
    return f"break-even is at most {top / 1e9:.3g} GB/s, at {at:,.0f} tokens; {own}"


def reach(regime: Regime) -> str:
    """What the copies reach, in GB/s; from the shortest length to the longest if that differs."""
    first, last = regime.reached[0], regime.reached[-1]
    return f"{last / 1e9:.3g}" if abs(first / last - 1) < 0.02 else f"{first / 1e9:.3g} to {last / 1e9:.3g}"


def title(question: Question) -> str:
    """What is asked, on one line of the figure."""
    gpus = f" × {question.ranks}" if question.ranks > 1 else ""
    return f"Swap or recompute? {safe(question.model.name, 24)} on {question.accelerator.name}{gpus}"


def subtitle(question: Question) -> str:
    """What the answer rests on."""
    device, transfer = question.setting.device, question.setting.transfer
    peak = show(Fraction(device.peak_flops), FLOP_RATE)
    shares = dict.fromkeys(show(share, SHARE) for share in (device.gemm_efficiency, device.attention_efficiency))
    trip = "write-through: only the way back counts" if transfer.trip is Trip.WRITE_THROUGH else "out and back"
    if transfer.directions is Directions.OVERLAPPED:
        trip = "duplex: the slower way counts"
    run = "recompute alone" if question.setting.run is Run.ALONE else "recompute rides along"
    hit = "" if question.setting.hit is None else f", prefix hit {show(question.setting.hit, SHARE)}"
    return f"{question.kv_dtype} KV, {run} at {' / '.join(shares)} of {peak}, {trip}{hit}"
