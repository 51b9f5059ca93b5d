"""`check` and `apply`: what makes no sense is malformed, what is wrong is named, and both leave the state alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from preempt_spec import events as ev
from preempt_spec.micro import Malformed
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import OBSERVES, Reference
from preempt_spec.rules import RULES
from preempt_spec.state import State, initial
from preempt_spec.system import apply, check, clauses, observable, run
from preempt_spec.view import Due

At = Callable[..., State]

HEADER = ev.Header(
    "test",
    "",
    "vllm-fcfs",
    ev.Limits(4, 16, 8),
    (ev.Group("full", "full", 2),),
    (ev.Pool(ev.DEVICE, 0, 4, 0),),
)
POLICY = PROFILES["vllm-fcfs"].contract


@pytest.fixture
def running() -> State:
    """Request a runs, with two tokens known beyond what is computed; w waits; frame 0 was delivered."""
    s = initial(HEADER, POLICY)
    for event in (
        ev.Arrive("a", (1, 2, 3), 3),
        ev.Step(0, ("a",), (3,), (0,), (ev.Delta("a", 0, (0, 1)),)),
        ev.Deliver(0, ("a",), ((4,),)),
        ev.Arrive("w", (1,), 1),
    ):
        s = apply(s, event)
    return s


MALFORMED = [
    (ev.Arrive("a", (1,), 1), "request"),
    (ev.Arrive("b", (), 1), "prompt"),
    (ev.Arrive("b", (1,), 0), "max_tokens"),
    (ev.Abort("x"), "request"),
    (ev.Finish("x"), "request"),
    (ev.Reject("x"), "request"),
    (ev.Step(0), "frame"),
    (ev.Step(1, ("x",), (1,)), "requests"),
    (ev.Step(1, ("a",), (1,), blocks=(ev.Delta("a", 0, (9,)),)), "blocks"),
    (ev.Step(1, blocks=(ev.Delta("x", 0, (2,)),)), "blocks"),
    (ev.Step(1, sent=(ev.Sent("x", 0, ()),)), "sent"),
    (ev.Step(1, sent=(ev.Sent("a", 0, (9,)),)), "sent"),
    (ev.Step(1, hits=(ev.Hit("x", 2),)), "hits or drafts"),
    (ev.Step(1, resumed=(ev.Resumed("x"),)), "resumed"),
    (ev.Step(1, acts=(ev.Demote("x"),)), "request"),
    (ev.Step(1, acts=(ev.Pin((9,)),)), "acts.blocks"),
    (ev.Step(1, acts=(ev.Pin((1,), group=1),)), "acts.blocks"),
    (ev.Deliver(7, ("a",), ((1,),)), "frame"),
    (ev.CopyDone(0), "copy"),
    (ev.CopyStart(0, "out", ((1, 0, 0),)), "blocks"),  # there is no host pool
    (ev.CopyStart(0, "out", (), before=0), "before"),
    (ev.Step(1, acts=(ev.Swap("a", "in", ((0, 1, 0),)),)), "acts.blocks"),
    (ev.Step(1, acts=(ev.Evict((0,)),)), "acts.blocks"),
    (ev.Step(1, acts=(ev.Requeue("a", queue="somewhere"),)), "acts.queue"),
    (ev.Step(1, acts=(ev.Load("x", 0, ((),)),)), "request"),
]


@pytest.mark.parametrize(("event", "field"), MALFORMED, ids=lambda x: x if isinstance(x, str) else "")
def test_what_makes_no_sense_is_malformed(running: State, event: ev.Event, field: str):
    for judge in (lambda: check(running, event, frozenset()), lambda: apply(running, event)):
        with pytest.raises(Malformed) as e:
            judge()
        assert e.value.field == field
        assert e.value.reason


def test_one_frame_in_flight(running: State):
    s = apply(running, ev.Step(1, ("a",), (1,)))
    with pytest.raises(Malformed, match=r"2 is one too many: 1 is not delivered, and limits.frames is 1"):
        apply(s, ev.Step(2))
    with pytest.raises(Malformed, match="x is not known"):
        apply(s, ev.Deliver(1, ("x",), ((1,),)))


def test_an_empty_step_owes_no_delivery(running: State):
    s = apply(apply(running, ev.Step(1)), ev.Step(2))
    assert s.last_frame == 2
    assert not s.frames


def test_check_leaves_the_state_alone_and_apply_goes_on(running: State):
    event = ev.Step(1, ("a",), (1,), (3,))
    assert check(running, event, frozenset({"counts"})) == ()
    assert running.last_frame == 0
    after = apply(running, event)
    assert after.request("a").computed == 4
    assert after.frames == {1: {"a": Due(tokens=1, position=4, outputs=1)}}


def test_a_violation_stops_at_its_micro_event(running: State):
    event = ev.Step(1, ("a",), (5,), (3,), acts=(ev.Skip("w", "loading", 1),))
    out = run(running, event, clauses(frozenset({"counts"})))
    assert {v.rule for v in out.violations} == {"pool/capacity", "output/stream"}
    assert out.exercised["pool/capacity"] == 1
    assert out.state.plan.skipped == {}  # what came behind it was not looked at
    assert "live/survives" not in out.exercised


def test_a_grant_to_the_aborted_is_for_one_rule_alone(running: State):
    s = apply(running, ev.Abort("a"))
    out = run(s, ev.Step(1, ("a",), (1,), (3,)), clauses(OBSERVES))
    assert [v.rule for v in out.violations] == ["edge/abort"]


def test_an_aborted_id_may_be_used_again(running: State):
    s = apply(apply(running, ev.Abort("a")), ev.Arrive("a", (7,), 1))
    assert s.request("a").tokens == (7,)
    assert s.request("a").incarnation == 0


def test_what_cannot_be_observed_is_not_judged(running: State):
    short = ev.Step(1, ("a",), (1,), (3,), observed=ev.Observed(free=(99,)))
    assert check(running, short, frozenset()) == ()
    assert [v.rule for v in check(running, short, frozenset({"free"}))] == ["pool/conserve"]
    assert "pool/refcount" not in observable(frozenset({"free"}))
    assert observable(OBSERVES) == RULES.keys()


def test_a_victim_that_never_comes_back_is_in_no_queue():
    """Seen with a known-bad scheduler: neither its queues nor the shadow's named the request."""
    s = initial(HEADER, POLICY)
    s = apply(s, ev.Arrive("a", (1, 2), 3))
    s = apply(s, ev.Step(0, ("a",), (2,), (0,), (ev.Delta("a", 0, (0,)),)))
    s = apply(s, ev.Deliver(0, ("a",), ((3,),)))
    lost = ev.Step(1, acts=(ev.Demote("a"), ev.Release("a")), observed=ev.Observed(running=(), waiting=()))
    assert [v.rule for v in check(s, lost, frozenset({"queues"}))] == ["queue/one-place"]


def test_a_requeue_that_nobody_told_of_is_malformed(running: State):
    """The engine has its victim in the queue; that the adapter did not say so is no fault of the engine."""
    acts = (ev.Demote("a", 0, "growth", ("a",)), ev.Release("a"))
    step = ev.Step(1, acts=acts, observed=ev.Observed(running=(), waiting=("a", "w")))
    with pytest.raises(Malformed) as raised:
        run(running, step, clauses(frozenset({"queues", "counts"})))
    assert raised.value.field == "acts"


def test_a_published_block_of_somebody_else_holds_no_page(running: State):
    """Without the observations that name the fault, the transition must still be total."""
    s = apply(running, ev.Step(1, acts=(ev.Publish("w", (0,)),)))
    assert not s.holds_page(0, 0)


def test_a_step_of_the_reference_is_its_own_transition():
    ref = Reference(HEADER, POLICY)
    s = initial(HEADER, POLICY)
    for event in (*ref.arrive(ev.Arrive("a", (1, 2, 3), 2)), ref.step()):
        assert check(s, event, OBSERVES) == ()
        s = apply(s, event)
    assert s == ref.state
