"""Recomputing and spare compute: chunks, windows, hits, floors; and against measured prefills."""

from __future__ import annotations

from fractions import Fraction as Q
from itertools import pairwise

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from preempt_spec.cost.recompute import (
    Run,
    attention_flops,
    attention_rate,
    cached_tokens,
    causal_pairs,
    compute_time,
    counted_pairs,
    gemm_flops,
    gemm_rate,
    recompute_time,
    weight_time,
)
from preempt_spec.cost.shape import Layers, State
from preempt_spec.cost.spare import (
    decode_step_time,
    kv_read,
    piggyback_break_even,
    piggyback_time,
    spare_tokens,
    spare_tokens_with_attention,
    token_time,
)

TOKENS = st.integers(0, 5_000).map(Q)
WINDOWS = st.none() | st.integers(1, 3_000).map(Q)


@given(cuts=st.lists(TOKENS, min_size=3, max_size=5).map(sorted), window=WINDOWS)
def test_pairs_of_chunks_add_up(cuts, window):
    chunks = sum((causal_pairs(b, a, window) for a, b in pairwise(cuts)), start=Q(0))
    assert chunks == causal_pairs(cuts[-1], cuts[0], window)


@given(length=TOKENS, window=st.integers(1, 3_000).map(Q))
def test_pairs_within_a_window(length, window):
    if length <= window:
        assert causal_pairs(length, 0, window) == causal_pairs(length) == length * length / 2
    else:
        assert causal_pairs(length, 0, window) == window * length - window * window / 2


@given(length=TOKENS, cached=TOKENS)
def test_the_model_is_half_a_pair_per_token_below_the_counted_sum(length, cached):
    if cached <= length:
        one_by_one = sum(i + 1 for i in range(int(cached), int(length)))
        assert counted_pairs(length, cached) == one_by_one
        assert counted_pairs(length, cached) - causal_pairs(length, cached) == (length - cached) / 2
    assert counted_pairs(length) == counted_pairs(length, 0)


def test_the_last_token_of_a_long_context_keeps_its_digits_in_a_float():
    for window in (None, 4096.0):
        exact = causal_pairs(Q(10**6), Q(10**6 - 1), None if window is None else Q(window))
        assert causal_pairs(1e6, 1e6 - 1, window) == pytest.approx(float(exact), rel=1e-15)


def test_each_kernel_has_its_own_efficiency(llama_8b):
    device = evolve(llama_8b.device, gemm_efficiency=Q(73, 100), attention_efficiency=Q(57, 100))
    assert gemm_rate(device) == Q(73, 100) * 989 * 10**12
    assert attention_rate(device) == Q(57, 100) * 989 * 10**12
    n = Q(100_000)
    assert compute_time(llama_8b.shape, device, n) == gemm_flops(llama_8b.shape, n) / gemm_rate(
        device
    ) + attention_flops(llama_8b.shape, n) / attention_rate(device)


def test_measured_prefills_are_met_within_two_percent_at_those_efficiencies(llama_8b):
    # vLLM blog 2026-01-08, figure 1 (digitised): Llama-3.1-8B on one H100, time to first token.
    device = evolve(llama_8b.device, gemm_efficiency=Q(73, 100), attention_efficiency=Q(57, 100))
    for tokens, milliseconds in ((10_000, 268), (50_000, 2286), (100_000, 6850)):
        model = recompute_time(llama_8b.shape, device, Q(tokens))
        assert abs(model * 1000 / milliseconds - 1) < Q(2, 100)


def test_a_pass_of_its_own_takes_at_least_the_weight_read_and_a_riding_one_does_not(llama_8b):
    shape, device = llama_8b.shape, llama_8b.device
    assert recompute_time(shape, device, Q(1)) == weight_time(shape, device) == Q(1606, 335_000)
    assert recompute_time(shape, device, Q(1), run=Run.PIGGYBACK) == compute_time(shape, device, Q(1))
    assert recompute_time(shape, device, Q(4096)) == compute_time(shape, device, Q(4096))


def test_a_window_bounds_the_attention_of_its_layers_only(llama_8b):
    full = llama_8b.shape.layers[0]
    both = evolve(llama_8b.shape, layers=(full, evolve(full, window=Q(128))))
    n = Q(4096)
    assert attention_flops(both, n) == full.pair_flops * (n * n / 2 + 128 * n - Q(128 * 128, 2))


@pytest.mark.parametrize(
    ("length", "hit", "block", "cached"),
    [
        (4096, "1/2", None, "2048"),
        (100, "1/3", None, "100/3"),
        (100, "1/3", 16, "32"),
        (4096, "1", None, "4095"),  # the last token is computed
        (4096, "1", 16, "4080"),  # and with it its whole block
        (4097, "1", 16, "4096"),
        (1, "1", 16, "0"),
        (15, "1", 16, "0"),
        (4096, "0", 16, "0"),
    ],
)
def test_tokens_of_a_prefix_hit(length, hit, block, cached):
    assert cached_tokens(Q(length), Q(hit), None if block is None else Q(block)) == Q(cached)


def test_a_decode_step_reads_windows_and_states_too(llama_8b):
    windowed = evolve(
        llama_8b.shape,
        layers=(Layers(Q(100), Q(7), Q(2)), Layers(Q(10), Q(3), Q(2), Q(50))),
        state=State(Q(1000), Q(1)),
    )
    assert kv_read(windowed, Q(40)) == 100 * 40 + 10 * 40 + 1000
    assert kv_read(windowed, Q(80)) == 100 * 80 + 10 * 50 + 1000
    step = decode_step_time(windowed, llama_8b.device, Q(3), Q(80))
    assert step * llama_8b.device.memory_bandwidth == windowed.weight_bytes + 3 * kv_read(windowed, Q(80))
    attention = token_time(windowed, llama_8b.device, Q(80)) - token_time(windowed, llama_8b.device, Q(0))
    assert attention * attention_rate(llama_8b.device) == 7 * 80 + 3 * 50


def test_a_step_with_no_compute_to_spare_says_so_by_a_negative_count(llama_8b):
    assert spare_tokens(llama_8b.shape, llama_8b.device, Q(1, 10**6), Q(64)) < 0


def test_attention_charged_at_no_context_is_no_attention(llama_8b):
    shape, device, step = llama_8b.shape, llama_8b.device, Q(1, 100)
    charged = spare_tokens_with_attention(shape, device, step, Q(64), Q(0), Q(0))
    assert charged == spare_tokens(shape, device, step, Q(64))


def test_riding_along_and_swapping_are_equal_at_its_break_even(llama_8b):
    shape, step, spare = llama_8b.shape, Q(1, 100), Q(241)
    for crossings in (1, 2):
        bandwidth = piggyback_break_even(shape, spare, step, crossings)
        assert crossings * shape.layers[0].kv_bytes * 4096 / bandwidth == piggyback_time(Q(4096), spare, step)
    assert piggyback_break_even(shape, spare, step) == piggyback_break_even(shape, spare, step, 2)
