"""From measurements to laws: fit, residuals, and the pairs of points that no affine law can pass through.

A fit minimises the squares of the RELATIVE errors of the times (weights 1 / time²): a plain least-squares fit looks at
the megabytes only, and the decision falls at the kilobytes. Points are taken as they come:
`checked.check_points` refuses nonsense.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, Generic

from attrs import frozen

from preempt_spec.cost.copies import Affine, Tabulated, copy_time
from preempt_spec.cost.number import N
from preempt_spec.cost.recompute import causal_pairs
from preempt_spec.cost.shape import Shape


@frozen
class Point(Generic[N]):
    """One measured copy: bytes, seconds, and the seconds it may truly have taken, given the error of measurement."""

    size: N
    seconds: N
    shortest: N
    longest: N


@frozen
class Refutation(Generic[N]):
    """Two points that no affine law with an overhead of 0 or more passes through, even at the ends of their errors."""

    small: Point[N]
    large: Point[N]
    reason: str


@frozen
class Fit(Generic[N]):
    """The affine law nearest to some points."""

    law: Affine[N]
    residuals: tuple[N, ...]
    """Per point: time by the law over time measured, less 1."""
    worst: N
    """The greatest of them in size."""


class RefutedError(ValueError):
    """The points rule out every affine law. `pairs` holds the two-point proofs, the plainest first."""

    def __init__(self, pairs: Sequence[Refutation[Any]]) -> None:
        self.pairs: tuple[Refutation[Any], ...] = tuple(pairs)
        super().__init__(f"no affine law fits: {described(pairs[0])}")


def described(refutation: Refutation[Any]) -> str:
    """Return the pair of points and what is wrong with it in a sentence (concrete numbers only)."""
    small, large = refutation.small, refutation.large
    return (
        f"{refutation.reason}, from {float(small.size / small.seconds / 10**9):.3g} GB/s at {float(small.size):,.0f} "
        f"bytes to {float(large.size / large.seconds / 10**9):.3g} GB/s at {float(large.size):,.0f} bytes"
    )


FASTER = "effective bandwidth grows faster than size"
SLOWER = "effective bandwidth falls as size grows"


def point_from_bandwidth(size: N, bandwidth: N, error: N | int = 0) -> Point[N]:
    """Return the point of a measured effective bandwidth (bytes/s), known to within ± `error` bytes/s.

    Raises ValueError if the error is not below the bandwidth: then the copy may have taken any time at all.
    """
    if error >= bandwidth:
        raise ValueError("error: not below the bandwidth that was measured")
    return Point(size, size / bandwidth, size / (bandwidth + error), size / (bandwidth - error))


def tabulated(points: Sequence[Point[N]]) -> Tabulated[N]:
    """Return the law that passes through the points, which come in order of size: it claims no more than they do."""
    return Tabulated(tuple(p.size for p in points), tuple(p.seconds for p in points))


def refutations(points: Sequence[Point[N]]) -> tuple[Refutation[N], ...]:
    """Return the pairs of points that refute every affine law, the plainest first.

    Under c + s/B with c ≥ 0 and B > 0 a larger copy takes longer (so effective bandwidth grows no faster than size),
    and takes no longer per byte (so effective bandwidth does not fall). A pair that fails one of the two by more than
    its errors refutes; a pair that meets both refutes nothing. (Equal times are the limit of an infinite
    bandwidth: they refute nothing either.)
    """
    found: list[tuple[N, Refutation[N]]] = []
    for small, large in combinations(points, 2):
        faster = small.shortest / large.longest
        slower = (large.shortest / large.size) / (small.longest / small.size)
        if faster > 1:
            found.append((faster, Refutation(small, large, FASTER)))
        if slower > 1:
            found.append((slower, Refutation(small, large, SLOWER)))
    found.sort(key=lambda pair: pair[0], reverse=True)
    return tuple(refutation for _, refutation in found)


def fit_affine(points: Sequence[Point[N]]) -> Fit[N]:
    """Return the affine law (overhead 0 or more) nearest to two or more points of different sizes, and its residuals.

    Raises RefutedError if a pair of points rules out every affine law; `tabulated` takes such points as they are.
    """
    pairs = refutations(points)
    if pairs:
        raise RefutedError(pairs)
    return nearest_affine(points)


def nearest_affine(points: Sequence[Point[N]]) -> Fit[N]:
    """Return the nearest affine law whether or not the points allow one: how far off it would be.

    Raises ValueError if its bandwidth would be negative or infinite.
    """
    overhead, per_byte = _two_terms([(1 / p.seconds, p.size / p.seconds) for p in points])
    if overhead < 0:
        overhead, per_byte = 0 * overhead, _one_term([p.size / p.seconds for p in points])
    if per_byte <= 0:
        raise ValueError("points: time does not grow with size; no bandwidth can be fitted")
    law = Affine(overhead, 1 / per_byte)
    residuals = tuple(copy_time(law, p.size) / p.seconds - 1 for p in points)
    return Fit(law, residuals, max(max(r, -r) for r in residuals))


@frozen
class PrefillFit(Generic[N]):
    """The two efficiencies nearest to measured prefills."""

    gemm_efficiency: N
    attention_efficiency: N
    residuals: tuple[N, ...]
    """Per prefill: time by the model over time measured, less 1."""
    worst: N
    """The greatest of them in size."""


def fit_prefill(shape: Shape[N], peak_flops: N, lengths: Sequence[N], seconds: Sequence[N]) -> PrefillFit[N]:
    """Return the efficiencies with which the model comes nearest to measured prefills of `lengths` tokens.

    `peak_flops`: FLOP/s of one GPU. Raises ValueError if the measurements would need a negative one.
    """
    attention = [
        sum((layers.pair_flops * causal_pairs(n, 0, layers.window) for layers in shape.layers), start=0 * n)
        for n in lengths
    ]
    rows = [(2 * shape.params * n / t, a / t) for n, a, t in zip(lengths, attention, seconds, strict=True)]
    gemm, pair = _two_terms(rows)
    if gemm <= 0 or pair <= 0:
        raise ValueError("seconds: these prefills are not a sum of products with weights and attention")
    residuals = tuple(gemm * g + pair * a - 1 for g, a in rows)
    worst = max(max(r, -r) for r in residuals)
    return PrefillFit(1 / (gemm * peak_flops), 1 / (pair * peak_flops), residuals, worst)


def _two_terms(rows: Sequence[tuple[N, N]]) -> tuple[N, N]:
    """Return x, y that minimise Σ (u·x + v·y - 1)² over rows (u, v)."""
    zero = 0 * rows[0][0]
    uu = sum((u * u for u, _ in rows), start=zero)
    uv = sum((u * v for u, v in rows), start=zero)
    vv = sum((v * v for _, v in rows), start=zero)
    su = sum((u for u, _ in rows), start=zero)
    sv = sum((v for _, v in rows), start=zero)
    det = uu * vv - uv * uv
    return (su * vv - sv * uv) / det, (sv * uu - su * uv) / det


def _one_term(column: Sequence[N]) -> N:
    """Return x that minimises Σ (v·x - 1)²."""
    zero = 0 * column[0]
    return sum(column, start=zero) / sum((v * v for v in column), start=zero)
