"""Untrusted text is shown, never obeyed."""

from __future__ import annotations

import io

from preempt_oracle.report.events import line
from preempt_oracle.report.words import console, count, safe
from preempt_oracle.trace import wire

HOSTILE = "[bold red]x[/] :smile: \x1b[2J\x1b]0;title\x07 \u202eabc\u200b\r\n next"


def test_controls_and_hidden_characters_become_visible_on_one_line():
    text = safe(HOSTILE)
    assert text.isprintable()
    assert "\\x1b[2J" in text
    assert "\\u202e" in text
    assert "\\u200b" in text
    assert "\\r\\n" in text


def test_long_text_is_cut():
    assert safe("x" * 5000, 100) == "x" * 100 + "…"


def test_a_console_takes_markup_and_emoji_codes_as_text():
    out = io.StringIO()
    console(out).print(safe(HOSTILE))
    assert "[bold red]x[/] :smile:" in out.getvalue().replace("\n", " ")
    assert "\x1b" not in out.getvalue()


def test_counts_read_well():
    assert [count(n, "step") for n in (0, 1, 2, 1234)] == ["0 steps", "1 step", "2 steps", "1,234 steps"]


def test_events_are_one_short_line_each():
    step = wire.Step(
        3,
        tuple(f"r{i}" for i in range(100)),
        tuple(range(1, 101)),
        blocks=(wire.Delta("r1", 0, (4, 5)),),
        acts=(wire.Demote("b", 0, "growth", ("a",)), wire.Release("b", 0, ((1, 2),)), wire.Requeue("b", 0, index=0)),
        observed=wire.Observed(free=(3,), running=("a",), waiting=()),
    )
    text = line(step)
    assert text.startswith("step 3: r0 1, r1 2, ")
    assert "… 100 in all" in text
    assert "r1 +[4 5]; preempt b for a; release b [1 2]; requeue b at 0; running [a], waiting [], free 3" in text
    assert line(wire.EngineError("engine", "E", HOSTILE)).isprintable()
    assert line(wire.Step(4, reason="idle")) == "step 4: idle"
    assert line(wire.Deliver(3, ("a", "b"), ((7,), ()))) == "deliver 3: a 7, b -"
