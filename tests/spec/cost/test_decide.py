"""Break-even, speed-up and regret; and the same answers in floats as in fractions."""

from __future__ import annotations

from fractions import Fraction as Q

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from preempt_spec.cost.certify import certify
from preempt_spec.cost.copies import Affine, Tabulated
from preempt_spec.cost.decide import (
    Choice,
    achieved_bandwidth,
    best_cost,
    break_even_bandwidth,
    break_even_link,
    cached,
    choose,
    cost_of,
    overhead_cost,
    recompute_cost,
    regret,
    regret_bound,
    smooth,
    speed_up,
    swap_cost,
)
from preempt_spec.cost.number import mapped
from preempt_spec.cost.spare import decode_step_time, token_time
from preempt_spec.cost.swap import Directions, Trip

LENGTHS = st.integers(1, 200_000)


@settings(max_examples=80)
@given(data=st.data(), length=LENGTHS)
def test_floats_agree_with_fractions_to_a_part_in_a_trillion(data, real_settings, length):
    exact = data.draw(real_settings)
    fast = mapped(exact, float)
    for f in (swap_cost, recompute_cost, break_even_bandwidth, achieved_bandwidth, speed_up, best_cost):
        assert f(fast, float(length)) == pytest.approx(float(f(exact, Q(length))), rel=1e-12, abs=0)
    assert cached(fast, float(length)) == cached(exact, Q(length))
    context = (length % 10_000) + 1
    assert decode_step_time(fast.shape, fast.device, 64.0, float(context)) == pytest.approx(
        float(decode_step_time(exact.shape, exact.device, Q(64), Q(context))), rel=1e-12
    )
    assert token_time(fast.shape, fast.device, float(context)) == pytest.approx(
        float(token_time(exact.shape, exact.device, Q(context))), rel=1e-12
    )


@settings(max_examples=30)
@given(data=st.data(), length=LENGTHS)
def test_certificates_in_floats_are_those_in_fractions(data, real_settings, length):
    exact = data.draw(real_settings)
    if abs(speed_up(exact, Q(length)) - 1) < Q(1, 10**9):
        return  # a tie is a matter of the last digit
    a, b = certify(exact, Q(length)), certify(mapped(exact, float), float(length))
    assert a.winner is b.winner
    if a.why == b.why:  # whether the point is its own corner may be a matter of the last digit, too
        for x, y in ((a.bandwidth, b.bandwidth), (a.flops, b.flops), (a.memory, b.memory), (a.length, b.length)):
            for p, q in ((x.least, y.least), (x.most, y.most)):
                assert (p is None) is (q is None)
                if p is not None:
                    assert q == pytest.approx(float(p), rel=1e-12)


@settings(max_examples=30)
@given(data=st.data(), length=LENGTHS.map(Q))
def test_the_ratio_of_costs_is_the_ratio_of_bandwidths(data, real_settings, length):
    s = data.draw(real_settings)
    assert speed_up(s, length) == achieved_bandwidth(s, length) / break_even_bandwidth(s, length)
    assert (choose(s, length) is Choice.SWAP) is (swap_cost(s, length) < recompute_cost(s, length))
    assert best_cost(s, length) == cost_of(s, length, choose(s, length))


@settings(max_examples=30)
@given(data=st.data(), length=LENGTHS.map(Q), overheads=st.tuples(st.integers(0, 30), st.integers(0, 30)))
def test_at_the_break_even_link_both_cost_the_same(data, real_settings, length, overheads):
    drawn = data.draw(real_settings)
    out, back = (Affine(Q(us, 10**6), Q(10**9)) for us in overheads)
    s = evolve(drawn, transfer=evolve(drawn.transfer, out=out, back=back))
    link = break_even_link(s, length)
    if link is None:
        assert overhead_cost(s, length) >= recompute_cost(s, length)
        return
    at_link = evolve(s.transfer, out=evolve(out, bandwidth=link), back=evolve(back, bandwidth=link))
    there = evolve(s, transfer=at_link)
    assert swap_cost(there, length) == recompute_cost(there, length)


def test_the_overhead_of_two_directions(llama_8b):
    out, back = Affine(Q(4, 10**6), Q(10**9)), Affine(Q(3, 10**6), Q(10**9))
    transfer = evolve(llama_8b.transfer, out=out, back=back)
    copies = 256 * 64
    for change, microseconds in (
        ({}, 7 * copies),
        ({"directions": Directions.OVERLAPPED}, 4 * copies),
        ({"trip": Trip.WRITE_THROUGH}, 3 * copies),
    ):
        s = evolve(llama_8b, transfer=evolve(transfer, **change))
        assert overhead_cost(s, Q(4096)) == microseconds * Q(1, 10**6)


def test_overhead_alone_can_take_longer_than_recomputing(llama_8b):
    slow = Affine(Q(1, 1000), Q(50 * 10**9))
    assert break_even_link(evolve(llama_8b, transfer=evolve(llama_8b.transfer, out=slow, back=slow)), Q(4096)) is None


def test_a_measured_law_has_no_fixed_cost_to_tell_apart(llama_8b):
    table = Tabulated((Q(1), Q(2)), (Q(1), Q(2)))
    for change in ({"out": table}, {"back": table}):
        with pytest.raises(ValueError, match="affine"):
            break_even_link(evolve(llama_8b, transfer=evolve(llama_8b.transfer, **change)), Q(4096))


def test_of_equals_recompute(llama_8b):
    s = smooth(llama_8b)
    bandwidth = break_even_bandwidth(s, Q(4096))
    law = Affine(Q(0), bandwidth)
    tie = evolve(s, transfer=evolve(s.transfer, out=law, back=law))
    assert swap_cost(tie, Q(4096)) == recompute_cost(tie, Q(4096))
    assert choose(tie, Q(4096)) is Choice.RECOMPUTE


def test_smooth_changes_the_rounding_only(llama_8b):
    assert smooth(llama_8b) == evolve(llama_8b, transfer=evolve(llama_8b.transfer, whole_blocks=False))
    assert swap_cost(smooth(llama_8b), Q(4096)) == swap_cost(llama_8b, Q(4096))
    assert swap_cost(smooth(llama_8b), Q(4097)) < swap_cost(llama_8b, Q(4097))


def test_a_hit_is_rounded_to_blocks_where_blocks_are_whole(llama_8b):
    assert cached(llama_8b, Q(100)) == 0
    half = evolve(llama_8b, hit=Q(1, 2))
    assert cached(half, Q(100)) == 48
    assert cached(smooth(half), Q(100)) == 50


@settings(max_examples=30)
@given(data=st.data(), length=LENGTHS.map(Q), factors=st.tuples(st.integers(1, 40), st.integers(1, 40)))
def test_regret_is_within_the_factor_of_the_error(data, real_settings, length, factors):
    s = data.draw(real_settings)
    factor = Q(factors[0], factors[1])
    believed = evolve(s, device=evolve(s.device, peak_flops=s.device.peak_flops * factor))
    lost = regret(s, believed, length)
    assert 1 <= lost <= regret_bound(s.device.peak_flops, believed.device.peak_flops) == max(factor, 1 / factor)
    assert regret(s, s, length) == 1


def test_regret_of_the_bidirectional_figure(llama_8b):
    # 5 GB/s taken for 10: swap is chosen though recompute is 1.5 times as fast.
    true, wrong = (Affine(Q(0), Q(gb * 10**9)) for gb in (5, 10))
    actual, believed = (evolve(llama_8b, transfer=evolve(llama_8b.transfer, out=x, back=x)) for x in (true, wrong))
    assert choose(actual, Q(4096)) is Choice.RECOMPUTE
    assert choose(believed, Q(4096)) is Choice.SWAP
    assert regret(actual, believed, Q(4096)) == swap_cost(actual, Q(4096)) / recompute_cost(actual, Q(4096))
    assert 1 < regret(actual, believed, Q(4096)) < regret_bound(Q(5), Q(10)) == 2
