"""A hit that admits who does not fit, and findable pages that take room until somebody starves (transformers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from preempt_spec import events as ev
from preempt_spec.policies import blocks, pressure, visits
from preempt_spec.policies.policy import Hits, Idle, Reads
from preempt_spec.reference import OBSERVES
from preempt_spec.rules.resume import runs_on_what_is_there
from preempt_spec.state import State
from preempt_spec.system import apply, check

After = Callable[..., State]
PROMPT = (1, 2, 3, 4)
#: `a` computed two pages, which can be found still; `b` begins with them; `c` runs on two others.
BEGUN = (
    ev.Arrive("a", PROMPT, 1),
    ev.Arrive("c", (7, 7, 7), 4),
    ev.Step(
        0,
        ("a", "c"),
        (4, 3),
        (0, 0),
        (ev.Delta("a", 0, (0, 1)), ev.Delta("c", 0, (2, 3))),
        (ev.Sent("a", 0, (0, 1), True), ev.Sent("c", 0, (2, 3), True)),
    ),
    ev.Deliver(0, ("a", "c"), ((9,), (8,)), emitted=((9,), (8,)), acts=(ev.Publish("a", (0, 1)),)),
    ev.Finish("a", "length", ((0, 1),)),
    ev.Arrive("b", (*PROMPT, 5), 2),
)
HIT = ev.Load("b", 4, ((0, 1),), 1, 4, True)
GOES = (
    ev.Demote("b", 1, "growth", ("b",), "blocks", 1, 0),
    ev.Release("b", 1, ((0, 1),), None, 0),
    ev.Requeue("b", 1, "waiting", 0, 5),
)


def begun(after: After, blocks: int = 4, **knobs: Any) -> State:
    return after(*BEGUN, policy="hf-cb", blocks=blocks, caching=True, knobs=knobs)


def step(*acts: ev.Act) -> ev.Step:
    """`c` goes on; what else happens."""
    return ev.Step(1, ("c",), (1,), (3,), sent=(ev.Sent("c", 0, (2, 3), True),), acts=acts)


def broken(s: State, e: ev.Event) -> set[str]:
    return {v.rule for v in check(s, e, OBSERVES - {"queues", "free", "held", "refs", "free-ids", "stats"})}


def test_who_hits_and_does_not_fit_runs_and_starves(after: After):
    s = begun(after)
    assert broken(s, step(HIT, *GOES)) == set()
    left = apply(s, step(HIT, *GOES))
    assert left.running == ("c",)
    assert left.waiting == ("b",)
    assert left.gated
    assert left.request("b").preempted
    assert left.shared(0) == {}


def test_nobody_makes_room_for_it(after: After):
    """It starves like others: whom there is no room for is not just left there."""
    assert broken(begun(after), step(HIT)) == {"victim/duty"}


def test_it_goes_on_where_its_hit_ends(after: After):
    """Its next grant is one of a running request."""
    s = apply(begun(after, 5), step(HIT))
    assert s.running == ("c", "b")
    assert s.request("b").computed == 4
    assert pressure.want(s, "b") == 1
    assert visits.visiting(s) == ("c", "b")


@pytest.mark.parametrize(
    ("load", "rule"),
    [
        (evolve(HIT, computed=5), "resume/hit"),
        (evolve(HIT, computed=5, hit=5), "resume/hit"),
        (evolve(HIT, computed=0, hit=0, blocks=((),)), "resume/hit"),
        (evolve(HIT, hit=0), "resume/hit"),
    ],
)
def test_it_runs_on_its_hit_and_on_nothing_else(after: After, load: ev.Load, rule: str):
    assert rule in broken(begun(after, 5), step(load))


def words(s: State, load: ev.Load) -> list[str | None]:
    return list(runs_on_what_is_there(s, load))


def test_a_hit_leaves_a_token_to_compute(after: After):
    s = apply(begun(after), ev.Arrive("e", PROMPT, 2))
    load = ev.Load("e", 4, ((0, 1),), 0, 4, True)
    assert words(s, load) == ["e runs with 4 tokens, 4 hit; a hit may cover 3"]
    assert words(s, evolve(load, runs=False)) == []


def test_a_hit_of_one_token_is_one(after: After):
    step = ev.Step(0, ("a",), (2,), (0,), (ev.Delta("a", 0, (0, 1)),), (ev.Sent("a", 0, (0, 1), True),))
    s = after(ev.Arrive("a", (1, 2), 2), step, policy="hf-cb", page=1, caching=True)
    s = apply(s, ev.Arrive("b", (1, 3), 2))
    assert words(s, ev.Load("b", 1, ((0,),), 0, 1, True)) == [None]
    assert words(s, ev.Load("b", 0, ((),), 0, 0, True)) == ["b runs with 0 tokens, 0 hit; a hit may cover 1"]


def test_without_a_cache_nothing_is_hit(after: After):
    s = begun(after)
    assert words(s, HIT) == [None]
    assert words(evolve(s, limits=evolve(s.limits, caching=False)), HIT) == [
        "b runs with 4 tokens; resident blocks hold 4 of its prefix"
    ]


def test_elsewhere_a_hit_admits_nobody(after: After):
    assert "queue/admission" in broken(begun(after, hits=Hits.FITTING), step(HIT, *GOES))


def test_findable_pages_take_room_until_somebody_starves(after: After):
    s = begun(after, 5)
    assert (s.free(0), s.idle(0), blocks.room(s, 0)) == (3, 2, 1)
    assert blocks.room(evolve(s, policy=evolve(s.policy, idle=Idle.ON_DEMAND)), 0) == 3
    swept = apply(s, ev.Step(1, (), (), (), acts=(ev.Withdraw((0, 1)),)))
    assert (swept.idle(0), blocks.room(swept, 0)) == (0, 3)


@pytest.mark.parametrize(("start", "right"), [(4, True), (5, False)])
def test_a_step_reads_no_more_than_the_pool_has(after: After, start: int, right: bool):
    """Shared pages count for each who reads them; here `c` reads 4 of 8 tokens."""
    s = begun(after)
    s = evolve(s, plan=evolve(s.plan, granted={"c": (4, 1)}))
    assert visits.readable(s, "b", start) is right
    assert visits.readable(evolve(s, policy=evolve(s.policy, reads=Reads.ANY)), "b", start)
