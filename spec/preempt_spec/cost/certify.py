"""Certificates: one computed point, and a whole box of points for which its answer is proved.

"Swap is never slower for every bandwidth of at least …, every FLOP rate of at most …, every length of at least …." The
box is a value with a function that tells whether a point lies in it, and the sentences it was derived by.
"""

from __future__ import annotations

from typing import Generic

from attrs import frozen

from preempt_spec.cost.decide import (
    Choice,
    Setting,
    achieved_bandwidth,
    break_even_bandwidth,
    recompute_cost,
    smooth,
    swap_cost,
)
from preempt_spec.cost.number import N
from preempt_spec.cost.recompute import Run, compute_time, gemm_rate, weight_time
from preempt_spec.cost.swap import crossings, moved_bytes


@frozen
class Range(Generic[N]):
    """From `least` to `most`, both included; None: no bound."""

    least: N | None = None
    most: N | None = None


@frozen
class Certificate(Generic[N]):
    """In this box the winner never takes longer than the other way, and strictly less inside of the bandwidth bound.

    The box holds for the setting it was made for: shape, ratio of the two efficiencies, pieces, trip, hits. Lengths are
    whole tokens.
    """

    winner: Choice
    bandwidth: Range[N]
    """Effective bytes/s per direction, at the request's length."""
    flops: Range[N]
    """FLOP/s that products with weights reach; attention in the setting's proportion."""
    memory: Range[N]
    """bytes/s of device memory: the weight-read floor."""
    length: Range[N]
    """Tokens."""
    why: tuple[str, ...]
    """How it was derived, a sentence each."""


def within(r: Range[N], x: N) -> bool:
    """Tell whether x lies in the range."""
    if r.least is not None and x < r.least:
        return False
    return r.most is None or x <= r.most


def holds_at(certificate: Certificate[N], bandwidth: N, flops: N, memory: N, length: N) -> bool:
    """Tell whether a point lies in the box. Units and meaning as in `Certificate`."""
    return (
        within(certificate.bandwidth, bandwidth)
        and within(certificate.flops, flops)
        and within(certificate.memory, memory)
        and within(certificate.length, length)
    )


_BANDWIDTH = "A swap gets faster as bandwidth rises."
_RATES = "A recompute gets no slower as FLOP/s or memory bandwidth rise."
_GROWS = "Arithmetic per token does not fall with length, and bytes per token do not rise."
_PADDING = "Whole blocks add less than one block of bytes, which the bound on bandwidth allows for."
_ARITHMETIC = "The arithmetic alone takes longer than the swap, however fast the weights are read."
_FLOOR = "Reading the weights alone takes longer than the swap, and a shorter request moves no more bytes."
_ABOVE = "At the shortest length of the box the swap takes as long as reading the weights."
_HERE = "The bytes moved and the tokens computed are those of this very length; no other length is claimed."


def certify(setting: Setting[N], length: N) -> Certificate[N]:
    """Return a box around `length` whole tokens in which the answer stays the same.

    Its corner is where both ways cost the same. It reaches over lengths where that can be shown; with a prefix hit, or
    where only padding decides, it is for `length` alone.
    """
    swapped, again = swap_cost(setting, length), recompute_cost(setting, length)
    reaching = None
    if setting.hit is None:
        reaching = _swap_box(setting, length, swapped) if swapped < again else _recompute_box(setting, length)
    if reaching is not None and within(reaching.bandwidth, achieved_bandwidth(setting, length)):
        return reaching
    return _box_here(setting, length, Choice.SWAP if swapped < again else Choice.RECOMPUTE)


def _swap_box(setting: Setting[N], length: N, swapped: N) -> Certificate[N]:
    """Swap wins against the arithmetic, then also for longer requests; or against the floor, then for shorter ones."""
    times = crossings(setting.transfer)
    work = compute_time(setting.shape, setting.device, length)
    if swapped < work:
        padding = (_PADDING,) if setting.transfer.whole_blocks else ()
        return Certificate(
            Choice.SWAP,
            bandwidth=Range(least=times * most_bytes(setting, length) / work),
            flops=Range(most=gemm_rate(setting.device)),
            memory=Range(),
            length=Range(least=length),
            why=(_ARITHMETIC, _BANDWIDTH, _RATES, _GROWS, *padding),
        )
    moved = times * moved_bytes(setting.shape, setting.transfer, length)
    return Certificate(
        Choice.SWAP,
        bandwidth=Range(least=moved / weight_time(setting.shape, setting.device)),
        flops=Range(),
        memory=Range(most=setting.device.memory_bandwidth),
        length=Range(most=length),
        why=(_FLOOR, _BANDWIDTH, _RATES),
    )


def _recompute_box(setting: Setting[N], length: N) -> Certificate[N]:
    """Recompute wins: also for shorter requests, down to where the weight read takes over."""
    plain = smooth(setting)
    again = recompute_cost(setting, length)
    alone = setting.run is Run.ALONE
    return Certificate(
        Choice.RECOMPUTE,
        bandwidth=Range(most=break_even_bandwidth(plain, length)),
        flops=Range(least=gemm_rate(setting.device)),
        memory=Range(least=setting.device.memory_bandwidth) if alone else Range(),
        length=Range(length * weight_time(setting.shape, setting.device) / again if alone else None, length),
        why=(_BANDWIDTH, _RATES, _GROWS, *((_ABOVE,) if alone else ())),
    )


def _box_here(setting: Setting[N], length: N, winner: Choice) -> Certificate[N]:
    """The box at one length: the two costs as they are, rounding and hits included."""
    bound, flops = break_even_bandwidth(setting, length), gemm_rate(setting.device)
    memory = setting.device.memory_bandwidth if setting.run is Run.ALONE else None
    swap = winner is Choice.SWAP
    return Certificate(
        winner,
        bandwidth=Range(least=bound) if swap else Range(most=bound),
        flops=Range(most=flops) if swap else Range(least=flops),
        memory=Range(most=memory) if swap else Range(least=memory),
        length=Range(length, length),
        why=(_BANDWIDTH, _RATES, _HERE),
    )


def most_bytes(setting: Setting[N], length: N) -> N:
    """Return bytes (one way) that a request of `length` whole tokens does not exceed, and that per token never rise.

    The bytes moved per token do rise where a block begins; with every block but one token padded they do not.
    """
    plain = moved_bytes(setting.shape, smooth(setting).transfer, length)
    if not setting.transfer.whole_blocks:
        return plain
    padding = setting.transfer.block - 1
    return sum((layers.kv_bytes * padding for layers in setting.shape.layers), start=plain)
