"""Certificates: no point of a box contradicts it, and the box holds the point it was made for."""

from __future__ import annotations

import math
from fractions import Fraction as Q

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from preempt_spec.cost.certify import Certificate, Range, certify, holds_at, most_bytes, within
from preempt_spec.cost.copies import Affine
from preempt_spec.cost.decide import (
    Choice,
    Setting,
    achieved_bandwidth,
    break_even_bandwidth,
    cached,
    choose,
    recompute_cost,
    smooth,
    swap_cost,
)
from preempt_spec.cost.recompute import Run, gemm_rate
from preempt_spec.cost.swap import crossings, moved_bytes

LENGTHS = st.integers(1, 20_000) | st.integers(1, 300)


def pick(draw, r: Range[Q], least: Q, most: Q) -> Q:
    """A value of the range, its ends among the likely ones."""
    lo = max(least, r.least) if r.least is not None else least
    hi = r.most if r.most is not None else max(lo, most)
    return (
        draw(st.sampled_from((lo, hi))) if draw(st.booleans()) else lo + (hi - lo) * Q(draw(st.integers(0, 100)), 100)
    )


def holds(certificate: Certificate[Q], setting: Setting[Q], bandwidth: Q, length: Q) -> bool:
    """Whether the certificate's claim is so: the swap at this effective bandwidth, the setting's own device."""
    moved = moved_bytes(setting.shape, setting.transfer, length, cached(setting, length))
    swapped = crossings(setting.transfer) * moved / bandwidth
    again = recompute_cost(setting, length)
    return swapped <= again if certificate.winner is Choice.SWAP else again <= swapped


@pytest.mark.long
@settings(max_examples=120)
@given(data=st.data(), start=LENGTHS)
def test_no_point_of_the_box_contradicts_it(data, real_settings, start):
    setting = data.draw(real_settings)
    certificate = certify(setting, Q(start))
    device = setting.device
    bandwidth = pick(data.draw, certificate.bandwidth, Q(1), Q(10**13))
    flops = pick(data.draw, certificate.flops, Q(10**6), Q(10**17))
    memory = pick(data.draw, certificate.memory, Q(10**6), Q(10**15))
    length = Q(math.floor(pick(data.draw, certificate.length, Q(1), Q(200_000))))
    if not within(certificate.length, length):
        length = Q(start)
    assert holds_at(certificate, bandwidth, flops, memory, length)
    peak = device.peak_flops * flops / gemm_rate(device)
    elsewhere = evolve(setting, device=evolve(device, peak_flops=peak, memory_bandwidth=memory))
    assert holds(certificate, elsewhere, bandwidth, length)


@settings(max_examples=40)
@given(data=st.data(), start=LENGTHS)
def test_the_box_holds_its_own_point_and_names_the_winner_there(data, real_settings, start):
    setting, length = data.draw(real_settings), Q(start)
    certificate = certify(setting, length)
    assert certificate.winner is choose(setting, length)
    here = (achieved_bandwidth(setting, length), gemm_rate(setting.device), setting.device.memory_bandwidth)
    assert holds_at(certificate, *here, length)
    assert certificate.why
    if setting.hit is not None:
        assert certificate.length == Range(length, length)


def test_swap_for_every_longer_request(llama_8b):
    law = Affine(Q(0), Q(50 * 10**9))
    setting = evolve(llama_8b, transfer=evolve(llama_8b.transfer, out=law, back=law))
    certificate = certify(setting, Q(4096))
    assert certificate.winner is Choice.SWAP
    assert certificate.length == Range(least=Q(4096))
    assert certificate.flops == Range(most=Q(4945 * 10**11))
    assert certificate.memory == Range()
    # One block less a token of padding: 15 tokens in 4,096.
    exact = break_even_bandwidth(setting, Q(4096))
    assert certificate.bandwidth == Range(least=exact * Q(4096 + 15, 4096))
    unpadded = certify(smooth(setting), Q(4096))
    assert unpadded.bandwidth == Range(least=exact)
    assert len(unpadded.why) == len(certificate.why) - 1


def test_recompute_down_to_where_the_weight_read_takes_over(llama_8b):
    law = Affine(Q(0), Q(4 * 10**9))
    setting = evolve(llama_8b, transfer=evolve(llama_8b.transfer, out=law, back=law))
    certificate = certify(setting, Q(4096))
    assert certificate.winner is Choice.RECOMPUTE
    assert certificate.bandwidth == Range(most=break_even_bandwidth(setting, Q(4096)))
    assert certificate.length.least is not None
    assert 138 < certificate.length.least < 139
    assert certificate.length.most == 4096
    riding = certify(evolve(setting, run=Run.PIGGYBACK), Q(4096))
    assert riding.length == Range(most=Q(4096))
    assert riding.memory == Range()


def test_swap_for_every_shorter_request_where_the_weight_read_decides(llama_8b):
    law = Affine(Q(0), Q(4 * 10**9))
    setting = evolve(llama_8b, transfer=evolve(llama_8b.transfer, out=law, back=law))
    certificate = certify(setting, Q(64))
    assert certificate.winner is Choice.SWAP
    assert certificate.length == Range(most=Q(64))
    assert certificate.bandwidth == Range(least=break_even_bandwidth(setting, Q(64)))
    assert certificate.flops == Range()
    assert certificate.memory == Range(most=setting.device.memory_bandwidth)


def test_where_only_padding_decides_no_other_length_is_claimed(llama_8b):
    # 17 tokens take two blocks; a bandwidth between the break-evens with and without that padding.
    between = (break_even_bandwidth(llama_8b, Q(4097)) + break_even_bandwidth(smooth(llama_8b), Q(4097))) / 2
    law = Affine(Q(0), between)
    setting = evolve(llama_8b, transfer=evolve(llama_8b.transfer, out=law, back=law))
    certificate = certify(setting, Q(4097))
    assert certificate.winner is Choice.RECOMPUTE
    assert certificate.length == Range(Q(4097), Q(4097))
    assert choose(setting, Q(4096)) is Choice.SWAP


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 31, 32, 33, 4095, 4096, 4097])
def test_bytes_with_all_padding_bound_the_bytes_moved(llama_8b, length):
    n = Q(length)
    bound, moved = most_bytes(llama_8b, n), moved_bytes(llama_8b.shape, llama_8b.transfer, n)
    assert moved <= bound < moved + 16 * 131_072
    assert bound / n >= most_bytes(llama_8b, n + 1) / (n + 1)


def test_ends_belong_to_a_range():
    assert within(Range(Q(1), Q(2)), Q(1))
    assert within(Range(Q(1), Q(2)), Q(2))
    assert not within(Range(Q(1), Q(2)), Q(9, 10))
    assert not within(Range(Q(1), Q(2)), Q(21, 10))
    assert within(Range(), Q(0))


def test_a_point_lies_in_the_box_only_if_each_coordinate_does():
    certificate = Certificate(
        Choice.SWAP, Range(least=Q(5)), Range(most=Q(5)), Range(most=Q(5)), Range(least=Q(5)), ("why",)
    )
    assert holds_at(certificate, Q(5), Q(5), Q(5), Q(5))
    for i, outside in enumerate((Q(4), Q(6), Q(6), Q(4))):
        point = [Q(5)] * 4
        point[i] = outside
        assert not holds_at(certificate, *point)


def test_the_corner_is_a_break_even(llama_8b):
    law = Affine(Q(0), Q(4 * 10**9))
    setting = smooth(evolve(llama_8b, transfer=evolve(llama_8b.transfer, out=law, back=law)))
    most = certify(setting, Q(4096)).bandwidth.most
    assert most is not None
    corner = Affine(Q(0), most)
    there = evolve(setting, transfer=evolve(setting.transfer, out=corner, back=corner))
    assert swap_cost(there, Q(4096)) == recompute_cost(there, Q(4096))
