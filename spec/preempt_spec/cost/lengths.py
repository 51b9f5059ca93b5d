"""The lengths at which recompute wins: an interval, sometimes empty, sometimes without an end.

Short requests: a pass of its own reads all weights, so below the lower edge swap wins. Long requests: attention grows
with the square of the length, so above the upper edge swap wins again.

`length_edges` gives the edges in closed form where both costs allow one. `recompute_lengths` finds them in whole tokens
for every setting, without a closed form. Both take the smooth model: block rounding can turn the answer only where the
two costs differ by less than the padding of a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Generic

from attrs import frozen

from preempt_spec.cost.copies import breakpoints, copy_time
from preempt_spec.cost.decide import Setting, cached, smooth
from preempt_spec.cost.number import N
from preempt_spec.cost.recompute import Run, attention_rate, compute_time, gemm_rate, weight_time
from preempt_spec.cost.swap import (
    Copies,
    Directions,
    Hit,
    Transfer,
    Trip,
    moved_bytes,
    one_way_time,
    swap_time,
)


@frozen
class Rates(Generic[N]):
    """Costs that are a straight line (swap), a parabola (arithmetic) and a constant (weights) in the length L."""

    swap: N
    """Seconds per token: swap = swap · L."""
    gemm: N
    """Seconds per token, and …"""
    attention: N
    """… seconds per token squared: arithmetic = gemm · L + attention · L²."""
    floor: N | None
    """Seconds: recompute takes at least this long; None: no floor (piggy-backed)."""


@frozen
class Edges(Generic[N]):
    """The open interval of lengths, in tokens (not whole ones), in which recompute is strictly cheaper."""

    lower: N | None
    """None: from the shortest request on."""
    upper: N | None
    """None: for every longer request."""


@frozen
class Span:
    """Lengths `first` to `last`, both included, in whole tokens."""

    first: int
    last: int


def rates(setting: Setting[N]) -> Rates[N]:
    """Return the costs as line, parabola and constant: smooth, and without the last-token floor of a prefix hit.

    Raises ValueError, naming the part, if the costs have another form: a sliding window, a constant state, or a
    gathered copy with a fixed cost or a measured law.
    """
    shape, device, transfer = setting.shape, setting.device, smooth(setting).transfer
    one = transfer.block / transfer.block
    if shape.state is not None:
        raise ValueError("state: a constant state is no cost per token; use recompute_lengths")
    if any(layers.window is not None for layers in shape.layers):
        raise ValueError("window: with a sliding window the costs bend at the window; use recompute_lengths")
    if transfer.copies is Copies.GATHERED and (_bends(transfer, one)):
        raise ValueError("copies: a gathered copy with a fixed cost is no cost per token; use recompute_lengths")
    hit = 0 * one if setting.hit is None else setting.hit
    pairs = sum((layers.pair_flops for layers in shape.layers), start=0 * one)
    return Rates(
        swap=swap_time(shape, transfer, one, hit),
        gemm=2 * shape.params * (1 - hit) / gemm_rate(device),
        attention=pairs * (1 - hit * hit) / 2 / attention_rate(device),
        floor=None if setting.run is Run.PIGGYBACK else weight_time(shape, device),
    )


def _bends(transfer: Transfer[N], one: N) -> bool:
    """Whether the time of a gathered copy is not proportional to its size."""
    laws = (transfer.back,) if transfer.trip is Trip.WRITE_THROUGH else (transfer.out, transfer.back)
    return any(breakpoints(law) or copy_time(law, 0 * one) > 0 for law in laws)


def edges(r: Rates[N]) -> Edges[N] | None:
    """Return where recompute is strictly cheaper; None: nowhere."""
    gain = r.swap - r.gemm
    if gain <= 0:
        return None
    upper = gain / r.attention if r.attention > 0 else None
    if r.floor is None:
        return Edges(None, upper)
    lower = r.floor / r.swap
    if upper is not None and upper <= lower:
        return None
    return Edges(lower, upper)


def length_edges(setting: Setting[N]) -> Edges[N] | None:
    """Return the edges of the lengths at which recompute is strictly cheaper, None if there are none.

    Raises ValueError where there is no closed form (see `rates`).
    """
    return edges(rates(setting))


def recompute_lengths(setting: Setting[N], longest: int) -> tuple[Span, ...]:
    """Return every length in 1 … `longest` tokens at which recompute is strictly cheaper, as spans in order.

    Almost always one span or none; a protocol switch of a gathered copy, or a window with a prefix hit, can make more.
    A span that ends at `longest` may go on beyond. For concrete numbers only (not for symbolic ones): it searches.
    Smooth model, the last-token floor of a prefix hit included.
    """
    s = smooth(setting)
    one = s.transfer.block / s.transfer.block
    bounds = _bounds(s, one, longest)

    def wins_over(swapped: Callable[[N], N]) -> list[Span]:
        """Where recompute beats one direction: its arithmetic does, and its floor does."""

        def arithmetic(k: int) -> N:
            return swapped(k * one) - compute_time(s.shape, s.device, k * one, cached(s, k * one))

        def floor(k: int) -> N:
            return swapped(k * one) - weight_time(s.shape, s.device)

        spans = _positive(arithmetic, bounds)
        return spans if s.run is Run.PIGGYBACK else _common(spans, _positive(floor, bounds))

    def back(length: N) -> N:
        return one_way_time(s.shape, s.transfer, s.transfer.back, length, cached(s, length))

    def out(length: N) -> N:
        return one_way_time(s.shape, s.transfer, s.transfer.out, length, cached(s, length))

    if s.transfer.trip is Trip.WRITE_THROUGH:
        return tuple(wins_over(back))
    if s.transfer.directions is Directions.OVERLAPPED:
        return tuple(_joined(wins_over(out) + wins_over(back)))
    return tuple(wins_over(lambda length: out(length) + back(length)))


def _bounds(s: Setting[N], one: N, longest: int) -> list[int]:
    """First lengths of the pieces, and longest + 1: within a piece each cost is a polynomial of degree two at most."""
    starts: list[N] = []
    for layers in s.shape.layers:
        if layers.window is None:
            continue
        starts.append(layers.window)
        if s.hit is not None and s.hit > 0:
            starts.append(layers.window / s.hit)  # from here on the cached prefix too is longer than the window
        if s.hit is not None and s.hit < 1 and s.transfer.hit is Hit.SAVES_BYTES:
            starts.append(layers.window / (1 - s.hit))
    if s.hit is not None and s.hit < 1:
        starts.append(one / (1 - s.hit))  # below, all but the last token are cached
    bounds = {1, longest + 1} | {math.ceil(x) for x in starts if 1 < x <= longest}
    if s.transfer.copies is Copies.GATHERED:
        sizes = (*breakpoints(s.transfer.out), *breakpoints(s.transfer.back))

        def reaches(size: N, k: int) -> bool:
            return moved_bytes(s.shape, s.transfer, k * one, cached(s, k * one)) >= size

        bounds |= {first_where(partial(reaches, least), 1, longest + 1) for least in sizes}
    return sorted(bounds)


def first_where(holds: Callable[[int], bool], lo: int, hi: int) -> int:
    """Return the first k in lo … hi - 1 for which a condition holds that stays true once true; hi if none."""
    while lo < hi:
        mid = (lo + hi) // 2
        if holds(mid):
            hi = mid
        else:
            lo = mid + 1
    return lo


def _positive(f: Callable[[int], N], bounds: Sequence[int]) -> list[Span]:
    """Where f > 0, f having a monotone slope in every piece."""
    found: list[Span] = []
    for start, end in pairwise(bounds):
        last = end - 1
        turn = _turn(f, start, last)
        found += _positive_monotone(f, start, turn)
        if turn < last:
            found += _positive_monotone(f, turn + 1, last)
    return _joined(found)


def _turn(f: Callable[[int], N], first: int, last: int) -> int:
    """Return where f stops to rise, or to fall, as it does at `first`."""
    if last - first < 2:
        return last
    rises = f(first + 1) > f(first)
    return first_where(lambda k: (f(k + 1) > f(k)) is not rises, first + 1, last)


def _positive_monotone(f: Callable[[int], N], first: int, last: int) -> list[Span]:
    """Where f > 0, f rising or falling from first to last."""
    at_first, at_last = f(first) > 0, f(last) > 0
    if at_first and at_last:
        return [Span(first, last)]
    if at_last:
        return [Span(first_where(lambda k: f(k) > 0, first, last), last)]
    if at_first:
        return [Span(first, first_where(lambda k: not f(k) > 0, first, last) - 1)]
    return []


def _joined(spans: Sequence[Span]) -> list[Span]:
    """The union, in order."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda s: s.first):
        if found and span.first <= found[-1].last + 1:
            found[-1] = Span(found[-1].first, max(found[-1].last, span.last))
        else:
            found.append(span)
    return found


def _common(a: Sequence[Span], b: Sequence[Span]) -> list[Span]:
    """The intersection, in order."""
    pairs = (Span(max(x.first, y.first), min(x.last, y.last)) for x in a for y in b)
    return _joined([span for span in pairs if span.first <= span.last])
