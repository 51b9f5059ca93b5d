"""The lengths where recompute wins: found by search and by closed form, against trying every length."""

from __future__ import annotations

from fractions import Fraction as Q

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from preempt_spec.cost.copies import Affine, Piecewise, Tabulated
from preempt_spec.cost.decide import Setting, recompute_cost, smooth, swap_cost
from preempt_spec.cost.lengths import Edges, Rates, Span, edges, length_edges, rates, recompute_lengths
from preempt_spec.cost.number import mapped
from preempt_spec.cost.recompute import Run
from preempt_spec.cost.shape import State
from preempt_spec.cost.swap import Copies, Directions, Hit, Trip

LONGEST = 120


def by_trying(setting: Setting[Q], longest: int) -> set[int]:
    s = smooth(setting)
    return {k for k in range(1, longest + 1) if recompute_cost(s, Q(k)) < swap_cost(s, Q(k))}


def members(spans: tuple[Span, ...]) -> set[int]:
    return {k for span in spans for k in range(span.first, span.last + 1)}


@pytest.mark.long
@settings(max_examples=60)
@given(data=st.data())
def test_the_search_finds_what_trying_every_length_finds(data, toy_settings):
    setting = data.draw(toy_settings)
    assert members(recompute_lengths(setting, LONGEST)) == by_trying(setting, LONGEST)


@settings(max_examples=40)
@given(data=st.data())
def test_spans_are_in_order_apart_and_end_at_break_evens(data, real_settings):
    setting = data.draw(real_settings)
    s, spans = smooth(setting), recompute_lengths(setting, 200_000)

    def recompute_wins(k: int) -> bool:
        return bool(recompute_cost(s, Q(k)) < swap_cost(s, Q(k)))

    last = -1
    for span in spans:
        assert last + 1 < span.first <= span.last <= 200_000
        last = span.last
        assert recompute_wins(span.first)
        assert recompute_wins(span.last)
        assert span.first == 1 or not recompute_wins(span.first - 1)
        assert span.last == 200_000 or not recompute_wins(span.last + 1)


@settings(max_examples=40)
@given(data=st.data())
def test_the_closed_form_holds_the_whole_lengths_that_the_search_finds(data, toy_settings):
    drawn = data.draw(toy_settings)
    setting = evolve(
        drawn,
        shape=evolve(drawn.shape, state=None, layers=tuple(evolve(x, window=None) for x in drawn.shape.layers)),
        transfer=evolve(drawn.transfer, copies=data.draw(st.sampled_from((Copies.PER_TENSOR, Copies.PER_BLOCK)))),
        hit=None,
    )
    found = length_edges(setting)
    inside = set()
    if found is not None:
        inside = {
            k
            for k in range(1, LONGEST + 1)
            if (found.lower is None or found.lower < k) and (found.upper is None or k < found.upper)
        }
    assert inside == members(recompute_lengths(setting, LONGEST))


@given(hit=st.integers(0, 63).map(lambda k: Q(k, 64)), meaning=st.sampled_from(Hit))
def test_edges_with_a_prefix_hit_are_break_evens(llama_8b, hit, meaning):
    law = Affine(Q(0), Q(3 * 10**9))
    transfer = evolve(llama_8b.transfer, out=law, back=law, hit=meaning)
    setting = smooth(evolve(llama_8b, transfer=transfer, hit=hit))
    found = length_edges(setting)
    assert found is not None
    assert found.upper is not None
    for edge in (found.lower, found.upper):
        if edge is not None and hit * edge <= edge - 1:  # the last-token floor is not reached
            assert recompute_cost(setting, edge) == swap_cost(setting, edge)


def test_two_spans_where_a_gathered_copy_switches_its_protocol(llama_8b):
    # Attention hands over to swap at 62,360 tokens; from 70,000 on the copy is slower, until attention is slower still.
    law = Piecewise(Affine(Q(0), Q(4 * 10**9)), Q(70_000 * 131_072), Affine(Q(0), Q(3 * 10**9)))
    transfer = evolve(llama_8b.transfer, out=law, back=law, copies=Copies.GATHERED)
    found = recompute_lengths(evolve(llama_8b, transfer=transfer), 131_072)
    assert found == (Span(74, 62_360), Span(70_000, 103_569))


def test_no_edges_where_the_link_is_fast_enough_for_every_length(llama_8b):
    law = Affine(Q(0), Q(50 * 10**9))
    setting = evolve(llama_8b, transfer=evolve(llama_8b.transfer, out=law, back=law))
    assert length_edges(setting) is None
    assert recompute_lengths(setting, 131_072) == ()


def test_edges_by_hand():
    assert edges(Rates(Q(5), Q(3), Q(1, 10), Q(10))) == Edges(Q(2), Q(20))
    assert edges(Rates(Q(5), Q(3), Q(1, 10), None)) == Edges(None, Q(20))
    assert edges(Rates(Q(5), Q(3), Q(0), Q(10))) == Edges(Q(2), None)
    assert edges(Rates(Q(5), Q(3), Q(1, 10), Q(100))) is None  # the floor lasts until attention has taken over
    assert edges(Rates(Q(3), Q(3), Q(1, 10), None)) is None  # equal per token: attention decides from the first on


def test_rates_are_the_costs(llama_8b):
    r, s, n = rates(llama_8b), smooth(llama_8b), Q(5000)
    assert swap_cost(s, n) == r.swap * n
    assert recompute_cost(s, n) == r.gemm * n + r.attention * n * n
    assert r.floor is not None
    assert recompute_cost(s, Q(1)) == r.floor
    assert rates(evolve(llama_8b, run=Run.PIGGYBACK)).floor is None


@pytest.mark.parametrize("part", ["state", "window", "copies"])
def test_a_cost_of_another_form_has_no_closed_form_and_says_so(llama_8b, part):
    layers = llama_8b.shape.layers[0]
    other = {
        "state": evolve(llama_8b, shape=evolve(llama_8b.shape, state=State(Q(10), Q(1)))),
        "window": evolve(llama_8b, shape=evolve(llama_8b.shape, layers=(evolve(layers, window=Q(128)),))),
        "copies": evolve(llama_8b, transfer=evolve(llama_8b.transfer, copies=Copies.GATHERED)),
    }[part]
    with pytest.raises(ValueError, match=f"^{part}: .*recompute_lengths"):
        length_edges(other)


def test_a_gathered_copy_without_a_fixed_cost_has_a_closed_form_and_a_measured_one_has_none(llama_8b):
    free, table = Affine(Q(0), Q(4 * 10**9)), Tabulated((Q(1), Q(2)), (Q(1), Q(2)))
    transfer = evolve(llama_8b.transfer, out=free, back=free, copies=Copies.GATHERED)
    assert length_edges(evolve(llama_8b, transfer=transfer)) is not None
    # Written through, the way out is not asked.
    written = evolve(transfer, out=table, trip=Trip.WRITE_THROUGH)
    assert length_edges(evolve(llama_8b, transfer=written)) is not None
    with pytest.raises(ValueError, match="copies"):
        length_edges(evolve(llama_8b, transfer=evolve(transfer, out=table)))


def test_overlapped_directions_count_the_slower_one(llama_8b):
    slow, fast = Affine(Q(0), Q(2 * 10**9)), Affine(Q(0), Q(20 * 10**9))
    for out, back in ((slow, fast), (fast, slow)):
        transfer = evolve(llama_8b.transfer, out=out, back=back, directions=Directions.OVERLAPPED)
        overlapped = recompute_lengths(evolve(llama_8b, transfer=transfer), 131_072)
        one_way = evolve(transfer, back=slow, trip=Trip.WRITE_THROUGH)
        assert overlapped == recompute_lengths(evolve(llama_8b, transfer=one_way), 131_072) != ()


def test_floats_find_the_same_lengths(llama_8b):
    law = Affine(Q(0), Q(4 * 10**9))
    setting = evolve(llama_8b, transfer=evolve(llama_8b.transfer, out=law, back=law))
    assert recompute_lengths(setting, 131_072) == recompute_lengths(mapped(setting, float), 131_072)
    assert recompute_lengths(setting, 131_072) == (Span(74, 62_360),)
    assert recompute_lengths(setting, 50) == ()
    assert recompute_lengths(setting, 1000) == (Span(74, 1000),)
