"""Streams around which the monitor once differed from the pure system, found by the search and written down by hand.

Most need an engine that shows little: the rule that would end the run at the first oddity cannot be observed.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from attrs import evolve

from preempt_oracle.monitor import Monitor
from preempt_oracle.trace.convert import to_wire
from preempt_spec import events as ev
from preempt_spec.micro import Malformed
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import OBSERVES
from preempt_spec.state import initial
from preempt_spec.system import clauses, run

POLICY = PROFILES["vllm-fcfs"].contract
HEADER = ev.Header(
    "test",
    "",
    "vllm-fcfs",
    ev.Limits(4, 16, 12),
    (ev.Group("full", "full", 2),),
    (ev.Pool(ev.DEVICE, 0, 16),),
    OBSERVES - {"sent"},
)


def step(frame: int, *grants: tuple[str, int, int, tuple[int, ...]], acts: tuple[ev.Act, ...] = ()) -> ev.Step:
    """Grants (request, start, tokens, new blocks)."""
    return ev.Step(
        frame,
        tuple(r for r, _, _, _ in grants),
        tuple(n for _, _, n, _ in grants),
        tuple(start for _, start, _, _ in grants),
        tuple(ev.Delta(r, 0, b) for r, _, _, b in grants if b),
        acts=acts,
    )


def token(frame: int, *requests: str) -> ev.Deliver:
    return ev.Deliver(frame, requests, ((7,),) * len(requests))


def two_decode(page: int, first: int = 0) -> tuple[ev.Event, ...]:
    """a and b run steadily, five tokens computed each, in blocks `first` … of a and, eight further, of b."""
    blocks = -(-3 // page)
    events: list[ev.Event] = [ev.Arrive("a", (1, 2, 3), 9), ev.Arrive("b", (4, 5, 6), 9, 0, 1)]
    mine = tuple(range(first, first + blocks))
    events += [step(0, ("a", 0, 3, mine), ("b", 0, 3, tuple(b + 8 for b in mine))), token(0, "a", "b")]
    for n in (3, 4):
        new = (first + n // page,) if n % page == 0 else ()
        events += [step(n - 2, ("a", n, 1, new), ("b", n, 1, tuple(b + 8 for b in new))), token(n - 2, "a", "b")]
    return tuple(events)


STREAMS = {
    "a prefill passes a slot over": (
        2,
        set(),
        (
            ev.Arrive("a", tuple(range(8)), 2),
            step(0, ("a", 0, 3, (0, 1))),
            ev.Deliver(0),
            step(1, ("a", 4, 2, (2,))),
        ),
    ),
    "a prefill has no slot for all of it": (
        1,
        {"counts"},
        (
            ev.Arrive("a", tuple(range(8)), 2),
            step(0, ("a", 0, 4, (0, 1, 2, 3))),
            ev.Deliver(0),
            step(1, ("a", 4, 4, (4, 5, 6))),
        ),
    ),
    "a running request is requeued and granted": (
        2,
        {"demote"},
        (*two_decode(2), step(3, ("a", 5, 1, ()), ("b", 5, 1, ()), acts=(ev.Requeue("b", 0, "waiting", 0),))),
    ),
    "a request runs and waits": (
        2,
        {"demote"},
        (
            *two_decode(2),
            step(3, ("a", 5, 1, ()), acts=(ev.Requeue("b", 1, "waiting", 0),)),
            token(3, "a"),
            step(4, ("a", 6, 1, (3,)), ("b", 5, 1, ())),
        ),
    ),
    "a request is requeued twice": (
        2,
        {"demote"},
        (
            *two_decode(2),
            step(
                3,
                ("a", 5, 1, ()),
                acts=(ev.Demote("b", 0), ev.Release("b"), ev.Requeue("b", 0), ev.Requeue("b", 0)),
            ),
            token(3, "a"),
            step(4, ("a", 6, 1, (3,)), ("b", 0, 6, (8, 9, 10))),
        ),
    ),
    "a request in limbo is granted": (
        2,
        {"demote", "queues"},
        (
            *two_decode(2),
            step(3, ("a", 5, 1, ()), acts=(ev.Demote("b", 0), ev.Release("b"))),
            token(3, "a"),
            step(4, ("a", 6, 1, (3,)), ("b", 0, 6, (8, 9, 10))),
        ),
    ),
    "a victim that was lost": (
        2,
        set(),
        (*two_decode(2), step(3, ("a", 5, 1, ()), acts=(ev.Demote("b", 0), ev.Release("b")))),
    ),
    "a block stands twice in a table": (
        1,
        {"counts"},
        (*two_decode(1), step(3, ("a", 5, 1, (4,)), ("b", 5, 1, (13,)))),
    ),
    "a block that is written is given to another": (
        4,
        {"counts"},
        (
            *two_decode(4),
            ev.Arrive("c", (9,), 3, 0, 2),
            step(3, ("a", 5, 1, ()), ("b", 5, 1, ()), ("c", 0, 1, (1,))),
        ),
    ),
    "a page is findable before its block is there": (
        2,
        set(),
        (
            *two_decode(2),
            step(3, ("a", 5, 1, ()), ("b", 5, 1, ())),
            token(3, "a", "b"),
            step(4, ("a", 6, 1, (3,)), ("b", 6, 1, (11,)), acts=(ev.Publish("a", (3,), 0),)),
        ),
    ),
    "a victim that keeps computed tokens is granted in limbo": (
        1,
        {"demote", "queues", "copies", "start", "reset", "release"},
        (
            *two_decode(1),
            step(3, ("a", 5, 1, (5,)), acts=(ev.Demote("b", 1), ev.Release("b", 1, kept=5))),
            token(3, "a"),
            step(4, ("a", 6, 1, (6,)), ("b", 5, 1, (8, 9, 10, 11, 12, 13))),
        ),
    ),
    "a hit on a page that is written in part": (
        2,
        {"publish"},
        (
            ev.Arrive("a", (1, 2, 3, 4), 3),
            step(0, ("a", 0, 3, (0, 1))),
            ev.Deliver(0),
            ev.Arrive("b", (1, 2, 3, 4, 5), 3, 0, 1),
            evolve(step(1, ("b", 4, 1, (0, 1, 2))), hits=(ev.Hit("b", 4),)),
        ),
    ),
    "a hit that names a block twice": (
        2,
        {"publish", "counts"},
        (
            ev.Arrive("a", (1, 2, 3, 4), 3),
            step(0, ("a", 0, 4, (0, 1))),
            token(0, "a"),
            ev.Arrive("b", (1, 2, 3, 4, 5), 3, 0, 1),
            evolve(step(1, ("a", 4, 1, (2,)), ("b", 4, 1, (0, 0, 3))), hits=(ev.Hit("b", 4),)),
        ),
    ),
    "somebody publishes what is not its own": (
        2,
        {"publish"},
        (*two_decode(2), step(3, ("a", 5, 1, ()), ("b", 5, 1, ()), acts=(ev.Publish("a", (8,), 2),))),
    ),
}


def told(event: ev.Event, full: bool = False) -> ev.Event:
    """A step whose worker is told of just the blocks that join tables."""
    if not isinstance(event, ev.Step):
        return event
    return evolve(event, sent=tuple(ev.Sent(d.request, d.group, d.blocks, full) for d in event.blocks))


def behind_what_was_told(*acts: ev.Act) -> tuple[ev.Event, ...]:
    """b's table grows as told, and then by two blocks of a grant that is made and taken back without a release."""
    first, *rest = two_decode(2)[2:]
    return (
        *two_decode(2)[:2],
        told(first, full=True),
        *map(told, rest),
        told(step(3, ("a", 5, 1, ()), ("b", 5, 1, ()))),
        token(3, "a", "b"),
        told(step(4, ("a", 6, 1, (3,)), ("b", 6, 1, (11,)), acts=acts)),
    )


@pytest.mark.parametrize("unplan", [True, False])
@pytest.mark.parametrize(("tokens", "blocks"), [(2, (4, 5)), (1, ())])
def test_a_table_that_grows_behind_what_was_told_of_it(unplan: bool, tokens: int, blocks: tuple[int, ...]):
    """Or does not, and the grant alone was made and is left over."""
    acts: tuple[ev.Act, ...] = (ev.Plan("b", 2, 7, tokens, (blocks,)),)
    equal(2, set(), behind_what_was_told(*acts, *([ev.Unplan("b", 2, tokens)] * unplan)), sent=True)


def test_a_pass_reads_a_state_that_is_not_its_own():
    """Its next block never held the state that it goes on from."""
    events = (ev.Arrive("a", tuple(range(8)), 2), step(0, ("a", 0, 3, (0,))), ev.Deliver(0), step(1, ("a", 3, 2, (5,))))
    equal(2, {"counts", "sent"}, events, kind="recurrent")


@pytest.mark.parametrize("block", [0, 4])
def test_a_table_grows_by_a_block_of_the_engines_own(block: int):
    first, *rest = two_decode(2, 1)[2:]
    grows = step(3, ("a", 5, 1, ()), ("b", 5, 1, ()))
    more = step(4, ("a", 6, 1, (block,)), ("b", 6, 1, (12,)))
    events = (*two_decode(2, 1)[:2], told(first, full=True), *map(told, (*rest, grows, token(3, "a", "b"), more)))
    equal(2, set(), events, sent=True, reserved=1)


@pytest.mark.parametrize("gone", ["b", "c"])
def test_somebody_is_cancelled_while_another_runs_and_waits(gone: str):
    """b itself, or one that only waits."""
    both = (*two_decode(2), step(3, ("a", 5, 1, ()), acts=(ev.Requeue("b", 1, "waiting", 0),)), token(3, "a"))
    events = (*both, ev.Arrive("c", (9,), 3, 0, 2), ev.Abort(gone), step(4, ("a", 6, 1, (3,))))
    equal(2, {"demote", "queues", "counts"}, events)


def test_what_a_prefill_lacks_is_told_by_what_is_left_of_the_budget():
    """Three tokens, and for those the block that is free is enough: c goes for nothing."""
    a, c = ev.Arrive("a", (1, 2, 3), 9), ev.Arrive("c", (9, 8, 7, 6, 5, 4, 3, 2), 3, 0, 1)
    goes = (
        ev.Demote("c", 1, "growth", ("c",)),
        ev.Release("c", 1, ((3, 4),), None, 0),
        ev.Requeue("c", 1, "waiting", 0, 8),
    )
    events: tuple[ev.Event, ...] = (a, step(0, ("a", 0, 3, (0, 1))), token(0, "a"), step(1, ("a", 3, 1, ())))
    events += (token(1, "a"), c, step(2, ("a", 4, 1, (2,)), ("c", 0, 3, (3, 4))), token(2, "a"))
    rules = equal(2, set(), (*events, step(3, ("a", 5, 1, ()), acts=goes)), blocks=6, budget=4, whole_fit=False)
    assert rules == {"victim/necessity"}


@pytest.mark.parametrize("name", STREAMS)
def test_equal_now(name: str):
    equal(*STREAMS[name])


@pytest.mark.parametrize(
    "event",
    [
        evolve(token(3, "a", "b"), acts=(ev.Publish("nobody", (0,), 0),)),
        step(4, ("a", 6, 1, (3,)), ("b", 6, 1, (11,)), ("nobody", 0, 1, (4,))),
    ],
)
def test_what_makes_no_sense_behind_what_does(event: ev.Event):
    """A grant or an act of somebody who was never heard of, where everything in front of it is as ever."""
    before: tuple[ev.Event, ...] = (*two_decode(2), step(3, ("a", 5, 1, ()), ("b", 5, 1, ())))
    if isinstance(event, ev.Step):
        before += (token(3, "a", "b"),)
    state, monitor = initial(HEADER, POLICY), Monitor(HEADER, POLICY)
    for one in before:
        assert monitor.feed(to_wire(one)) == []
        state = run(state, one, clauses(HEADER.observes)).state
    with pytest.raises(Malformed) as pure:
        run(state, event, clauses(HEADER.observes))
    with pytest.raises(Malformed) as ours:
        monitor.feed(to_wire(event))
    assert str(ours.value) == str(pure.value)


def test_behind_a_violation_nothing_is_judged():
    monitor = Monitor(HEADER, POLICY)
    for event in two_decode(2):
        assert monitor.feed(to_wire(event)) == []
    broken = monitor.feed(to_wire(token(2, "a", "b")))
    assert {v.rule for v in broken} == {"frame/once"}
    exercised = Counter(monitor.exercised)
    assert monitor.feed(to_wire(token(1, "a", "b"))) == []
    assert monitor.violations == broken
    assert monitor.exercised == exercised


@pytest.mark.parametrize("group", [ev.Group("full", "full", 2), ev.Group("window", "sliding", 2, 3)])
@pytest.mark.parametrize("ok", [True, False])
def test_what_a_copy_leaves_in_the_host(ok: bool, group: ev.Group):
    header = evolve(HEADER, groups=(group,), pools=(ev.Pool(ev.DEVICE, 0, 16), ev.Pool(ev.HOST, 0, 4)))
    state, monitor = initial(header, POLICY), Monitor(header, POLICY)
    events = (
        *two_decode(2),
        ev.CopyStart(1, "out", ((0, 3, 0),)),
        step(3, ("a", 5, 1, ()), ("b", 5, 1, ())),
        ev.CopyDone(1, ok),
    )
    for event in events:
        outcome = run(state, event, clauses(header.observes))
        assert monitor.feed(to_wire(event)) == [] == [*outcome.violations]
        state = outcome.state
    for view in (state, monitor.shadow):
        assert view.host_used(0, 3)
        assert view.host_holds("a", 0, 3, 0, 2) is ok
        assert view.hosted("a", 0, 2) is ok
        assert not view.hosted("a", 0, 4)  # of two pages one


def equal(
    page: int,
    hidden: set[str],
    events: tuple[ev.Event, ...],
    sent: bool = False,
    reserved: int = 0,
    kind: str = "full",
    blocks: int = 16,
    **limits: Any,
) -> set[str]:
    """The rules that break, by either judge; unless `sent`, what the worker was told is no matter."""
    header = evolve(
        HEADER,
        limits=evolve(HEADER.limits, **limits),
        groups=(ev.Group(kind, kind, page),),
        pools=(ev.Pool(ev.DEVICE, 0, blocks + reserved, reserved),),
        observes=OBSERVES - (set() if sent else {"sent"}) - hidden,
    )
    state, monitor = initial(header, POLICY), Monitor(header, POLICY)
    for event in events:
        before = Counter(monitor.exercised)
        outcome = run(state, event, clauses(header.observes))
        assert sorted(map(str, monitor.feed(to_wire(event)))) == sorted(map(str, outcome.violations)), event
        assert monitor.exercised - before == Counter(outcome.exercised), event
        state = outcome.state
        if outcome.violations:
            assert event is events[-1], outcome.violations  # the stream is there for its last event
    return {v.rule for v in outcome.violations}
