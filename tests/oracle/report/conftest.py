"""Judged inputs to render: one that broke a rule with hostile words, one that held, one that could not be read."""

from __future__ import annotations

from collections import Counter

import pytest

from preempt_oracle.divergence import Compared, Divergence
from preempt_oracle.report.judged import Judged
from preempt_oracle.trace import wire
from preempt_oracle.verdict import Failure, Tally, Verdict
from preempt_spec.policies.profiles.vllm import VLLM_PRIORITY
from preempt_spec.rules import Violation

HOSTILE = "[red]b[/red] \x1b[31m\x00\ufffe"


@pytest.fixture(autouse=True)
def no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The width is ours, whatever the tests run in."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def violated() -> Judged:
    tally = Tally("eng\x07ine", "1.0", "vllm-priority", frozenset({"place"}), 3, 10, 20, 2, 1)
    tally.exercised = Counter({"queue/front": 2, "output/stream": 9})
    tally.times = Counter({"queue/front": 2})
    tally.deviations = VLLM_PRIORITY.deviations
    books = (
        Compared("b: index in waiting", "1", "0", True),
        Compared("running", None, "[a]"),
        Compared("request b", None, "waiting; 3 known; 0 computed; table []"),
    )
    events = (wire.Step(4, ("a",), (1,)), wire.EngineError("engine", "E", HOSTILE))
    violation = Violation("queue/front", f"{HOSTILE} was requeued at 1")
    divergence = Divergence("the requeue of b", books)
    replay = "preempt-oracle replay f.toml"
    tally.failures.append(Failure(violation, "f.toml, event 9", 4, events, replay, divergence, "note"))
    return Judged("eng==1", tally, seed=7, workloads=3, outside={HOSTILE: 1})


@pytest.fixture
def unreadable() -> Judged:
    return Judged("x\x1b.jsonl", None, "x.jsonl:3: tokens: cut off", Verdict.UNREADABLE)


@pytest.fixture
def hung() -> Judged:
    return Judged("cmd", None, "cmd did not answer step within 60 s\n  | last words", Verdict.BROKEN)
