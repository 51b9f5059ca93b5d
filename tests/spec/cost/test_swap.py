"""Copies and swaps: laws, pieces, blocks, trips and directions."""

from __future__ import annotations

from fractions import Fraction as Q

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from preempt_spec.cost.copies import (
    Affine,
    Piecewise,
    Tabulated,
    breakpoints,
    copy_time,
    covers,
    effective_bandwidth,
    half_bandwidth_size,
    overhead_for,
    size_for,
    staged_bandwidth,
)
from preempt_spec.cost.shape import Layers, Shape, State
from preempt_spec.cost.swap import (
    Batch,
    Copies,
    Directions,
    Hit,
    Transfer,
    Trip,
    batches,
    crossings,
    extrapolated_sizes,
    moved_bytes,
    moved_tokens,
    one_way_time,
    repeated_swap_time,
    swap_bandwidth,
    swap_time,
    whole_block_tokens,
)

GB = Q(10**9)
AFFINE = Affine(Q(5, 10**6), 50 * GB)
TABLE = Tabulated((Q(100), Q(200), Q(400)), (Q(10), Q(12), Q(20)))
SWITCHED = Piecewise(AFFINE, Q(4096), Affine(Q(1, 10**6), 40 * GB))
FULL = Layers(Q(1000), Q(1), Q(4))
WINDOWED = Layers(Q(100), Q(1), Q(2), Q(40))
SHAPE = Shape(Q(1), Q(1), (FULL, WINDOWED), State(Q(600), Q(3)))
#: Out and back differ, and a copy's fixed cost is worth a thousand bytes.
TRANSFER = Transfer(Affine(Q(10), Q(100)), Affine(Q(5), Q(200)), Q(16))


# -- laws --------------------------------------------------------------------------------------------------------------


def test_an_affine_law():
    assert copy_time(AFFINE, Q(32_768)) == Q(5, 10**6) + Q(32_768) / (50 * GB)
    assert effective_bandwidth(AFFINE, half_bandwidth_size(AFFINE)) == 25 * GB
    assert effective_bandwidth(AFFINE, size_for(AFFINE, 40 * GB)) == 40 * GB
    tolerable = overhead_for(Q(32_768), 50 * GB, 8 * GB)
    assert effective_bandwidth(Affine(tolerable, 50 * GB), Q(32_768)) == 8 * GB


@pytest.mark.parametrize(
    ("size", "seconds", "measured"),
    [
        (50, 10, False),  # no faster than the smallest copy measured
        (100, 10, True),
        (150, 11, True),
        (200, 12, True),
        (300, 16, True),
        (400, 20, True),
        (800, 40, False),  # at the bandwidth of the largest copy measured
    ],
)
def test_a_measured_law_and_what_it_says_outside(size, seconds, measured):
    assert copy_time(TABLE, Q(size)) == seconds
    assert covers(TABLE, Q(size)) is measured


def test_a_protocol_switch_belongs_to_the_larger_copies():
    assert copy_time(SWITCHED, Q(4095)) == copy_time(SWITCHED.small, Q(4095))
    assert copy_time(SWITCHED, Q(4096)) == copy_time(SWITCHED.large, Q(4096))


def test_what_a_law_covers_and_where_it_bends():
    assert covers(AFFINE, Q(1)) is True
    mixed = Piecewise(TABLE, Q(300), AFFINE)
    assert [covers(mixed, Q(s)) for s in (50, 250, 10**9)] == [False, True, True]
    apart = Piecewise(TABLE, Q(500), Tabulated((Q(500), Q(600)), (Q(10), Q(20))))
    assert [covers(apart, Q(s)) for s in (400, 499, 500, 600)] == [True, False, True, True]
    assert breakpoints(AFFINE) == ()
    assert breakpoints(mixed) == (Q(100), Q(200), Q(400), Q(300))


def test_a_pageable_buffer_is_passed_one_after_the_other():
    size, link, host = Q(10**6), 25 * GB, 10 * GB
    assert size / staged_bandwidth(link, host) == size / link + size / host


# -- what is moved -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "full", "windowed"),
    [(1, 16, 16), (16, 16, 16), (17, 32, 32), (40, 48, 48), (41, 48, 48), (100, 112, 48)],
)
def test_whole_blocks_of_what_is_kept(length, full, windowed):
    assert moved_tokens(FULL, TRANSFER, Q(length)) == full
    assert moved_tokens(WINDOWED, TRANSFER, Q(length)) == windowed
    assert moved_bytes(SHAPE, TRANSFER, Q(length)) == 1000 * full + 100 * windowed + 600
    assert whole_block_tokens(Q(length), Q(16)) == full


def test_a_part_of_a_block_is_a_part_without_whole_blocks():
    parts = evolve(TRANSFER, whole_blocks=False)
    assert moved_bytes(SHAPE, parts, Q(41)) == 1000 * 41 + 100 * 40 + 600


def test_a_hit_saves_bytes_only_where_that_is_what_it_means():
    saving = evolve(TRANSFER, hit=Hit.SAVES_BYTES)
    assert moved_tokens(FULL, TRANSFER, Q(100), Q(32)) == 112
    assert moved_tokens(FULL, saving, Q(100), Q(32)) == 80
    # The last 40 tokens are the window: a hit of the first 32 of 100 saves none of them.
    assert moved_tokens(WINDOWED, saving, Q(100), Q(32)) == 48
    assert moved_tokens(WINDOWED, saving, Q(100), Q(80)) == 32


def test_nothing_is_cached_unless_said():
    saving = evolve(TRANSFER, whole_blocks=False, hit=Hit.SAVES_BYTES, out=Tabulated((Q(1),), (Q(1),)))
    n, none = Q(100), Q(0)
    assert moved_tokens(FULL, saving, n) == moved_tokens(FULL, saving, n, none)
    assert moved_bytes(SHAPE, saving, n) == moved_bytes(SHAPE, saving, n, none)
    assert batches(SHAPE, saving, n) == batches(SHAPE, saving, n, none)
    assert one_way_time(SHAPE, saving, AFFINE, n) == one_way_time(SHAPE, saving, AFFINE, n, none)
    assert swap_time(SHAPE, saving, n) == swap_time(SHAPE, saving, n, none)
    assert swap_bandwidth(SHAPE, saving, n) == swap_bandwidth(SHAPE, saving, n, none)
    gathered = evolve(saving, copies=Copies.GATHERED)
    assert extrapolated_sizes(SHAPE, gathered, n) == extrapolated_sizes(SHAPE, gathered, n, none)


def test_the_copies_of_one_direction():
    def of(copies: Copies) -> tuple[Batch[Q], ...]:
        return batches(SHAPE, evolve(TRANSFER, copies=copies), Q(100))

    assert of(Copies.PER_TENSOR) == (Batch(Q(7 * 4), Q(4000)), Batch(Q(3 * 2), Q(800)), Batch(Q(3), Q(200)))
    assert of(Copies.PER_BLOCK) == (Batch(Q(7), Q(16_000)), Batch(Q(3), Q(1600)), Batch(Q(1), Q(600)))
    assert of(Copies.GATHERED) == (Batch(Q(1), moved_bytes(SHAPE, TRANSFER, Q(100))),)


@settings(max_examples=40)
@given(data=st.data(), length=st.integers(1, 10_000).map(Q))
def test_however_cut_the_copies_are_the_bytes(data, real_settings, length):
    s = data.draw(real_settings)
    total = sum(b.count * b.size for b in batches(s.shape, s.transfer, length))
    assert total == moved_bytes(s.shape, s.transfer, length)


def test_copies_outside_of_what_was_measured_are_named():
    table = Tabulated((Q(500), Q(4000)), (Q(1), Q(2)))
    one_measured = evolve(TRANSFER, out=table)
    assert extrapolated_sizes(SHAPE, one_measured, Q(100)) == (Q(200),)
    assert extrapolated_sizes(SHAPE, evolve(one_measured, trip=Trip.WRITE_THROUGH), Q(100)) == ()
    saving = evolve(one_measured, copies=Copies.GATHERED, hit=Hit.SAVES_BYTES)
    assert extrapolated_sizes(SHAPE, saving, Q(2)) == (Q(18_200),)
    small = Shape(Q(1), Q(1), (WINDOWED,))
    assert extrapolated_sizes(small, saving, Q(40)) == (Q(4_800),)
    assert extrapolated_sizes(small, saving, Q(40), Q(30)) == ()


# -- how long it takes -------------------------------------------------------------------------------------------------


def test_one_way_is_the_sum_of_its_copies():
    by_hand = 28 * (10 + Q(4000, 100)) + 6 * (10 + Q(800, 100)) + 3 * (10 + Q(200, 100))
    assert one_way_time(SHAPE, TRANSFER, TRANSFER.out, Q(100)) == by_hand


def test_trips_and_directions():
    out, back = (one_way_time(SHAPE, TRANSFER, law, Q(100)) for law in (TRANSFER.out, TRANSFER.back))
    assert out > back
    for trip, directions, seconds, times in (
        (Trip.ROUND_TRIP, Directions.SERIAL, out + back, 2),
        (Trip.ROUND_TRIP, Directions.OVERLAPPED, out, 1),
        (Trip.WRITE_THROUGH, Directions.SERIAL, back, 1),
        (Trip.WRITE_THROUGH, Directions.OVERLAPPED, back, 1),
    ):
        transfer = evolve(TRANSFER, trip=trip, directions=directions)
        assert swap_time(SHAPE, transfer, Q(100)) == seconds
        assert crossings(transfer) == times
        assert swap_bandwidth(SHAPE, transfer, Q(100)) == times * moved_bytes(SHAPE, transfer, Q(100)) / seconds


def test_two_directions_in_series_run_at_their_harmonic_mean():
    transfer = Transfer(Affine(Q(0), 297 * GB), Affine(Q(0), 377 * GB), Q(16))
    assert swap_bandwidth(SHAPE, transfer, Q(100)) == 2 / (1 / (297 * GB) + 1 / (377 * GB))


def test_a_kept_host_copy_goes_out_once():
    out, back = (one_way_time(SHAPE, TRANSFER, law, Q(100)) for law in (TRANSFER.out, TRANSFER.back))
    assert repeated_swap_time(SHAPE, TRANSFER, Q(100), Q(3)) == out + 3 * back
    written = evolve(TRANSFER, trip=Trip.WRITE_THROUGH)
    assert repeated_swap_time(SHAPE, written, Q(100), Q(3)) == 3 * back


def test_a_model_without_attention_layers_moves_its_state():
    recurrent = Shape(Q(1), Q(1), (), State(Q(600), Q(3)))
    assert moved_bytes(recurrent, TRANSFER, Q(7)) == moved_bytes(recurrent, TRANSFER, Q(7_000)) == 600
    assert swap_time(recurrent, TRANSFER, Q(7)) == 3 * (10 + 2) + 3 * (5 + 1)
