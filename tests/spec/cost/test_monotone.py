"""What must not fall as something rises, with whole blocks, windows, states, measured laws: no theorem covers these."""

from __future__ import annotations

from fractions import Fraction as Q

from attrs import evolve
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from preempt_spec.cost.copies import Piecewise, copy_time
from preempt_spec.cost.decide import break_even_bandwidth, recompute_cost, swap_cost
from preempt_spec.cost.shape import Attention, layers_of
from preempt_spec.cost.swap import Copies, moved_bytes

LENGTHS = st.lists(st.integers(1, 50_000).map(Q), min_size=2, max_size=2, unique=True).map(sorted)


def same_protocol(setting) -> bool:
    """Whether no protocol switch of a gathered copy can make a longer one faster."""
    laws = (setting.transfer.out, setting.transfer.back)
    return setting.transfer.copies is not Copies.GATHERED or not any(isinstance(law, Piecewise) for law in laws)


@settings(max_examples=30)
@given(data=st.data(), lengths=LENGTHS)
def test_a_longer_request_costs_no_less_either_way(data, real_settings, lengths):
    setting = evolve(data.draw(real_settings), hit=None)
    short, long = lengths
    assert recompute_cost(setting, short) <= recompute_cost(setting, long)
    assert moved_bytes(setting.shape, setting.transfer, short) <= moved_bytes(setting.shape, setting.transfer, long)
    assume(same_protocol(setting))
    assert swap_cost(setting, short) <= swap_cost(setting, long)


@settings(max_examples=30)
@given(data=st.data(), length=st.integers(1, 50_000).map(Q), hits=st.lists(st.integers(0, 64), min_size=2, max_size=2))
def test_a_better_hit_costs_no_more_to_recompute(data, real_settings, length, hits):
    setting = data.draw(real_settings)
    worse, better = (evolve(setting, hit=Q(h, 64)) for h in sorted(hits))
    assert recompute_cost(better, length) <= recompute_cost(worse, length)
    assert recompute_cost(worse, length) <= recompute_cost(evolve(setting, hit=None), length)
    assert recompute_cost(better, length) > 0
    assume(same_protocol(setting))
    assert swap_cost(better, length) <= swap_cost(worse, length)


@settings(max_examples=30)
@given(data=st.data(), length=st.integers(1, 50_000).map(Q))
def test_whole_blocks_need_no_less_bandwidth_and_pad_less_than_a_block(data, real_settings, length):
    setting = evolve(data.draw(real_settings), hit=None)
    smooth, whole = (evolve(setting, transfer=evolve(setting.transfer, whole_blocks=w)) for w in (False, True))
    a, b = break_even_bandwidth(smooth, length), break_even_bandwidth(whole, length)
    assert a <= b
    shape, block = setting.shape, setting.transfer.block
    padding = moved_bytes(shape, whole.transfer, length) - moved_bytes(shape, smooth.transfer, length)
    assert padding <= (block - 1) * sum(layers.kv_bytes for layers in shape.layers)


@settings(max_examples=30)
@given(data=st.data(), sizes=st.lists(st.integers(1, 10**9).map(Q), min_size=2, max_size=2).map(sorted))
def test_a_larger_copy_takes_no_less_time_by_any_law_without_a_switch(data, real_settings, sizes):
    law = data.draw(real_settings).transfer.out
    assume(not isinstance(law, Piecewise))
    assert copy_time(law, sizes[0]) <= copy_time(law, sizes[1])


@given(kv_heads=st.sampled_from((1, 2, 8)), power=st.integers(0, 6), latent=st.none() | st.just(Q(576)))
def test_more_gpus_keep_no_more_each_and_no_less_together(kv_heads, power, latent):
    attention = Attention(Q(32), Q(64), Q(kv_heads), Q(128), Q(128), latent=latent)
    few, many = (layers_of(attention, Q(2**p), Q(2)).kv_bytes for p in (power, power + 1))
    assert many <= few <= 2 * many
    assert (2 * many > few) is (latent is not None or 2**power >= kv_heads)
