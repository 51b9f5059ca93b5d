"""A model on a GPU: bytes per token and FLOP per pair of each kind of attention, and what parallelism divides."""

from __future__ import annotations

from fractions import Fraction as Q

import pytest

from preempt_spec.cost.number import mapped, round_down, round_up
from preempt_spec.cost.recompute import Run
from preempt_spec.cost.shape import (
    Architecture,
    Attention,
    Layers,
    Recurrent,
    Shape,
    State,
    kv_elements,
    kv_heads_per_gpu,
    layers_of,
    shape_of,
)

BF16, FP8 = Q(2), Q(1)
LLAMA_70B = Attention(Q(80), Q(64), Q(8), Q(128), Q(128))
DEEPSEEK = Attention(Q(61), Q(128), Q(128), Q(192), Q(128), latent=Q(576))


# Bytes per token, FLOP per pair: configurations as published, arithmetic by hand.
@pytest.mark.parametrize(
    ("attention", "width", "kv_bytes", "pair_flops", "tensors"),
    [
        pytest.param(Attention(Q(32), Q(32), Q(8), Q(128), Q(128)), BF16, 131_072, 524_288, 64, id="GQA Llama-3.1-8B"),
        pytest.param(Attention(Q(32), Q(32), Q(8), Q(128), Q(128)), FP8, 65_536, 524_288, 64, id="FP8 KV"),
        pytest.param(Attention(Q(32), Q(32), Q(8), Q(128), Q(128)), Q(1, 2), 32_768, 524_288, 64, id="4-bit KV"),
        pytest.param(Attention(Q(32), Q(32), Q(32), Q(128), Q(128)), BF16, 524_288, 524_288, 64, id="MHA Llama-2-7B"),
        pytest.param(Attention(Q(32), Q(71), Q(1), Q(64), Q(64)), BF16, 8_192, 581_632, 64, id="MQA Falcon-7B"),
        pytest.param(Attention(Q(2), Q(4), Q(2), Q(192), Q(128)), BF16, 2_560, 5_120, 4, id="keys longer than values"),
        pytest.param(DEEPSEEK, BF16, 70_272, 4_997_120, 61, id="MLA DeepSeek-V3"),
        pytest.param(
            Attention(Q(78), Q(64), Q(64), Q(256), Q(256), latent=Q(576)), BF16, 89_856, 5_111_808, 78, id="MLA"
        ),
    ],
)
def test_one_gpu(attention, width, kv_bytes, pair_flops, tensors):
    assert layers_of(attention, Q(1), width) == Layers(Q(kv_bytes), Q(pair_flops), Q(tensors), None)


def test_tensor_parallelism_divides_weights_heads_and_states_evenly():
    a = Architecture(Q(70), Q(35), (LLAMA_70B,), Recurrent(Q(10), Q(4000), Q(2)))
    assert shape_of(a, Q(4), BF16, FP8) == Shape(
        Q(35, 4), Q(70, 4), (Layers(Q(327_680, 4), Q(2_621_440, 4), Q(160)),), State(Q(10_000), Q(20))
    )


def test_kv_heads_are_replicated_where_there_are_fewer_than_gpus():
    assert [int(kv_heads_per_gpu(Q(8), Q(t))) for t in (1, 2, 4, 8, 16, 64)] == [8, 4, 2, 1, 1, 1]
    at_8, at_16 = layers_of(LLAMA_70B, Q(8), BF16), layers_of(LLAMA_70B, Q(16), BF16)
    assert at_16.kv_bytes == at_8.kv_bytes
    assert at_16.pair_flops == at_8.pair_flops / 2


def test_an_mla_latent_is_replicated_and_its_heads_are_divided():
    for ranks in (Q(1), Q(8), Q(128)):
        assert kv_elements(DEEPSEEK, ranks) == 576
        assert layers_of(DEEPSEEK, ranks, BF16).pair_flops == Q(4_997_120) / ranks


def test_a_mixture_of_experts_computes_with_the_active_and_reads_all():
    shape = shape_of(Architecture(Q(30_500), Q(3_300), (LLAMA_70B,)), Q(2), BF16, FP8)
    assert (shape.params, shape.weight_bytes) == (Q(1_650), Q(15_250))


def test_kinds_of_layers_keep_their_windows():
    kinds = tuple(Attention(Q(18), Q(64), Q(8), Q(64), Q(64), window) for window in (None, Q(128)))
    shape = shape_of(Architecture(Q(5), Q(5), kinds), Q(1), BF16, BF16)
    assert [layers.window for layers in shape.layers] == [None, 128]
    assert [layers.kv_bytes for layers in shape.layers] == [36_864, 36_864]
    assert shape.state is None


@pytest.mark.parametrize(
    ("x", "up", "down"), [("7/2", 4, 3), ("-7/2", -3, -4), ("4", 4, 4), ("0", 0, 0), ("1/9", 1, 0)]
)
def test_rounding_keeps_the_kind_of_number(x, up, down):
    for number in (Q(x), float(Q(x))):
        assert (round_up(number), round_down(number)) == (up, down)
        assert type(round_up(number)) is type(round_down(number)) is type(number)


def test_mapped_converts_every_number_and_nothing_else(llama_8b):
    fast = mapped(llama_8b, float)
    assert isinstance(fast.shape.layers[0].kv_bytes, float)
    assert isinstance(fast.transfer.out.overhead, float)
    assert fast.run is Run.ALONE
    assert fast.transfer.whole_blocks is True
    assert fast.hit is fast.shape.state is None
    assert mapped(fast, Q) == mapped(mapped(llama_8b, float), Q)
    assert mapped(("a", Q(1, 2)), float) == ("a", 0.5)
