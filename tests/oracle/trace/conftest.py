"""One valid trace with every event and act in it, as spec events and as lines."""

from __future__ import annotations

import io

import pytest

from preempt_oracle.trace.writer import create
from preempt_spec import events as e

HEADER = e.Header(
    "demo",
    "1.0",
    "vllm-fcfs",
    e.Limits(4, 64, 128, caching=True, frames=2, drafts=1),
    groups=(e.Group(), e.Group("near", "sliding", 32, 48)),
    pools=(e.Pool("device", 0, 40, 1), e.Pool("device", 1, 8), e.Pool("host", 0, 20)),
    observes=frozenset({"blocks", "free", "demote"}),
    assumes=("one: frame in flight",),
)
ACTS: tuple[e.Act, ...] = (
    e.Plan("c", 0, 0, 16, ((5,), ())),
    e.Demote("c", 1, "growth", ("a",), need=2, supply=1),
    e.Unplan("c", 1, 16),
    e.Release("c", 1, ((5, 6), (3,)), until=3, computed=0, drafts=0),
    e.Requeue("c", 1, index=0, known=20),
    e.Skip("d", "cadence", 1),
    e.Publish("a", (1, 2), 2),
    e.Withdraw((7,), 2, 1),
    e.Pin((1,), 2),
    e.Unpin((1,), 2),
    e.Unfence((6,), 2),
    e.Shed("a", (3,), 2, 1),
    e.Swap("d", "out", ((1, 19, 0), (2, 18, 0)), 2),
    e.Load("e", 16, ((8,), ()), 2, hit=0),
    e.Evict((19,), 2),
    e.Exchange("a", (3,), (2,), 2, 1),
)
EVENTS: tuple[e.Event, ...] = (
    e.Arrive("a", (1, 2, -3), 8, 1, -5, "s:alt"),
    e.Arrive("b:1", tuple(range(40)), 8),
    e.Reject("e", 'too "long"'),
    e.Step(
        0,
        ("a", "b:1"),
        (3, 40),
        (0, 0),
        (e.Delta("a", 0, (1,)), e.Delta("b:1", 1, (2, 3))),
        (e.Sent("a", 0, (1,), True),),
        (e.Resumed("b:1", 40),),
        (e.Hit("b:1", 16),),
        (e.Hit("a", 2),),
        ACTS,
        observed=e.Observed(
            (37, 6),
            ((4, 5), (7,)),
            ("a", "b:1"),
            ("d",),
            (e.Held("c", 2, 0),),
            (e.Refs(0, 1, 2),),
            ("f",),
            ("e",),
            (18, 0),
            1,
            (e.Cached("b:1", 16, 8),),
        ),
    ),
    e.Deliver(
        0, ("a", "b:1"), ((7,), (8, 9)), (0, 1), ("delivered", "dropped"), ((7,), ()), (1, 0), (e.Unfence((6,)),)
    ),
    e.CopyStart(1, "out", ((1, 19, 0), (2, 18, 0)), before=1),
    e.CopyDone(1, False),
    e.Step(1, reason="nothing ready"),
    e.Control("reset", (e.Demote("a", cause="reset"),)),
    e.Finish("b:1", "stop", ((2,), (2, 3)), 1),
    e.Abort("a", "gone", ((), ()), e.Observed(free=(38, 8)), 1),
    e.EngineError("engine", "IndexError", "pop from an empty list\n", "core.py:12 in f"),
)


@pytest.fixture(scope="session")
def spec_trace() -> tuple[e.Header, tuple[e.Event, ...]]:
    return HEADER, EVENTS


@pytest.fixture(scope="session")
def lines() -> list[bytes]:
    """The trace as lines without newlines; 0 the header, 4 the full step, 5 the full deliver, -1 the footer."""
    stream = io.BytesIO()
    with create(stream, HEADER) as trace:
        for event in EVENTS:
            trace.write(event)
    return stream.getvalue().splitlines()
