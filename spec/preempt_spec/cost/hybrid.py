"""Recompute the front of a request while its rest is loaded: both resources work at once.

The front is the cheaper part to recompute, since its tokens see fewer others; and what is loaded needs nothing of it.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Generic

from attrs import evolve, frozen

from preempt_spec.cost.copies import breakpoints
from preempt_spec.cost.decide import Setting, best_cost
from preempt_spec.cost.lengths import first_where
from preempt_spec.cost.number import N
from preempt_spec.cost.recompute import recompute_time
from preempt_spec.cost.swap import Copies, Hit, moved_bytes, swap_time


@frozen
class Split(Generic[N]):
    """How a request is divided."""

    recomputed: N
    """Tokens at the front that are recomputed; the others are swapped."""
    seconds: N
    """Time of the slower of the two parts."""


def swap_rest(setting: Setting[N], length: N, recomputed: N) -> N:
    """Return the seconds to swap a request of `length` tokens but for its first `recomputed` ones.

    Layers with a window need the window only, a constant state is moved whole.
    """
    return swap_time(setting.shape, evolve(setting.transfer, hit=Hit.SAVES_BYTES), length, recomputed)


def recompute_front(setting: Setting[N], recomputed: N) -> N:
    """Return the seconds to recompute the first `recomputed` (more than 0) tokens."""
    return recompute_time(setting.shape, setting.device, recomputed, 0, setting.run)


def hybrid_time(setting: Setting[N], length: N, recomputed: N) -> N:
    """Return the seconds of a division with 0 < `recomputed` < `length`: the two parts run side by side.

    Without a prefix cache: the setting's hit is not used.
    """
    return max(recompute_front(setting, recomputed), swap_rest(setting, length, recomputed))


def hybrid_split(setting: Setting[N], length: N) -> Split[N]:
    """Return the best division over whole tokens (over whole blocks if blocks are moved whole), the pure ways included.

    Of equally good ones it is a pure way (swap before recompute), else the one with the shortest front. For concrete
    numbers only: it searches. Raises ValueError if the setting has a prefix hit, which is a front of its own.
    """
    if setting.hit is not None:
        raise ValueError("hit: a division of a request that has a prefix hit is not modelled")
    step = setting.transfer.block if setting.transfer.whole_blocks else setting.transfer.block / setting.transfer.block
    last = math.ceil(length / step) - 1  # fronts are 1 … last steps
    splits = [
        Split(0 * length, swap_time(setting.shape, setting.transfer, length)),
        Split(length, recompute_front(setting, length)),
    ]

    def front_takes_longer(k: int) -> bool:
        return recompute_front(setting, k * step) >= swap_rest(setting, length, k * step)

    # Recomputing takes longer as the front grows. Where loading the rest takes less, the best front is next to where
    # the two meet; where it does not (a smaller gathered copy on a slower protocol), it is the first.
    for first, end in pairwise(_bounds(setting, length, step, last)):
        meet = first_where(front_takes_longer, first, end)
        for k in sorted({first, min(meet, end - 1), max(meet - 1, first)}):
            splits.append(Split(k * step, hybrid_time(setting, length, k * step)))
    return min(splits, key=lambda split: split.seconds)


def _bounds(setting: Setting[N], length: N, step: N, last: int) -> list[int]:
    """First fronts of the pieces, in steps, and last + 1: within a piece the time of the rest rises or falls."""
    transfer = evolve(setting.transfer, hit=Hit.SAVES_BYTES)
    sizes: tuple[N, ...] = ()
    if transfer.copies is Copies.GATHERED:
        sizes = (*breakpoints(transfer.out), *breakpoints(transfer.back))

    def below(size: N, k: int) -> bool:
        return moved_bytes(setting.shape, transfer, length, k * step) < size

    return sorted({1, last + 1} | {first_where(partial(below, size), 1, last + 1) for size in sizes})


def hybrid_gain(setting: Setting[N], length: N) -> N:
    """Return how many times faster the best division is than the better pure way (1 or more)."""
    return best_cost(setting, length) / hybrid_split(setting, length).seconds


def linear_hybrid_time(swap_rate: N, recompute_rate: N) -> N:
    """Return the seconds per token of the best division, attention aside: like two resistors in parallel."""
    return swap_rate * recompute_rate / (swap_rate + recompute_rate)
