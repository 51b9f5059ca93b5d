"""The regime map: what is drawn is what the cost functions say."""

from __future__ import annotations

import math
import time
import xml.etree.ElementTree as ET
from fractions import Fraction as Q

import pytest

from preempt_oracle.cost.copying import PIECES
from preempt_oracle.cost.question import Given, Question, question
from preempt_oracle.cost.regime import Regime, over, regime, spaced
from preempt_oracle.report.cost_map import draw
from preempt_oracle.report.cost_regime import summary
from preempt_spec.cost.decide import Choice, choose, smooth
from preempt_spec.cost.lengths import recompute_lengths

CASES: list[tuple[str, dict[str, object]]] = [
    ("llama-3.1-8b", {"curve": "h100-dma"}),
    ("llama-3.1-70b", {"tp": "4", "copy_overhead": "5us"}),
    ("deepseek-v3", {"write_through": True}),
    ("gpt-oss-120b", {"piggy_back": True, "duplex": True}),
    ("qwen3.5-27b", {"hit": "0.5"}),
    ("nemotron-h-56b", {"hit": "0.9", "hit_bytes": "save", "copy_overhead": "3us", "copy_size": "request"}),
    ("llama-2-7b", {"kv_dtype": "fp4", "bandwidth": "300GB/s"}),
]


def asked(model: str, options: dict[str, object]) -> Question:
    return question(model, Given(accelerator="h100-sxm", **options))  # type: ignore[arg-type]


def mapped(model: str, options: dict[str, object], points: int = 24) -> tuple[Question, Regime]:
    q = asked(model, options)
    return q, regime(q.setting, q.longest, points)


@pytest.mark.parametrize(("model", "options"), CASES)
def test_swap_wins_exactly_above_the_break_even_line(model, options):
    _, r = mapped(model, options)
    for row, length, edge in zip(r.speed_up(), r.lengths, r.break_even, strict=True):
        for factor, bandwidth in zip(row, r.bandwidths, strict=True):
            assert factor == pytest.approx(bandwidth / edge, rel=1e-9)
            choice = choose(over(r.setting, bandwidth), length)
            assert choice is (Choice.SWAP if factor > 1 else Choice.RECOMPUTE)


@pytest.mark.parametrize(("model", "options"), CASES)
def test_the_lengths_at_which_recompute_wins_are_those_at_which_the_copies_are_below_the_line(model, options):
    q, r = mapped(model, options, points=60)
    spans = recompute_lengths(q.setting, q.longest)
    for length, edge, own in zip(r.lengths, r.break_even, r.reached, strict=True):
        whole = round(length)
        if abs(own / edge - 1) > 0.05:  # not next to the line, where a part of a token decides
            assert any(s.first <= whole <= s.last for s in spans) is (own < edge), length


def test_the_band_of_the_seed_is_there():
    _, r = mapped("llama-3.1-8b", {"bandwidth": "50GB/s"})
    assert r.piece == 32 * 1024
    assert r.band == pytest.approx((3.0753e9, 5.7941e9), rel=1e-4)
    assert r.link == pytest.approx(50e9)
    text = draw(*mapped("llama-3.1-8b", {"bandwidth": "50GB/s"}))
    assert "copies of 32 KiB at 5 to 10 µs each: 5.8 to 3.1 GB/s" in text


@pytest.mark.long
@pytest.mark.parametrize(("model", "options"), CASES)
def test_the_picture_is_well_formed_says_its_units_and_comes_out_the_same_twice(model, options):
    q, r = mapped(model, options)
    text = draw(q, r)
    assert text == draw(*mapped(model, options))
    root = ET.fromstring(text)
    words = [e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}text")]
    for wanted in ("swap wins", "recompute wins", "effective bandwidth per direction, GB/s"):
        assert wanted in words
    assert any(w.startswith("length of the request, tokens") for w in words)
    assert any(w.startswith("break-even (at most ") for w in words)
    assert "nan" not in text
    assert "break-even is at most" in summary(r)


def test_200_by_200_within_its_time():
    q = asked("gpt-oss-120b", {"curve": "h100-dma"})
    began = time.process_time()
    r = regime(q.setting, q.longest)
    rows = r.speed_up()
    draw(q, r)
    assert (len(rows), {len(row) for row in rows}) == (200, {200})
    assert time.process_time() - began < 2


def test_spaced_values_have_equal_ratios():
    values = spaced(1, 1024, 11)
    assert values == pytest.approx([2.0**k for k in range(11)])
    assert (values[0], values[-1]) == (1, 1024)


def test_the_map_is_smooth():
    q, r = mapped("llama-3.1-8b", {})
    assert r.setting.transfer.whole_blocks is False
    assert smooth(q.setting).transfer.block == Q(16)
    assert all(math.isfinite(x) and x > 0 for x in (*r.break_even, *r.reached))
    assert set(PIECES) == {"auto", "block", "request"}
