"""The terminal report."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from attrs import evolve

from preempt_oracle.report.judged import Judged, overall, together
from preempt_oracle.report.tables import show_all
from preempt_oracle.report.words import console
from preempt_oracle.verdict import Standing, Tally, Verdict


def text(inputs: Sequence[Judged]) -> str:
    out = io.StringIO()
    show_all(console(out), inputs)
    assert "\x1b" not in out.getvalue()
    return out.getvalue()


def test_a_failure_names_rule_sentence_step_state_events_and_replay(violated):
    shown = text([violated])
    sizes = "10 steps, 20 grants, 2 preemptions, 1 resume"
    assert shown.startswith(f"VIOLATES  eng==1  (eng\\x07ine 1.0, vllm-priority; {sizes})")
    for part in (
        "FAILED queue/front (POLICY): A victim re-enters the queue where the profile says.\n",
        "  what      [red]b[/red] \\x1b[31m\\x00\\ufffe was requeued at 1\n",
        "  where     f.toml, event 9, step 4, at the requeue of b\n",
        "  seen      2 runs broke this rule; this is the first\n",
        "  state                    engine says  the shadow state has\n",
        "  !=  b: index in waiting  1            0\n",
        "      running              -            [a]\n",
        "      request b: waiting; 3 known; 0 computed; table []\n",
        "  last steps, > where it broke\n",
        "  scenario  note\n",
        "  replay    preempt-oracle replay f.toml\n",
        "  outside   1 of 3 workloads out of contract, such as: [red]b[/red]",
    ):
        assert part in shown
    assert "Deviations: judged as built" in shown


def test_what_preemption_cost_is_told(violated):
    assert "tax" not in text([violated])
    tally = evolve(violated.tally, recomputed=30, delivered=120)
    shown = text([evolve(violated, tally=tally)])
    assert "  tax       30 tokens computed again for 120 delivered (0.25 each)\n" in shown
    tally = evolve(violated.tally, recomputed=1)
    assert "  tax       1 token computed again for 0 delivered\n" in text([evolve(violated, tally=tally)])


def test_without_a_verdict_there_is_a_reason(unreadable, hung):
    shown = text([unreadable, hung])
    assert "UNREADABLE  x.jsonl:3: tokens: cut off\n" in shown
    assert "HARNESS BROKEN  cmd\n  why       cmd did not answer step within 60 s\n    | last words\n" in shown
    assert "standing" not in shown  # nothing was judged: no table


def judged(verdict: Verdict) -> Judged:
    return Judged("x", None, "" if verdict is Verdict.INCONCLUSIVE else "e", verdict)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [((0, 0), 0), ((0, 4), 4), ((4, 1, 0), 1), ((1, 2, 4), 2), ((2, 3, 1), 3), ((), 4)],
)
def test_precedence_3_2_1_4_0(codes, expected):
    assert overall([judged(list(Verdict)[c]) for c in codes]).exit_code == expected


def test_one_table_for_all_inputs(violated):
    other = Tally("e", "1", "vllm-fcfs", frozenset({"place", "queues"}))
    other.exercised.update({"queue/front": 3, "live/progress": 1})
    rules = together([violated, Judged("y", other)])
    assert rules["queue/front"] == (Standing.VIOLATED, 5)
    assert rules["live/progress"] == (Standing.HELD, 1)
    assert rules["queue/one-place"] == (Standing.NOT_EXERCISED, 0)
    assert rules["pool/refcount"] == (Standing.NOT_OBSERVABLE, 0)
