"""Recompute the front, load the rest: the best division against every division."""

from __future__ import annotations

from fractions import Fraction as Q

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from preempt_spec.cost.copies import Affine, Piecewise
from preempt_spec.cost.decide import best_cost, recompute_cost, smooth, swap_cost
from preempt_spec.cost.hybrid import (
    Split,
    hybrid_gain,
    hybrid_split,
    hybrid_time,
    linear_hybrid_time,
    recompute_front,
    swap_rest,
)
from preempt_spec.cost.number import mapped
from preempt_spec.cost.recompute import Run
from preempt_spec.cost.swap import Copies, Hit


@settings(max_examples=60)
@given(data=st.data(), length=st.integers(1, 60), whole_blocks=st.booleans())
def test_the_best_division_is_the_first_of_the_best(data, toy_settings, length, whole_blocks):
    drawn = data.draw(toy_settings)
    setting = evolve(drawn, hit=None, transfer=evolve(drawn.transfer, whole_blocks=whole_blocks))
    n, step = Q(length), int(setting.transfer.block) if whole_blocks else 1
    pure = [Split(Q(0), swap_cost(setting, n)), Split(n, recompute_cost(setting, n))]
    divided = [Split(Q(k), hybrid_time(setting, n, Q(k))) for k in range(step, length, step)]
    assert hybrid_split(setting, n) == min([*pure, *divided], key=lambda split: split.seconds)


def test_the_parts_of_a_division(llama_8b):
    n, x = Q(4096), Q(1024)
    assert swap_rest(llama_8b, n, x) == swap_cost(llama_8b, n - x)
    assert recompute_front(llama_8b, x) == recompute_cost(llama_8b, x)
    assert hybrid_time(llama_8b, n, x) == max(swap_cost(llama_8b, n - x), recompute_cost(llama_8b, x))


def test_what_a_hit_means_for_the_swap_does_not_matter_to_a_division(llama_8b):
    other = evolve(llama_8b, transfer=evolve(llama_8b.transfer, hit=Hit.SAVES_BYTES))
    assert hybrid_split(llama_8b, Q(4096)) == hybrid_split(other, Q(4096))


def test_a_division_beats_both_pure_ways_and_meets_in_the_middle(llama_8b):
    riding = evolve(llama_8b, run=Run.PIGGYBACK)
    split = hybrid_split(riding, Q(4096))
    assert 0 < split.recomputed < 4096
    assert split.recomputed % 16 == 0
    assert split.seconds < best_cost(riding, Q(4096))
    assert hybrid_gain(riding, Q(4096)) == best_cost(riding, Q(4096)) / split.seconds > 1
    # One block to either side is worse: the other part becomes the slower one.
    for other in (split.recomputed - 16, split.recomputed + 16):
        assert hybrid_time(riding, Q(4096), other) > split.seconds


def test_without_attention_the_best_division_is_that_of_two_resistors(llama_8b):
    layers = evolve(llama_8b.shape.layers[0], pair_flops=Q(0))
    setting = evolve(smooth(llama_8b), shape=evolve(llama_8b.shape, layers=(layers,)), run=Run.PIGGYBACK)
    n = Q(100_000)
    per_token = linear_hybrid_time(swap_cost(setting, n) / n, recompute_cost(setting, n) / n)
    assert per_token * n <= hybrid_split(setting, n).seconds <= per_token * (n + 1)


def test_a_short_request_is_not_divided(llama_8b):
    # A pass of its own reads all weights: loading everything is faster than one token recomputed.
    law = Affine(Q(0), Q(50 * 10**9))
    fast = evolve(llama_8b, transfer=evolve(llama_8b.transfer, out=law, back=law))
    assert hybrid_split(fast, Q(64)) == Split(Q(0), swap_cost(fast, Q(64)))
    assert hybrid_split(llama_8b, Q(1)).recomputed in (0, 1)


def test_a_link_of_no_use_leaves_recompute(llama_8b):
    law = Affine(Q(1), Q(1))
    useless = evolve(llama_8b, transfer=evolve(llama_8b.transfer, out=law, back=law))
    assert hybrid_split(useless, Q(64)) == Split(Q(64), recompute_cost(useless, Q(64)))


def test_a_rest_below_a_protocol_switch_is_no_longer_worth_loading(llama_8b):
    # From 128 MiB (1,024 tokens) on a gathered copy runs ten times as fast: the front stops short of the switch.
    law = Piecewise(Affine(Q(0), Q(10**9)), Q(2**27), Affine(Q(0), Q(10 * 10**9)))
    transfer = evolve(llama_8b.transfer, out=law, back=law, copies=Copies.GATHERED)
    setting = evolve(smooth(llama_8b), transfer=evolve(transfer, whole_blocks=False), run=Run.PIGGYBACK)
    n = Q(1300)
    best = hybrid_split(setting, n)
    assert best.seconds == min(hybrid_time(setting, n, Q(k)) for k in range(1, 1300))
    assert best.recomputed == 276
    assert hybrid_time(setting, n, Q(277)) > 5 * best.seconds


def test_floats_divide_the_same_way(llama_8b):
    exact, fast = hybrid_split(llama_8b, Q(4096)), hybrid_split(mapped(llama_8b, float), 4096.0)
    assert fast.recomputed == exact.recomputed
    assert fast.seconds == pytest.approx(float(exact.seconds), rel=1e-12)


def test_a_prefix_hit_is_refused(llama_8b):
    with pytest.raises(ValueError, match=r"^hit: "):
        hybrid_split(evolve(llama_8b, hit=Q(1, 2)), Q(4096))
