"""Nonsense is refused at the edge, by the field's name and with a reason."""

from __future__ import annotations

import re
from fractions import Fraction as Q
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from preempt_spec.cost.checked import check_length, check_number, check_points, check_ranks, check_sizes, checked
from preempt_spec.cost.copies import Affine, Piecewise, Tabulated
from preempt_spec.cost.fit import Point
from preempt_spec.cost.number import mapped
from preempt_spec.cost.recompute import Device
from preempt_spec.cost.shape import Architecture, Attention, Recurrent, Shape
from preempt_spec.cost.swap import Transfer

ATTENTION = Attention(Q(32), Q(32), Q(8), Q(128), Q(128))
ARCHITECTURE = Architecture(Q(8 * 10**9), Q(8 * 10**9), (ATTENTION,), None, Q(131_072))
DEVICE = Device(Q(10**15), Q(10**12), Q(1, 2), Q(1, 2))
LAW = Affine(Q(0), Q(10**9))
TRANSFER = Transfer(LAW, LAW, Q(16))
# Of no declared type: what a careless caller hands over.
NAN: Any = float("nan")
INF: Any = float("inf")
AN_INT: Any = 10**9


@settings(max_examples=30)
@given(data=st.data())
def test_what_makes_sense_passes_unchanged(data, real_settings):
    setting = data.draw(real_settings)
    assert checked(setting) is setting
    fast = mapped(setting, float)
    assert checked(fast) is fast


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (evolve(ATTENTION, layers=Q(0)), "layers: 0 is not above 0"),
        (evolve(ATTENTION, heads=Q(-1)), "heads: -1 is not above 0"),
        (evolve(ATTENTION, key_dim=Q(1, 2)), "key_dim: 0.5 is no whole number"),
        (evolve(ATTENTION, kv_heads=Q(64)), "kv_heads: 64 is above heads = 32"),
        (evolve(ATTENTION, kv_heads=Q(5)), "kv_heads: 5 does not divide heads = 32"),
        (evolve(ATTENTION, window=Q(0)), "window: 0 is not above 0"),
        (evolve(ATTENTION, latent=NAN), "latent: nan is not a finite number"),
        (
            evolve(ARCHITECTURE, params_active=Q(9 * 10**9)),
            "params_active: 9000000000 is above params_total = 8000000000",
        ),
        (evolve(ARCHITECTURE, attention=()), "attention: no attention layers and no recurrent ones"),
        (evolve(ARCHITECTURE, attention=(ATTENTION, evolve(ATTENTION, heads=INF))), "attention[1].heads: inf is not"),
        (evolve(ARCHITECTURE, recurrent=Recurrent(Q(1), Q(0), Q(1))), "recurrent.state_bytes: 0 is not above 0"),
        (evolve(ARCHITECTURE, max_length=Q(5, 2)), "max_length: 2.5 is no whole number"),
        (evolve(DEVICE, peak_flops=INF), "peak_flops: inf is not a finite number"),
        (evolve(DEVICE, peak_flops=Q(10) ** 400), "peak_flops: too large"),
        (evolve(DEVICE, memory_bandwidth=Q(0)), "memory_bandwidth: 0 is not above 0"),
        (evolve(DEVICE, gemm_efficiency=Q(101, 100)), "gemm_efficiency: 1.01 is above 1"),
        (evolve(DEVICE, attention_efficiency=Q(2)), "attention_efficiency: 2 is above 1"),
        (evolve(DEVICE, attention_efficiency=Q(0)), "attention_efficiency: 0 is not above 0"),
        (evolve(LAW, overhead=Q(-1, 10**6)), "overhead: -1e-06 is not 0 or more"),
        (evolve(LAW, bandwidth=Q(0)), "bandwidth: 0 is not above 0"),
        (evolve(TRANSFER, block=Q(0)), "block: 0 is not above 0"),
        (evolve(TRANSFER, block=Q(33, 2)), "block: 16.5 is no whole number"),
        (evolve(TRANSFER, back=evolve(LAW, bandwidth=NAN)), "back.bandwidth: nan is not a finite number"),
        (evolve(TRANSFER, out=Piecewise(LAW, Q(-4), LAW)), "out.switch: -4 is not above 0"),
        (evolve(TRANSFER, out=Piecewise(LAW, Q(4), evolve(LAW, overhead=NAN))), "out.large.overhead: nan is not"),
        (Tabulated((Q(1), Q(1)), (Q(1), Q(2))), "sizes[1]: 1 is not above 1 before it"),
        (Tabulated((Q(2), Q(1)), (Q(1), Q(2))), "sizes[1]: 1 is not above 2 before it"),
        (Tabulated((Q(1), Q(2)), (Q(1), Q(0))), "seconds[1]: 0 is not above 0"),
        (Tabulated((Q(1), Q(2)), (Q(1),)), "seconds: 1 times for 2 sizes"),
        (Tabulated((), ()), "sizes: no points"),
        (Shape(Q(1), Q(1), ()), "layers: neither layers nor a state"),
        (Point(Q(1), Q(1), Q(2), Q(3)), "seconds: 1 is not within its error"),
    ],
)
def test_what_makes_none_is_refused_by_name(value, says):
    with pytest.raises(ValueError, match="^" + re.escape(says)):
        checked(value)


@pytest.mark.parametrize(
    "value",
    [
        ARCHITECTURE,
        evolve(ARCHITECTURE, attention=(), recurrent=Recurrent(Q(1), Q(1), Q(1))),
        evolve(ATTENTION, kv_heads=Q(32)),
        evolve(DEVICE, gemm_efficiency=Q(1), attention_efficiency=Q(1)),
        Point(Q(1), Q(1), Q(1), Q(1)),
    ],
)
def test_the_limits_themselves_make_sense(value):
    assert checked(value) is value


@pytest.mark.parametrize(
    ("hit", "says"),
    [
        (Q(11, 10), "hit: 1.1 is not within [0, 1]"),
        (Q(-1, 10), "hit: -0.1 is not 0 or more"),
        (NAN, "hit: nan is not a finite number"),
    ],
)
def test_a_hit_outside_0_to_1(llama_8b, hit, says):
    with pytest.raises(ValueError, match="^" + re.escape(says)):
        checked(evolve(llama_8b, hit=hit))
    for end in (Q(0), Q(1)):
        checked(evolve(llama_8b, hit=end))


def test_the_path_leads_to_the_field(llama_8b):
    law = evolve(llama_8b.transfer.out, bandwidth=Q(-1))
    with pytest.raises(ValueError, match=r"^transfer\.out\.bandwidth: -1 is not above 0"):
        checked(evolve(llama_8b, transfer=evolve(llama_8b.transfer, out=law)))


def test_an_int_is_refused_since_its_halves_are_floats():
    with pytest.raises(TypeError, match=r"^bandwidth: "):
        checked(evolve(LAW, bandwidth=AN_INT))


@pytest.mark.parametrize(
    ("length", "says"),
    [
        (Q(0), "length: 0 is not above 0"),
        (Q(5, 2), "length: 2.5 is no whole number of tokens"),
        (Q(131_073), "length: 131073 tokens are more than the model's context of 131072"),
        (NAN, "length: nan is not a finite number"),
    ],
)
def test_a_length_that_no_request_has(length, says):
    with pytest.raises(ValueError, match="^" + re.escape(says)):
        check_length(length, ARCHITECTURE.max_length)


def test_a_length_that_one_has():
    assert check_length(Q(131_072), ARCHITECTURE.max_length) == 131_072
    assert check_length(Q(10**7)) == 10**7


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16, 32])
def test_ranks_that_divide(ranks):
    assert check_ranks(ARCHITECTURE, Q(ranks)) == ranks


@pytest.mark.parametrize(
    ("heads", "kv_heads", "ranks", "says"),
    [
        (32, 8, Q(3), "ranks: 3 do not divide attention[0].heads = 32"),
        (32, 8, Q(0), "ranks: 0 is not above 0"),
        (32, 8, Q(1, 2), "ranks: 0.5 is no whole number of GPUs"),
        (24, 4, Q(6), "ranks: neither of 6 and attention[0].kv_heads = 4 divides the other"),
    ],
)
def test_ranks_that_do_not(heads, kv_heads, ranks, says):
    attention = evolve(ATTENTION, heads=Q(heads), kv_heads=Q(kv_heads))
    with pytest.raises(ValueError, match="^" + re.escape(says)):
        check_ranks(evolve(ARCHITECTURE, attention=(attention,)), ranks)


def test_a_replicated_latent_has_no_kv_heads_to_divide():
    mla = Attention(Q(61), Q(128), Q(128), Q(192), Q(128), latent=Q(576))
    assert check_ranks(evolve(ARCHITECTURE, attention=(evolve(mla, kv_heads=Q(1)),)), Q(64)) == 64


def test_points_that_no_law_can_be_fitted_to():
    p = Point(Q(4096), Q(1), Q(1), Q(1))
    with pytest.raises(ValueError, match=r"^points: 1 given"):
        check_points([p])
    with pytest.raises(ValueError, match=r"^sizes\[1\]: 4096 is not above 4096"):
        check_points([p, p])
    with pytest.raises(ValueError, match=r"^points\[1\]\.seconds: 0 is not above 0"):
        check_points([p, evolve(p, size=Q(8192), seconds=Q(0))])
    both = [p, evolve(p, size=Q(8192))]
    assert check_points(both) == both


def test_numbers_and_sizes_by_a_name_of_the_callers():
    with pytest.raises(ValueError, match=r"^--mfu: 0 is not above 0"):
        check_number("--mfu", Q(0))
    check_number("--overhead", Q(0), zero=True)
    with pytest.raises(ValueError, match=r"^column size\[2\]: 1 is not above 2"):
        check_sizes([Q(1), Q(2), Q(1)], "column size")
