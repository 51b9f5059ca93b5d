"""Who makes way for an admission, under SGLang's priorities: for whom, whom, and how many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from preempt_spec import events as ev
from preempt_spec.micro import Close
from preempt_spec.policies.displacing import (
    ample,
    displaceable,
    first_of_those_who_stay,
    line_before,
    next_displaced,
    slots,
)
from preempt_spec.reference import OBSERVES
from preempt_spec.rules import victim
from preempt_spec.state import State
from preempt_spec.system import apply, check

At = Callable[..., State]
After = Callable[..., State]
#: Of priorities 1, 2 and 2, `d` after `c`; all of one page. `w`, of priority 0, waits in front of `x`, of priority 1.
RUNNING = {
    n: {"priority": p, "computed": 1, "table": (i,), "since": (0, i)}
    for i, (n, p) in enumerate((("a", 1), ("c", 2), ("d", 2)))
}
WAITING = {"w": {"priority": 0}, "x": {"priority": 1}}


def full(at: At, **more: Any) -> State:
    return at("sglang-priority", RUNNING, WAITING, **{"max_running": 3, **more})


def begun(after: After, priorities: tuple[int, int] = (1, 2), **more: Any) -> State:
    """Two run, one token each in a page each, and `w`, the best, waits for a slot."""
    first, second = priorities
    return after(
        ev.Arrive("a", (1,), 4, priority=first),
        ev.Arrive("b", (2,), 4, priority=second),
        ev.Step(
            *(0, ("a", "b"), (1, 1), (0, 0), (ev.Delta("a", 0, (0,)), ev.Delta("b", 0, (1,)))),
            (ev.Sent("a", 0, (0,), True), ev.Sent("b", 0, (1,), True)),
        ),
        ev.Deliver(0, ("a", "b"), ((8,), (9,)), emitted=((8,), (9,))),
        ev.Arrive("w", (3,), 4),
        **{"policy": "sglang-priority", "max_running": 2, **more},
    )


def goes(victim: str, block: int, index: int = 1, need: int = 1, supply: int = 0) -> tuple[ev.Act, ...]:
    return (
        ev.Demote(victim, 0, "admission", ("w",), "slots", need, supply),
        ev.Release(victim, 0, ((block,),), None, 0),
        ev.Requeue(victim, 0, "waiting", index, 2),
    )


def admits(*acts: ev.Act, block: int = 5) -> ev.Step:
    """A prefill of `w`."""
    delta, sent = ev.Delta("w", 0, (block,)), ev.Sent("w", 0, (block,), True)
    return ev.Step(1, ("w",), (1,), (0,), (delta,), (sent,), acts=acts)


def broken(s: State, e: ev.Event) -> set[str]:
    return {v.rule for v in check(s, e, OBSERVES - {"queues", "free", "held", "refs", "free-ids", "stats"})}


def test_the_worst_goes_and_the_best_takes_its_place(after: After):
    s, step = begun(after), admits(*goes("b", 1))
    assert broken(s, step) == set()
    left = apply(s, step)
    assert (left.running, left.waiting) == (("a", "w"), ("b",))
    assert left.request("b").preempted


def test_whoever_is_worse_stays_not_behind_a_better_one(after: After):
    """`a` is no victim as long as `b` runs."""
    assert broken(begun(after), admits(*goes("a", 0))) == {"victim/choice"}


def test_of_equals_the_last_to_enter_goes(after: After):
    assert broken(begun(after, (2, 2)), admits(*goes("b", 1))) == set()
    assert broken(begun(after, (2, 2)), admits(*goes("a", 0))) == {"victim/choice"}


@pytest.mark.parametrize(("priority", "threshold", "right"), [(0, 0, False), (1, 0, True), (1, 1, False), (2, 1, True)])
def test_an_equal_and_whoever_is_not_worse_enough_does_not_make_way(
    after: After, priority: int, threshold: int, right: bool
):
    s = begun(after, (0, priority), threshold=threshold)
    assert broken(s, admits(*goes("b", 1))) == (set() if right else {"victim/choice"})


def test_nobody_makes_way_beside_a_free_slot(after: After):
    s = begun(after, max_running=3)
    assert broken(s, admits(*goes("b", 1, supply=1))) == {"victim/necessity"}


def test_nobody_makes_way_for_nothing(after: After):
    """`w` stays where it waits."""
    idle = ev.Step(1, ("a",), (1,), (1,), sent=(ev.Sent("a", 0, (0,), True),), acts=goes("b", 1))
    assert "victim/trigger" in broken(begun(after), idle)


@pytest.mark.parametrize("beneficiaries", [(), ("a",), ("w", "a"), ("nobody",)])
def test_who_makes_way_does_so_for_one_that_waits(after: After, beneficiaries: tuple[str, ...]):
    demote, *rest = goes("b", 1)
    assert isinstance(demote, ev.Demote)
    wrong = ev.Demote("b", 0, "admission", beneficiaries, "slots", 1, 0)
    assert "victim/trigger" in broken(begun(after), admits(wrong, *rest))


@pytest.mark.parametrize("policy", ["vllm-priority", "sglang-retract"])
def test_where_nobody_makes_way_for_an_admission_that_is_all_there_is_to_say(after: After, policy: str):
    """Neither that a slot is free, nor that the best went: only who declares the cause says when it holds."""
    s = begun(after, policy=policy, max_running=3)
    assert broken(s, admits(*goes("a", 0))) == {"victim/trigger"}


def test_a_victim_of_pressure_makes_way_for_nobody(at: At):
    """Even if it is told to be one for a request that waits."""
    s, e = full(at, max_running=4), ev.Demote("a", 0, "growth", ("w",), "blocks", 1, 0)
    assert [*victim.no_slot_was_free(s, e), *victim.may_make_way(s, e)] == []


def test_a_further_victim_needs_a_reason(after: After):
    """Of 8 blocks `w` may come to need 3, with one for an estimate's sake, and `a` 2 more: 6 were free behind `b`."""
    both = (*goes("b", 1), *goes("a", 0, index=2, supply=1))
    assert broken(begun(after), admits(*both)) == {"victim/minimal"}
    assert broken(begun(after, blocks=5), admits(*both, block=4)) == set()


def test_a_further_victim_is_judged_behind_all_that_go_before_it(at: At):
    """Of an admission's victims, told in any order: only of the last to go can be said that it was one too many."""
    rows = {n: {**RUNNING[n], "table": ()} for n in "acd"}

    def says(*before: str, since: tuple[int, int] = (0, 1)) -> list[str | None]:
        running = {"c": {**rows["c"], "since": since}}
        waiting = {**WAITING, **{n: rows[n] for n in before}}
        plan = {"displaced": tuple((n, "w") for n in before), "served": ("w",)}
        s = at("sglang-priority", running, waiting, max_running=3, blocks=40, plan=plan)
        return list(victim.nobody_further_makes_way(s, ev.Demote("c", 0, "admission", ("w",), "slots", 1, 2)))

    assert says("d") == ["a further victim, c: w has a slot, and room for all that anybody may emit"]
    assert says("a") == []
    assert says("d", "a") == []
    assert says("d", since=(0, 2)) == []  # neither goes before the other


def test_whom_nobody_worse_outlasts(at: At, close: Callable[..., Close]):
    def says(v: str, since: tuple[int, int] = (0, 2), **rows: Any) -> list[str | None]:
        running = {"a": RUNNING["a"], "c": {**RUNNING["c"], "since": since}, **rows}
        s = at("sglang-priority", running, {"d": RUNNING["d"]}, plan={"displaced": ((v, "w"),)})
        return list(victim.nobody_worse_stays(s, close()))

    wrong = ["d was preempted for the admission of w, and c goes before it"]
    assert says("d", (0, 1)) == [None]
    assert says("d", (0, 3)) == wrong
    assert says("d", (0, 2)) == wrong
    assert says("gone") == []
    assert says("a") == []  # it is back already


def test_who_may_be_displaced(at: At):
    s = full(at)
    assert displaceable(s, "w") == ("a", "c", "d")
    assert displaceable(s, "x") == ("c", "d")
    assert displaceable(full(at, threshold=1), "w") == ("c", "d")
    assert displaceable(full(at, plan={"admitted": ("d",)}), "x") == ("c",)
    assert next_displaced(full(at, threshold=2), "w") is None


def test_who_would_go_first_of_those_who_stay(at: At):
    assert first_of_those_who_stay(full(at)) == "d"
    assert first_of_those_who_stay(full(at, plan={"admitted": ("d",)})) == "c"


def test_a_slot_for_a_request_and_for_those_before_it(at: At):
    s = full(at)
    assert (line_before(s, "w"), line_before(s, "x")) == (("w",), ("w", "x"))
    assert (slots(s, "w"), slots(s, "x")) == ((1, 0), (2, 0))
    assert slots(full(at, max_running=5, plan={"skipped": {"w": "blocked"}}), "x") == (1, 2)
    assert line_before(s, "elsewhere") == ("elsewhere",)


@pytest.mark.parametrize(("blocks", "enough"), [(12, False), (13, True)])
def test_what_is_ample(at: At, blocks: int, enough: bool):
    """Each of those that run may come to 3 pages and has one; `w` to 3, and one more for an estimate's sake."""
    assert ample(full(at, max_running=4, blocks=blocks), "w") is enough
    assert not ample(full(at, max_running=3, blocks=blocks), "w")
