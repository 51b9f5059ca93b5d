"""An adapter that shows no faults proves nothing: each fault put into the scheduler must be seen, by the right rule.

The rules themselves are tests of their own: `pytest` runs them too (see pytest.ini).
"""

from __future__ import annotations

import pytest
from preempt_oracle.suite import broken
from scheduler import Request, Scheduler


def oldest(self: Scheduler) -> Request:
    """The wrong victim."""
    return self.running[0]


def to_the_end(self: Scheduler, victim: Request, requester: Request, need: int) -> None:
    """The wrong end of the queue."""
    preempt(self, victim, requester, need)
    self.waiting.append(self.waiting.pop(0))


def not_reset(self: Scheduler, request: Request) -> None:
    """The blocks are gone, and what was in them still counts as computed."""
    computed = request.computed
    release(self, request)
    request.computed = computed


def leaked(self: Scheduler, request: Request) -> None:
    """A block is nobody's."""
    release(self, request)
    self.free.pop()


preempt, release = Scheduler.preempt, Scheduler.release


@pytest.mark.parametrize(
    ("method", "fault", "rule"),
    [
        ("victim", oldest, "victim/choice"),
        ("preempt", to_the_end, "queue/front"),
        ("release", not_reset, "victim/reset"),
        ("release", leaked, "pool/conserve"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_fault_is_seen(monkeypatch: pytest.MonkeyPatch, method: str, fault: object, rule: str) -> None:
    """By its rule, and by others perhaps."""
    monkeypatch.setattr(Scheduler, method, fault)
    assert rule in broken("adapter:Adapter", "vllm-fcfs", workloads=40)
