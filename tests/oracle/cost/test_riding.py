"""Spare compute: the counts of the core, with what a user asks; `cost spare` prints and writes them."""

from __future__ import annotations

import json
from fractions import Fraction as Q

import pytest
from click.testing import CliRunner, Result

from preempt_oracle.cli.main import cli
from preempt_oracle.cost.question import Given, question
from preempt_oracle.cost.riding import Spare, spare
from preempt_spec.cost.spare import piggyback_break_even, spare_tokens_with_attention, token_time
from preempt_spec.cost.swap import swap_time


def asked(model: str = "llama-3.1-8b", batch: int = 64, context: int = 2048, **options: object) -> Spare:
    q = question(model, Given(**{"accelerator": "h100-sxm", **options}))  # type: ignore[arg-type]
    return spare(q, Q(batch), Q(context))


def run(*words: object) -> Result:
    base = ["cost", "spare", "--model", "llama-3.1-8b", "--accelerator", "h100-sxm"]
    return CliRunner().invoke(cli, [*base, *map(str, words)], prog_name="preempt-oracle")


def test_the_numbers_of_the_seed():
    s = asked()
    assert float(s.step) == pytest.approx(9.92e-3, rel=1e-3)
    assert [round(x) for x in s.at_peak] == [547, 525, 231]
    assert round(s.counts[0]) == 242


def test_each_count_is_lower_than_the_one_before_and_at_peak_higher():
    s = asked()
    assert s.counts[0] > s.counts[1] > s.counts[2] > 0
    assert all(a < b for a, b in zip(s.counts, s.at_peak, strict=True))


def test_with_the_count_that_charges_attention_the_step_is_full():
    s = asked()
    shape, device = s.question.setting.shape, s.question.setting.device
    work = 64 * token_time(shape, device, Q(2048)) + s.counts[1] * token_time(shape, device, Q(1024))
    assert work == s.step
    assert s.counts[1] == spare_tokens_with_attention(shape, device, s.step, Q(64), Q(2048), Q(1024))


@pytest.mark.parametrize("how", [{}, {"write_through": True}, {"duplex": True}])
def test_over_its_break_even_link_a_swap_takes_as_long_as_the_wait(how):
    s = asked(**how)
    assert s.break_even is not None
    rate = f"{s.break_even.numerator}/{s.break_even.denominator}B/s"
    there = asked(bandwidth=rate, **how).question.setting
    assert swap_time(there.shape, there.transfer, Q(2048)) == s.wait


def test_windows_have_no_break_even_and_a_full_step_no_wait():
    assert asked("gpt-oss-20b").break_even is None
    full = asked(batch=2000, context=16)
    assert full.counts[1] < 0
    assert (full.wait, full.break_even) == (None, None)
    assert piggyback_break_even(full.question.setting.shape, Q(1), Q(1)) > 0


def test_the_command():
    shown = run("--batch", 64, "--context", 2048).stdout
    assert "takes 9.923 ms" in shown
    assert "242       547" in shown
    assert "A swap is sooner above 6.065 GB/s per direction, effective; these copies reach 50.9 GB/s: a swap" in shown
    assert "riding along is sooner" in run("--batch", 64, "--context", 2048, "--copy-overhead", "5us").stdout
    assert "no compute to spare" in run("--batch", 2000, "--context", 16).stdout
    document = json.loads(run("--batch", 64, "--context", 2048, "--json", "-").stdout)
    assert (document["command"], document["batch"], document["context_tokens"]) == ("spare", 64, 2048)
    assert Q(document["counts"][0]["tokens"]["exact"]) == asked().counts[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--batch", 0, "--context", 10), "--batch: '0' is zero"),
        (("--batch", 1.5, "--context", 10), "--batch: '1.5' is not whole"),
        (("--batch", 1, "--context", 200000), "--context: 200000 tokens are more than"),
    ],
)
def test_nonsense_is_refused(words, message):
    result = run(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"preempt-oracle: {message}")
