"""An adapter that shows no faults proves nothing: each fault put into the scheduler must be seen, by the right rule.

The rules themselves are tests of their own: `pytest` runs them too (see pytest.ini).
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from preempt_oracle.suite import broken

SOURCE = Path(__file__).with_name("scheduler.js").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        ("victim = running.pop()", "victim = running.shift()", "victim/choice"),
        ("waiting.unshift(victim)", "waiting.push(victim)", "queue/front"),
        ("r.table = []; r.computed = 0;", "r.table = [];", "victim/reset"),
        ("free.push(...blocks);", "free.push(...blocks.slice(1));", "pool/conserve"),
    ],
)
def test_a_fault_is_seen(tmp_path: Path, right: str, wrong: str, rule: str) -> None:
    """By its rule, and by others perhaps."""
    assert SOURCE.count(right) == 1
    faulty = tmp_path / "scheduler.js"
    faulty.write_text(SOURCE.replace(right, wrong), encoding="utf-8")
    assert rule in broken(stdio=shlex.join(["node", str(faulty)]), policy="vllm-fcfs", workloads=40)
