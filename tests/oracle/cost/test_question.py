"""From options to a setting: defaults are said, contradictions and nonsense are refused by name."""

from __future__ import annotations

import json
from fractions import Fraction as Q
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preempt_oracle.cost import registry
from preempt_oracle.cost.answer import Answer, answer
from preempt_oracle.cost.copying import copy_path
from preempt_oracle.cost.errors import CostInputError
from preempt_oracle.cost.question import Given, Question, question
from preempt_spec.cost import decide
from preempt_spec.cost.certify import holds_at
from preempt_spec.cost.copies import Affine, copy_time
from preempt_spec.cost.decide import Choice
from preempt_spec.cost.number import mapped
from preempt_spec.cost.recompute import Run, gemm_rate
from preempt_spec.cost.swap import Copies, Directions, Hit, Trip

GB = 10**9


def ask(model: str = "llama-3.1-8b", **options: Any) -> Question:
    return question(model, Given(**{"accelerator": "h100-sxm", **options}))


def at_4k(**options: Any) -> Answer:
    return answer(ask(**options), Q(4096))


def test_without_options_the_measured_link_is_used_in_one_copy_and_that_is_said():
    asked = ask()
    assert asked.setting.transfer.out == Affine(Q(0), Q(507 * GB, 10))
    assert asked.setting.transfer.copies is Copies.GATHERED
    assert asked.setting.run is Run.ALONE
    assert asked.setting.hit is None
    said = "\n".join(asked.assumptions)
    for part in (
        "as measured, 50.7 GB/s out",
        "50% of 989 TFLOP/s",
        "for want of --mfu",
        "reads all weights",
        "both ways",
    ):
        assert part in said


def test_a_link_known_on_paper_only_is_called_so():
    assert "ON PAPER" in ask(accelerator="h100-pcie").assumptions[0]


def test_a_direction_that_was_not_measured_is_like_the_other_and_that_is_said():
    asked = ask(accelerator="a100-40gb-sxm")
    assert asked.setting.transfer.out == asked.setting.transfer.back == Affine(Q(0), Q(2513 * GB, 100))
    assert "one way was measured" in asked.assumptions[0]


def test_an_unknown_link_asks_for_its_bandwidth():
    with pytest.raises(CostInputError, match=r"^--bandwidth: is needed"):
        ask(accelerator="tpu-v5e")
    assert ask(accelerator="tpu-v5e", bandwidth="50GB/s").setting.transfer.out == Affine(Q(0), Q(50 * GB))


def test_every_option_reaches_the_setting():
    s = ask(
        bandwidth="50GB/s", copy_overhead="5us", copy_size="block", tp="4", kv_dtype="fp8", block="32", hit="25%",
        hit_bytes="save", duplex=True, mfu_gemm="0.73", mfu_attention="57%", compute_dtype="fp8", piggy_back=True,
    ).setting  # fmt: skip
    assert s.transfer.out == s.transfer.back == Affine(Q(5, 10**6), Q(50 * GB))
    assert s.transfer.copies is Copies.PER_BLOCK
    assert s.transfer.block == 32
    assert s.shape.layers[0].kv_bytes == 32 * 2 * 2 * 128
    assert (s.hit, s.transfer.hit) == (Q(1, 4), Hit.SAVES_BYTES)
    assert s.transfer.directions is Directions.OVERLAPPED
    assert gemm_rate(s.device) == Q(73, 100) * 1978 * 10**12
    assert s.device.attention_efficiency == Q(57, 100)
    assert s.run is Run.PIGGYBACK
    assert ask(write_through=True).setting.transfer.trip is Trip.WRITE_THROUGH


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"curve": "h100-dma", "bandwidth": "50GB/s"}, "--curve: and --bandwidth exclude each other"),
        ({"curve": "h100-dma", "copy_overhead": "5us"}, "--curve: and --copy-overhead exclude each other"),
        ({"mfu": "0.5", "mfu_gemm": "0.5"}, "--mfu: and --mfu-gemm exclude each other"),
        ({"mfu": "0.5", "mfu_attention": "0.5"}, "--mfu: and --mfu-attention exclude each other"),
        ({"alone": True, "piggy_back": True}, "--alone: and --piggy-back exclude each other"),
        ({"write_through": True, "duplex": True}, "--write-through: and --duplex exclude each other"),
        ({"hit_bytes": "save"}, "--hit-bytes: means nothing without --hit"),
        ({"copy_size": "32KiB"}, "--copy-size: means nothing without --copy-overhead or --curve"),
        ({"tp": "3"}, "--tp: 3 do not divide attention[0].heads = 32"),
        ({"tp": "64"}, "--tp: 64 do not divide attention[0].heads = 32"),
        ({"tp": "0"}, "--tp: '0' is zero"),
        ({"tp": "1.5"}, "--tp: '1.5' is not whole"),
        ({"bandwidth": "0GB/s"}, "--bandwidth: '0GB/s' is zero"),
        ({"bandwidth": "-5GB/s"}, "--bandwidth: '-5GB/s' is negative"),
        ({"bandwidth": "nan"}, "--bandwidth: 'nan' is not a finite number"),
        ({"bandwidth": "inf GB/s"}, "--bandwidth: 'inf GB/s' is not a finite number"),
        ({"bandwidth": "50GB"}, "--bandwidth: '50GB' is a size, not a bandwidth"),
        ({"bandwidth": "50"}, "--bandwidth: '50' has no unit"),
        ({"copy_overhead": "5"}, "--copy-overhead: '5' has no unit"),
        ({"copy_overhead": "5us", "copy_size": "0B"}, "--copy-size: '0B' is zero"),
        ({"copy_overhead": "5us", "copy_size": "blocks"}, "--copy-size: 'blocks' does not start with a number"),
        ({"hit": "1.5"}, "--hit: '1.5' is more than 1"),
        ({"hit": "-0.5"}, "--hit: '-0.5' is negative"),
        ({"mfu": "0"}, "--mfu: '0' is zero"),
        ({"mfu": "101%"}, "--mfu: '101%' is more than"),
        ({"block": "0"}, "--block: '0' is zero"),
        ({"curve": "nonsense"}, "--curve: 'nonsense' is the name of no known curve"),
        ({"curve": "no/such.csv"}, "no/such.csv: cannot be read"),
        ({"accelerator": "h1000"}, "--accelerator: 'h1000' is the name of no known accelerator"),
        ({"accelerator": "a100", "compute_dtype": "fp8"}, "--compute-dtype: A100-80GB SXM computes no faster in fp8"),
    ],
)
def test_nonsense_is_refused_by_the_name_of_the_option(options, message):
    with pytest.raises(CostInputError) as caught:
        ask(**options)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("context", ["0", "-1", "4096.5", "131073", "1e30", "nan", "", "4096 bananas"])
def test_lengths_that_the_model_cannot_have_are_refused(context):
    with pytest.raises(CostInputError, match=r"^--context: "):
        ask().length(context)


def test_a_length_may_have_a_unit():
    assert ask().length("4Ki") == ask().length("4096") == 4096


def test_a_config_with_more_kv_heads_than_heads_is_refused_with_the_field(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4,
                "num_key_value_heads": 8, "vocab_size": 1000, "intermediate_size": 512, "torch_dtype": "bfloat16",
                "max_position_embeddings": 4096,
            }
        )
    )  # fmt: skip
    with pytest.raises(CostInputError, match=r"num_key_value_heads"):
        ask(str(config))


def test_weights_that_do_not_fit_are_warned_of():
    assert any(text.startswith("WARNING: 141.1 GB of weights") for text in ask("llama-3.1-70b").assumptions)
    assert not any(text.startswith("WARNING") for text in ask("llama-3.1-70b", tp="4").assumptions)


def test_unverified_facts_are_said():
    assert any("not verified" in text for text in ask("phi-4").assumptions)


# Answers.


def test_the_answer_to_the_seeds_question():
    a = at_4k(bandwidth="50GB/s", copy_overhead="5us")
    assert a.choice is Choice.RECOMPUTE
    assert [(b.count, b.size) for b in a.copies] == [(Q(16384), Q(32768))]
    assert (a.recompute_lengths[0].first, a.recompute_lengths[0].last) == (106, 24078)
    assert at_4k(bandwidth="50GB/s").choice is Choice.SWAP


@pytest.mark.parametrize("how", [{}, {"write_through": True}, {"duplex": True}, {"hit": "0.5"}, {"piggy_back": True}])
def test_at_its_break_even_overhead_and_size_a_copy_costs_what_recompute_does(how):
    a = at_4k(bandwidth="50GB/s", copy_overhead="5us", **how)
    assert a.most_overhead is not None
    assert a.least_size is not None
    # Exactly: one µs is written as the fraction it is.
    there = at_4k(
        bandwidth="50GB/s", copy_overhead=f"{a.most_overhead.numerator}/{a.most_overhead.denominator}s", **how
    )
    assert there.swap == there.recompute
    assert there.choice is Choice.RECOMPUTE
    size = f"{a.least_size.numerator}/{a.least_size.denominator}B"
    assert at_4k(bandwidth="50GB/s", copy_overhead="5us", copy_size=size, **how).swap == a.recompute


def test_no_overhead_makes_a_slow_link_win_and_that_is_not_promised():
    a = at_4k(bandwidth="5GB/s", copy_overhead="1us")
    assert a.choice is Choice.RECOMPUTE
    assert (a.most_overhead, a.least_size) == (None, None)


def test_copies_of_a_given_size_take_their_law_at_that_size():
    given_size = at_4k(curve="h100-dma", copy_size="64KiB")
    (batch,) = given_size.copies
    assert (batch.count, batch.size) == (Q(8192), Q(65536))
    curve = registry.find_curve("h100-dma")
    assert given_size.swap == sum(8192 * copy_time(law, Q(65536)) for law in curve.laws())
    assert at_4k(curve="h100-dma", copy_size="32KiB").swap == at_4k(curve="h100-dma").swap
    assert at_4k(curve="h100-dma", copy_size="512MiB").warnings


def test_a_curve_of_a_file_is_read(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("size [KiB], time [us]\n16, 4\n64, 5\n")
    asked = ask(curve=str(file))
    assert copy_time(asked.setting.transfer.back, Q(16384)) == Q(4, 10**6)


def test_a_hit_leaves_the_hybrid_out():
    assert at_4k(hit="0.5").hybrid is None
    assert at_4k().hybrid is not None


def test_the_certificate_holds_at_the_answer():
    for options in ({}, {"copy_overhead": "5us"}, {"curve": "h100-dma"}, {"hit": "0.5"}, {"write_through": True}):
        a = at_4k(**options)
        device = a.question.setting.device
        assert a.certificate.winner is a.choice
        assert holds_at(a.certificate, a.achieved, gemm_rate(device), device.memory_bandwidth, a.length)


MODELS = [m.id for m in registry.models()]
ACCELERATORS = [a.id for a in registry.accelerators() if a.link_bandwidth]


@given(
    st.sampled_from(MODELS),
    st.sampled_from(ACCELERATORS),
    st.sampled_from(
        ({}, {"copy_overhead": "5us"}, {"curve": "h100-dma"}, {"copy_overhead": "3us", "copy_size": "block"})
    ),
    st.sampled_from(({}, {"hit": "0.3"}, {"hit": "1", "hit_bytes": "save"}, {"write_through": True}, {"duplex": True})),
    st.integers(1, 2048),
    st.booleans(),
)
def test_floats_agree_with_fractions_to_12_digits_over_the_registry(model, accelerator, path, how, length, riding):
    exact = ask(model, accelerator=accelerator, piggy_back=riding, **path, **how).setting
    fast = mapped(exact, float)
    rates = decide.break_even_bandwidth, decide.achieved_bandwidth, decide.speed_up
    for f in (decide.swap_cost, decide.recompute_cost, *rates):
        assert f(fast, float(length)) == pytest.approx(float(f(exact, Q(length))), rel=1e-12, abs=0)


def test_a_path_of_an_accelerator_by_itself():
    path = copy_path(None, None, None, None, registry.find_accelerator("gh200-96gb"))
    assert (path.out, path.back) == (Affine(Q(0), Q(297 * GB)), Affine(Q(0), Q(377 * GB)))
