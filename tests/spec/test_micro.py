"""A step in slow motion: the order in which `expand` unfolds it."""

from __future__ import annotations

from preempt_spec import events as ev
from preempt_spec import micro as mi


def names(step: ev.Step, groups: int = 1) -> list[str]:
    """The micro-events in a word each."""
    out = []
    for m in mi.expand(step, groups):
        request = getattr(m, "request", None)
        out.append(f"{type(m).__name__} {request}" if request else type(m).__name__)
    return out


def test_acts_come_after_as_many_grants_as_they_say():
    step = ev.Step(
        3,
        ("a", "b"),
        (1, 1),
        acts=(
            ev.Skip("w", "loading", 0),
            ev.Demote("c", 1),
            ev.Release("c", 1),
            ev.Requeue("c", 1),
            ev.Publish("a", (0,), 2),
        ),
    )
    assert names(step) == [
        "Begin",
        "Skip w",
        "Grant a",
        "Demote c",
        "Release c",
        "Requeue c",
        "Grant b",
        "Publish a",
        "Dispatch",
        "Close",
    ]


def test_acts_behind_the_last_grant_come_before_the_dispatch():
    assert names(ev.Step(0, (), (), acts=(ev.Demote("a", 0), ev.Release("a", 7)))) == [
        "Begin",
        "Demote a",
        "Release a",
        "Dispatch",
        "Close",
    ]


def test_a_grant_carries_its_blocks_hit_and_start():
    step = ev.Step(
        0,
        ("a", "b"),
        (2, 3),
        start=(4, 0),
        blocks=(ev.Delta("b", 1, (7,)), ev.Delta("a", 0, (1,)), ev.Delta("a", 0, (2, 3))),
        hits=(ev.Hit("b", 4),),
    )
    grants = [m for m in mi.expand(step, 2) if isinstance(m, mi.Grant)]
    assert grants == [
        mi.Grant("a", 2, 4, ((1, 2, 3), ()), None),
        mi.Grant("b", 3, 0, ((), (7,)), 4),
    ]


def test_a_second_grant_gets_no_blocks_again():
    step = ev.Step(0, ("a", "a"), (1, 1), blocks=(ev.Delta("a", 0, (5,)),))
    assert [m.blocks for m in mi.expand(step, 1) if isinstance(m, mi.Grant)] == [((5,),), ((),)]


def test_blocks_without_a_grant_are_strays():
    step = ev.Step(0, ("a",), (1,), blocks=(ev.Delta("a", 0, (5,)), ev.Delta("b", 0, (6,))))
    close = [m for m in mi.expand(step, 1) if isinstance(m, mi.Close)]
    assert [m.stray for m in close] == [("b",)]


def test_a_control_unfolds_its_acts():
    control = ev.Control("reset", (ev.Demote("a", 0, "reset"), ev.Release("a")))
    assert [type(m) for m in mi.expand(control, 1)] == [ev.Demote, ev.Release, mi.ControlDone]


def test_everything_else_is_one_micro_event():
    for event in (ev.Arrive("a", (1,), 1), ev.Abort("a"), ev.Finish("a"), ev.Deliver(0), ev.CopyDone(1)):
        assert list(mi.expand(event, 1)) == [event]
