"""The searches cut the lengths where costs bend: between two cuts there is no bend, and nothing is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction as Q
from itertools import accumulate, combinations_with_replacement, pairwise, product

import pytest
from attrs import evolve
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from preempt_spec.cost import hybrid, lengths
from preempt_spec.cost.copies import Affine, Piecewise
from preempt_spec.cost.decide import Setting, cached, smooth
from preempt_spec.cost.recompute import Device, Run, compute_time
from preempt_spec.cost.shape import Layers, Shape
from preempt_spec.cost.swap import Copies, Hit, Transfer, one_way_time

ONE = Q(1)
LONGEST = 60
SMALL = st.integers(1, 12).map(Q)
#: A protocol switch changes both the fixed cost and the slope.
SWITCHED = st.builds(
    Piecewise[Q], st.builds(Affine[Q], SMALL, SMALL), st.integers(2, 90).map(Q), st.builds(Affine[Q], SMALL, SMALL)
)
WINDOWS = st.none() | st.integers(2, 40).map(Q)
LAYERS = st.builds(Layers[Q], st.integers(1, 4).map(Q), st.just(ONE), st.just(ONE), WINDOWS)
SHAPES = LAYERS.map(lambda layers: Shape(ONE, ONE, (layers,)))
TRANSFERS = st.builds(
    lambda out, back, gathered, whole, hit: Transfer(
        out, back, Q(4), Copies.GATHERED if gathered else Copies.PER_BLOCK, whole_blocks=whole, hit=hit
    ),
    SWITCHED,
    SWITCHED,
    st.booleans(),
    st.booleans(),
    st.sampled_from(Hit),
)
SETTINGS = st.builds(
    lambda shape, transfer, hit: Setting(shape, Device(ONE, ONE, ONE, ONE), transfer, Run.ALONE, hit),
    SHAPES,
    TRANSFERS,
    st.none() | st.integers(0, 16).map(lambda k: Q(k, 16)),
)


def differences(values: Sequence[Q], times: int) -> list[Q]:
    """Of the values of a polynomial of a lower degree, all 0."""
    for _ in range(times):
        values = [b - a for a, b in pairwise(values)]
    return list(values)


def are_pieces(bounds: Sequence[int], last: int) -> None:
    assert bounds[0] == 1
    assert bounds[-1] == last + 1
    assert all(a < b for a, b in pairwise(bounds))


@pytest.mark.long
@settings(max_examples=120)
@given(setting=SETTINGS)
def test_between_two_cuts_every_cost_is_a_polynomial_of_degree_two(setting):
    s = smooth(setting)
    window = s.shape.layers[0].window
    # A hit of all but the last token passes the window one token later than its share of the length does.
    assume(not s.hit or window is None or window / s.hit >= window + 1)
    bounds = lengths._bounds(s, ONE, LONGEST)
    are_pieces(bounds, LONGEST)
    costs: list[Callable[[Q], Q]] = [
        lambda n: compute_time(s.shape, s.device, n, cached(s, n)),
        lambda n: one_way_time(s.shape, s.transfer, s.transfer.out, n, cached(s, n)),
        lambda n: one_way_time(s.shape, s.transfer, s.transfer.back, n, cached(s, n)),
    ]
    for first, end in pairwise(bounds):
        for cost in costs:
            assert not any(differences([cost(Q(k)) for k in range(first, end)], 3))


@settings(max_examples=120)
@given(setting=SETTINGS, length=st.integers(1, LONGEST))
def test_between_two_cuts_the_rest_of_a_division_takes_ever_less(setting, length):
    s, n = evolve(setting, hit=None), Q(length)
    step = s.transfer.block if s.transfer.whole_blocks else ONE
    last = -(-length // int(step)) - 1
    bounds = hybrid._bounds(s, n, step, last)
    are_pieces(bounds, last)
    for first, end in pairwise(bounds):
        rest = [hybrid.swap_rest(s, n, k * step) for k in range(first, end)]
        assert all(a >= b for a, b in pairwise(rest))


@st.composite
def bent(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Values from 1 on, and the pieces in which their slope only rises or only falls."""
    values, bounds = list[int](), [1]
    for _ in range(draw(st.integers(1, 3))):
        slopes = sorted(draw(st.lists(st.integers(-3, 3), max_size=7)), reverse=draw(st.booleans()))
        values.append(draw(st.integers(-6, 6)))
        for slope in slopes:
            values.append(values[-1] + slope)
        bounds.append(len(values) + 1)
    return values, bounds


@settings(max_examples=400)
@given(drawn=bent())
def test_where_a_bent_line_is_positive_is_found_in_spans_apart(drawn):
    values, bounds = drawn
    at = dict(enumerate(values, start=1))  # what lies outside is not to be asked
    positive = [k for k in at if at[k] > 0]
    firsts = [k for k in positive if k - 1 not in positive]
    lasts = [k for k in positive if k + 1 not in positive]
    spans = [lengths.Span(a, b) for a, b in zip(firsts, lasts, strict=True)]
    assert lengths._positive(at.__getitem__, bounds) == spans


@pytest.mark.parametrize("size", range(5))
def test_every_small_bent_line(size):
    for slopes in combinations_with_replacement(range(-3, 4), size):
        for start, way in product(range(-4, 5), (slopes, slopes[::-1])):
            at = dict(enumerate(accumulate(way, initial=start), start=1))
            found = lengths._positive(at.__getitem__, [1, size + 2])
            assert [k for span in found for k in range(span.first, span.last + 1)] == [k for k in at if at[k] > 0]


SPANS = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 4)), max_size=5)


@settings(max_examples=300)
@given(a=SPANS, b=SPANS)
def test_spans_together_and_in_common_are_those_of_their_members(a, b):
    def spans(members: set[int]) -> list[lengths.Span]:
        firsts, lasts = (sorted(k for k in members if k + step not in members) for step in (-1, 1))
        return [lengths.Span(x, y) for x, y in zip(firsts, lasts, strict=True)]

    def members(drawn: list[tuple[int, int]]) -> set[int]:
        return {k for first, more in drawn for k in range(first, first + more + 1)}

    one, other = ([lengths.Span(first, first + more) for first, more in drawn] for drawn in (a, b))
    assert lengths._joined([*one, *other]) == spans(members(a) | members(b))
    assert lengths._common(one, other) == spans(members(a) & members(b))
