"""Swap or recompute: the two costs of one request side by side, and the bandwidth at which they are equal."""

from __future__ import annotations

from enum import Enum
from typing import Generic

from attrs import evolve, frozen

from preempt_spec.cost.copies import Affine
from preempt_spec.cost.number import N
from preempt_spec.cost.recompute import Device, Run, cached_tokens, recompute_time
from preempt_spec.cost.shape import Shape
from preempt_spec.cost.swap import (
    Directions,
    Transfer,
    Trip,
    batches,
    crossings,
    moved_bytes,
    swap_bandwidth,
    swap_time,
)


class Choice(Enum):
    """What is done with a preempted request."""

    SWAP = "swap"
    RECOMPUTE = "recompute"


@frozen
class Setting(Generic[N]):
    """A model on a GPU with a link to its host, and how each of the two ways is run."""

    shape: Shape[N]
    device: Device[N]
    transfer: Transfer[N]
    run: Run = Run.ALONE
    hit: N | None = None
    """Share of a request's tokens that the prefix cache still holds at resume, in [0, 1]; None: no prefix cache."""


def smooth(setting: Setting[N]) -> Setting[N]:
    """Return the setting without block rounding: part of a block costs a part."""
    return evolve(setting, transfer=evolve(setting.transfer, whole_blocks=False))


def cached(setting: Setting[N], length: N) -> N | int:
    """Return the tokens of a request of `length` that the prefix cache gives back."""
    if setting.hit is None:
        return 0
    return cached_tokens(length, setting.hit, setting.transfer.block if setting.transfer.whole_blocks else None)


def recompute_cost(setting: Setting[N], length: N) -> N:
    """Return the seconds to recompute a request of `length` tokens."""
    return recompute_time(setting.shape, setting.device, length, cached(setting, length), setting.run)


def swap_cost(setting: Setting[N], length: N) -> N:
    """Return the seconds to swap a request of `length` tokens."""
    return swap_time(setting.shape, setting.transfer, length, cached(setting, length))


def choose(setting: Setting[N], length: N) -> Choice:
    """Return the cheaper way; of equals recompute, which needs no host memory."""
    if swap_cost(setting, length) < recompute_cost(setting, length):
        return Choice.SWAP
    return Choice.RECOMPUTE


def best_cost(setting: Setting[N], length: N) -> N:
    """Return the seconds of the cheaper way."""
    return min(swap_cost(setting, length), recompute_cost(setting, length))


def break_even_bandwidth(setting: Setting[N], length: N) -> N:
    """Return the effective bytes/s per direction at which both cost the same; above it, swap wins.

    Effective: what the copies reach, overhead included (`achieved_bandwidth`), as if equal in both directions.
    """
    counted = moved_bytes(setting.shape, setting.transfer, length, cached(setting, length))
    return crossings(setting.transfer) * counted / recompute_cost(setting, length)


def achieved_bandwidth(setting: Setting[N], length: N) -> N:
    """Return the effective bytes/s per direction that this setting's copies reach: to compare with break-even."""
    return swap_bandwidth(setting.shape, setting.transfer, length, cached(setting, length))


def overhead_cost(setting: Setting[N], length: N) -> N:
    """Return the seconds of a swap over an infinitely fast link: the fixed costs of all its copies.

    Raises ValueError if a law is not affine: a measured curve has no such part.
    """
    if not isinstance(setting.transfer.out, Affine) or not isinstance(setting.transfer.back, Affine):
        raise ValueError("out, back: only affine laws have a fixed cost per copy")
    copies = batches(setting.shape, setting.transfer, length, cached(setting, length))
    count = sum((b.count for b in copies), start=0 * length)
    out, back = count * setting.transfer.out.overhead, count * setting.transfer.back.overhead
    return _both(setting.transfer, out, back)


def _both(transfer: Transfer[N], out: N, back: N) -> N:
    """The two directions as the transfer counts them."""
    if transfer.trip is Trip.WRITE_THROUGH:
        return back
    if transfer.directions is Directions.OVERLAPPED:
        return max(out, back)
    return out + back


def break_even_link(setting: Setting[N], length: N) -> N | None:
    """Return the bytes/s per direction a link must have, the overhead of its copies given, for both to cost the same.

    None: recompute wins over a link of any speed, since the copies' overhead alone takes as long. The laws' own
    bandwidths are not used. Raises ValueError if a law is not affine.
    """
    left = recompute_cost(setting, length) - overhead_cost(setting, length)
    if left <= 0:
        return None
    counted = moved_bytes(setting.shape, setting.transfer, length, cached(setting, length))
    return crossings(setting.transfer) * counted / left


def speed_up(setting: Setting[N], length: N) -> N:
    """Return how many times faster swap is than recompute (below 1: slower)."""
    return recompute_cost(setting, length) / swap_cost(setting, length)


def cost_of(setting: Setting[N], length: N, choice: Choice) -> N:
    """Return the seconds of one way."""
    return swap_cost(setting, length) if choice is Choice.SWAP else recompute_cost(setting, length)


def regret(actual: Setting[N], believed: Setting[N], length: N) -> N:
    """Return the factor (1 or more) over the best cost that choosing by a wrong estimate costs."""
    return cost_of(actual, length, choose(believed, length)) / best_cost(actual, length)


def regret_bound(actual: N, believed: N) -> N:
    """Return the most that a wrong estimate of one rate (bandwidth or FLOP/s) can cost: its own factor of error."""
    return max(actual / believed, believed / actual)
