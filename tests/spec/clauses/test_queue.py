"""Clauses of queues, and what comes back from them, by hand: what each says, and in which words."""

from __future__ import annotations

from attrs import evolve

from preempt_spec import events as ev
from preempt_spec.micro import Grant
from preempt_spec.policies.policy import AfterPreemption
from preempt_spec.rules import queue, resume
from preempt_spec.view import HOLE, Place

# -- queue -----------------------------------------------------------------------------------------------------------


def test_only_who_was_preempted_is_requeued_or_whose_load_failed(at):
    s = at(running={"a": {"known": 4, "table": (0,)}})
    requeue = ev.Requeue("a", 0, "waiting", 0, 4)

    def says(place, **fields):
        return list(queue.was_out(evolve(s, requests={"a": evolve(s.requests["a"], place=place, **fields)}), requeue))

    assert says(Place.LIMBO) == [None]
    assert says(Place.LOADING, tables=((),)) == [None]
    assert says(Place.LOADING) == ["a was requeued while loading"]
    assert says(Place.LOADING, tables=((0,), ())) == ["a was requeued while loading"]
    assert says(Place.RUNNING, tables=((),)) == ["a was requeued while running"]


def test_who_may_be_loaded(at):
    s = at(running={"a": {"known": 4, "table": (0,), "computed": 4}})

    def says(place, tables):
        there = evolve(s, requests={"a": evolve(s.requests["a"], place=place, tables=tables)})
        return list(queue.was_waiting(there, ev.Load("a", 2, ((1,),), 0, 0)))

    assert says(Place.WAITING, ((),)) == [None]
    assert says(Place.RUNNING, ((0,),)) == ["a is loaded while running"]
    assert says(Place.RUNNING, ((),)) == ["a is loaded while running"]
    # Its load failed, and it holds nothing any more.
    assert says(Place.LOADING, ((),)) == [None]
    assert says(Place.LOADING, ((0,), ())) == ["a is loaded while loading"]


def test_where_requests_stand_in_words(at, close):
    s = evolve(at(running={"a": {}}, waiting={"b": {}}), aborted=("z",))

    def says(running, waiting, **more):
        return list(queue.queues_partition(s, close(running=running, waiting=waiting, **more)))

    assert says(("a",), ("b",)) == [None]
    assert says(("a", "z"), ("b",)) == [None]  # edge/abort speaks of that
    assert says(("a", "x"), ("b",)) == ["x is over and still queued"]
    assert says(("a", "b"), ("b",)) == ["b stands in running and in waiting"]
    assert says(("a",), ("b",), loading=("b",)) == ["b stands in waiting and in loading"]
    assert says(("a",), ()) == ["b is in no queue"]
    assert says(("b",), ("a",)) == ["a is running and the engine has it in another queue"]
    assert says(("a",), ("b",), swapped=("a",)) == ["a stands in running and in swapped"]


def test_who_loads_may_be_kept_among_those_who_wait(at, close):
    s = at(running={"a": {}}, waiting={"b": {}})
    s = evolve(s, waiting=(), requests={**s.requests, "b": evolve(s.requests["b"], place=Place.LOADING)})

    def says(running, waiting, **more):
        return list(queue.queues_partition(s, close(running=running, waiting=waiting, **more)))

    assert says(("a",), ("b",)) == [None]
    assert says(("a",), ()) == [None]
    assert says(("a",), (), loading=("b",)) == [None]
    assert says(("a", "b"), ()) == ["b is loading and the engine has it in another queue"]
    assert says(("a",), ("b",), loading=()) == ["b is loading and the engine has it in another queue"]
    assert says(("a",), (), loading=()) == ["b is in no queue"]


def test_where_a_victim_was_put_in_words(at):
    s = at(waiting={"b": {}}, running={"a": {}})
    s = evolve(s, running=(), requests={**s.requests, "a": evolve(s.requests["a"], place=Place.LIMBO)})
    assert list(queue.at_its_place(s, ev.Requeue("a", 0, "waiting", 0, 1))) == [None]
    assert list(queue.at_its_place(s, ev.Requeue("a", 0, "waiting", 1, 1))) == [
        "a was requeued at 1 of ['b']; vllm-fcfs puts it at 0"
    ]
    assert list(queue.at_its_place(s, ev.Requeue("a", 0, "waiting", None, 1))) == []
    loading = evolve(s, requests={**s.requests, "a": evolve(s.requests["a"], place=Place.LOADING)})
    assert list(queue.at_its_place(loading, ev.Requeue("a", 0, "waiting", 1, 1))) == []


def test_the_order_of_the_queues_in_words(at, close):
    s = at(running={"a": {}, "b": {}}, waiting={"c": {}, "d": {}})

    def says(**queues):
        return list(queue.queues_in_order(s, close(**queues)))

    assert says(running=("a", "b"), waiting=("c", "d")) == [None, None]
    assert says(running=("b", "a")) == ["running is ['b', 'a'], admitted were ['a', 'b']"]
    assert says(waiting=("d", "c")) == ["waiting is ['d', 'c'], queued were ['c', 'd']"]
    assert says(running=("a",), waiting=("c",)) == []  # queue/one-place speaks of that
    assert says() == []


def test_an_unsplit_prefill(at):
    s = at(waiting={"a": {"known": 6}}, chunked=False)

    def says(grant, s=s):
        return list(queue.gates_open(s, grant))

    message = ["a was admitted with 4 tokens of 6 known and chunked prefill is off"]
    assert says(Grant("a", 4, 0, ((0, 1),), None)) == message
    assert says(Grant("a", 4, None, ((0, 1),), None)) == message
    assert says(Grant("a", 6, 0, ((0, 1, 2),), None)) == [None]
    assert says(Grant("a", 4, 2, ((0, 1, 2),), 2)) == [None]
    assert says(Grant("a", 4, None, ((0, 1, 2),), 2)) == [None]
    capped = at(waiting={"a": {"known": 6}}, chunked=False, long_prefill=4)
    assert says(Grant("a", 4, 0, ((0, 1),), None), capped) == [None]
    assert says(Grant("a", 4, 0, ((0, 1),), None), at(waiting={"a": {"known": 6}}, chunked=True)) == [None]


def test_a_resume_of_which_no_start_is_read_is_not_taken_for_a_chunk(at):
    s = at(waiting={"a": {"known": 6, "computed": 4, "table": (0, 1)}}, chunked=False)
    for place in (Place.SWAPPED, Place.LOADING):
        back = evolve(s, requests={"a": evolve(s.requests["a"], place=place)})
        told = list(queue.gates_open(back, Grant("a", 2, None, ((2,),), None)))
        assert told == ([None] if place is Place.SWAPPED else [])
        assert list(queue.gates_open(back, Grant("a", 1, None, ((2,),), None))) == [
            "a was admitted with 1 tokens of 6 known and chunked prefill is off"
        ]


def test_an_admission_in_a_step_that_preempted(at):
    s = at(waiting={"a": {"known": 2}}, plan={"demoted": ("v",)})
    grant, load = Grant("a", 2, 0, ((0,),), None), ev.Load("a", 2, ((0,),), 0, 0)
    assert list(queue.gates_open(s, grant)) == ["a was admitted in a step that preempted v"]
    assert list(queue.load_gates_open(s, load)) == ["a begins to load in a step that preempted v"]
    open_ = next(x for x in AfterPreemption if x is not AfterPreemption.CLOSED)
    s = evolve(s, policy=evolve(s.policy, after_preemption=open_))
    assert list(queue.gates_open(s, grant)) == [None]
    assert list(queue.load_gates_open(s, load)) == [None]


def test_room_for_a_load(at):
    s = at(waiting={"a": {"known": 6}}, running={"b": {"known": 4, "table": (0, 1)}}, blocks=4)
    assert list(queue.load_gates_open(s, ev.Load("a", 2, ((2,),), 0, 0))) == [
        "a was admitted: it takes 3 blocks above a watermark of 0, 2 are free"
    ]
    running = at(running={"a": {"known": 6}}, blocks=1)
    assert list(queue.load_gates_open(running, ev.Load("a", 2, ((2,),), 0, 0))) == []


def test_what_an_admission_takes(after):
    """A hit of nothing brings no page, and a hole is none."""
    s = after(ev.Arrive("a", (1, 2, 3, 4), 2), page=1, blocks=3, whole_fit=False)
    words = "a was admitted: it takes {} blocks above a watermark of 0, 3 are free"
    assert list(queue.gates_open(s, Grant("a", 4, 0, ((0, 1, 2, 3),), None))) == [words.format(4)]
    assert list(queue.gates_open(s, Grant("a", 3, 0, ((0, 1, 2),), None))) == [None]
    windowed = after(ev.Arrive("a", (1, 2, 3, 4, 5), 2), groups=("sliding",), page=1, blocks=3, caching=True)
    assert windowed.limits.whole_fit
    # Of a hit of four tokens three are attended: the leading page is a hole, and of all three blocks none is left.
    hit = Grant("a", 1, 4, ((HOLE, 0, 1, 2, 3),), 4)
    assert list(queue.gates_open(windowed, hit)) == [words.format(4)]


def test_why_nobody_is_admitted_after_a_preemption(at):
    s = evolve(at(policy="hf-cb", running={"a": {}}, waiting={"b": {}}), gated=True)
    grant = Grant("b", 1, None, ((0,),), 0)
    assert list(queue.gates_open(s, grant)) == ["b was admitted although nobody finished since the last preemption"]
    s = at(running={"a": {}}, waiting={"b": {}}, plan={"demoted": ("c",)})
    assert list(queue.gates_open(s, grant)) == ["b was admitted in a step that preempted c"]


# -- resume ----------------------------------------------------------------------------------------------------------


def test_who_is_announced_as_resumed_in_words(at, close):
    s = at(running={"a": {"preempted": True}, "b": {}}, plan={"admitted": ("a", "b")})

    def says(*names):
        step = ev.Step(0, (), (), resumed=tuple(ev.Resumed(n) for n in names))
        return list(resume.resumed_are_told(s, close(step)))

    assert says("a") == [None]
    [missing] = says()
    [stranger] = says("a", "b")
    assert missing is not None
    assert missing.startswith("a ")
    assert stranger == "b is announced as resumed and was not preempted"
    [both] = says("b")
    assert both == missing
    assert "was not preempted" not in missing
    nobody = at(running={"b": {}}, plan={"admitted": ("b",)})
    step = ev.Step(0, (), (), resumed=(ev.Resumed("b"),))
    assert list(resume.resumed_are_told(nobody, close(step))) == ["b is announced as resumed and was not preempted"]
    assert list(resume.resumed_are_told(nobody, close())) == []


def test_without_a_cache_there_is_nothing_to_hit(at):
    s = at(waiting={"a": {"known": 6}}, caching=False)
    assert list(resume.nothing_to_hit(s, Grant("a", 4, 0, ((0, 1, 2),), None))) == [None]
    assert list(resume.nothing_to_hit(s, Grant("a", 4, 2, ((0, 1, 2),), None))) == [
        "a starts at 2 and there is no cache to hit"
    ]
