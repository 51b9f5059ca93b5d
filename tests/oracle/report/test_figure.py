"""Figures: the same bytes whatever a user has set, words that keep clear of lines and of each other."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import matplotlib
import pytest
from matplotlib.axes import Axes
from matplotlib.text import Annotation

from preempt_oracle.cost.question import Given, question
from preempt_oracle.cost.regime import regime
from preempt_oracle.report import cost_map, figure


def plot(title: str = "t", top: float = 4.0) -> str:
    with figure.settings():
        axes = figure.begin(title, "s")
        figure.logarithmic(axes, "x", "x", (1, 100), [(1, "1"), (100, "100")], [10])
        figure.logarithmic(axes, "y", "y", (1, 10), [(1, "1")])
        figure.line(axes, (1, 100), (2, top), figure.INK, 1)
        figure.words(axes, "a line", [(10, 5, 0, 3)])
        return figure.svg(axes, title, "s")


def test_the_same_input_gives_the_same_bytes_whatever_the_user_has_set():
    before = plot()
    mine: dict[Any, Any] = {
        "svg.fonttype": "path",
        "svg.hashsalt": None,
        "font.size": 40,
        "text.parse_math": True,
        "axes.grid": True,
    }
    with matplotlib.rc_context(mine):
        assert plot() == before
        assert {key: matplotlib.rcParams[key] for key in mine} == mine, "left as it was"
    assert "<dc:date>" not in before
    assert matplotlib.__version__ not in before


def test_data_are_known_by_what_is_shown_and_not_by_its_look():
    assert figure.data(plot()) is not None
    assert figure.data(plot()) == figure.data(plot(title="another"))
    assert figure.data(plot()) == figure.data(plot(top=4.00000001))
    assert figure.data(plot()) != figure.data(plot(top=4.001))
    assert figure.data("<svg/>") is None


def test_words_stand_at_the_first_place_that_is_free():
    with figure.settings():
        axes = figure.begin("t", "s")
        figure.logarithmic(axes, "x", "x", (1, 100), [(1, "1")])
        figure.logarithmic(axes, "y", "y", (1, 100), [(1, "1")])
        figure.line(axes, (1, 100), (10, 10), figure.INK, 1)
        figure.line(axes, (1, 100), (30, 30), figure.INK, 2)
        on_line, on_thick, outside, free = (10, 10, 0, 0), (10, 30, 0, 0), (99, 2, 6, 0), (10, 3, 0, 0)
        figure.words(axes, "words", [on_line, free])
        figure.words(axes, "words", [free, outside, on_thick, on_line])  # nothing is left: the thin line
    assert [x.xy for x in axes.texts if isinstance(x, Annotation)] == [(10, 3), (10, 10)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "given"),
    [
        ("llama-3.1-8b", Given(accelerator="h100-sxm", curve="h100-dma")),
        ("llama-3.1-8b", Given(accelerator="h100-sxm", bandwidth="50GB/s", copy_overhead="5us")),
        ("llama-3.1-8b", Given(accelerator="h100-sxm", copy_overhead="7us")),
        ("gpt-oss-120b", Given(accelerator="h100-sxm", duplex=True)),
        ("gpt-oss-120b", Given(accelerator="h100-sxm")),
        ("deepseek-v3", Given(accelerator="h100-sxm", tp="8")),
        ("qwen3.5-27b", Given(accelerator="h100-sxm")),
    ],
)
def test_no_name_in_a_map_covers_a_line_or_another_name(model, given, monkeypatch):
    kept: list[Axes] = []
    monkeypatch.setattr(cost_map, "svg", lambda axes, *_: kept.append(axes))
    asked = question(model, given)
    cost_map.draw(asked, regime(asked.setting, asked.longest))
    (axes,) = kept
    room = {(x.get_text(), x.get_color()): x.get_window_extent() for x in axes.texts}
    assert len(room) == len(axes.texts) > 8
    assert [(a, b) for a, b in combinations(room, 2) if room[a].overlaps(room[b])] == []
    assert [a for a, box in room.items() if not all(axes.bbox.contains(*corner) for corner in box.corners())] == []
    solid = [x for x in axes.lines if x.get_linewidth() > 0.6]  # the lines of factors are dotted and everywhere
    assert len(solid) >= 2
    paths = [x.get_transform().transform_path(x.get_path()) for x in solid]
    assert [a for a, box in room.items() for p in paths if p.intersects_bbox(box, filled=False)] == []
