"""How often the monitor's short cuts are taken, to a single event: too strict a condition costs speed unseen."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from preempt_oracle.equality import quiet
from preempt_oracle.monitor import Monitor, counts
from preempt_oracle.monitor.cohort import Cohort
from preempt_oracle.trace.convert import to_wire

#: Of the first workloads of each profile: times that a short cut was asked for, and taken.
TAKEN: dict[str, dict[str, tuple[int, int]]] = {
    "vllm-fcfs": {
        "_decode": (231, 226),
        "_mixed": (40, 40),
        "deliver": (306, 304),
        "finish": (56, 56),
        "step": (308, 266),
    },
    "vllm-priority": {
        "_decode": (193, 188),
        "_mixed": (39, 39),
        "deliver": (264, 264),
        "finish": (56, 56),
        "step": (265, 227),
    },
    "nano-vllm": {
        "_decode": (252, 251),
        "_mixed": (83, 38),
        "deliver": (376, 376),
        "finish": (56, 56),
        "step": (376, 289),
    },
    "vidur-vllm": {
        "_decode": (235, 232),
        "_mixed": (41, 33),
        "deliver": (316, 316),
        "finish": (52, 52),
        "step": (317, 265),
    },
    "vllm-v0-swap": {
        "_decode": (235, 232),
        "_mixed": (41, 33),
        "deliver": (316, 316),
        "finish": (52, 52),
        "step": (317, 265),
    },
}


@pytest.mark.as_written
@pytest.mark.parametrize("policy", TAKEN)
def test_short_cuts_are_taken_as_often_as_they_were(policy: str, monkeypatch: pytest.MonkeyPatch):
    assert taken(policy, monkeypatch) == TAKEN[policy]


def taken(policy: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    asked: Counter[str] = Counter()
    done: Counter[str] = Counter()

    def counting(name: str) -> None:
        method = getattr(Cohort, name)

        def wrapped(self: Cohort, *args: Any, **named: Any) -> Any:
            result = method(self, *args, **named)
            asked[name] += 1
            done[name] += result is not None
            return result

        monkeypatch.setattr(Cohort, name, wrapped)

    for name in ("step", "deliver", "finish", "_decode", "_mixed"):
        counting(name)
    for s in quiet(policy, range(12)):
        monitor = Monitor(s.header, s.policy)
        for event in s.events:
            monitor.feed(to_wire(event))
        assert not monitor.violations
    return {name: (asked[name], done[name]) for name in sorted(asked)}


@pytest.mark.as_written
def test_a_clause_that_the_short_cuts_do_not_know_is_an_error(monkeypatch: pytest.MonkeyPatch):
    looked_at_once = counts._same_clauses.__wrapped__
    looked_at_once()
    for known in ("_SILENT", "_ENDING"):
        with monkeypatch.context() as patch:
            patch.setattr(counts, known, (*getattr(counts, known), "no_such_clause"))
            looked_at_once()  # names that are in no clause are for nobody to count
            patch.setattr(counts, known, getattr(counts, known)[1:-1])
            with pytest.raises(KeyError, match="clauses and short cuts differ"):
                looked_at_once()
