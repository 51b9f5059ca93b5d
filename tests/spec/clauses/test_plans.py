"""Clauses that look at a whole plan: who was passed over, who stands where, what was told, what may be findable."""

from __future__ import annotations

from attrs import evolve

from preempt_spec import events as ev
from preempt_spec.micro import Close, Grant
from preempt_spec.policies.policy import Memory, Publish
from preempt_spec.rules import queue, resume, victim
from preempt_spec.view import Due, Fate, Place


def close(step=None, **observed):
    step = step or ev.Step(0, (), ())
    return Close(evolve(step, observed=ev.Observed(**observed)), ())


def planned(s, **plan):
    return evolve(s, plan=evolve(s.plan, **plan))


def said(found):
    return [*found]


def starts(found, words):
    [message] = found
    return message.startswith(words)


def released(*names):
    return ev.Step(0, (), (), acts=tuple(ev.Release(n, 0, None, None, 0, 0) for n in names))


def test_victims_stand_where_they_were_put(at):
    s = at(waiting={"a": {}, "b": {}}, plan={"requeued": ("a",)})

    def says(*waiting, s=s):
        return said(queue.stays_at_its_place(s, close(waiting=waiting)))

    assert says("a", "b") == [None]
    assert says("b", "a") == ["a stands at 1 of waiting, not at 0"]
    assert says("z", "a", "b") == [None]  # who is over is edge/abort's
    assert says("a", "c") == []  # queue/one-place speaks of it
    assert said(queue.stays_at_its_place(s, close())) == []
    assert says("a", "b", s=planned(s, requeued=())) == []
    assert says("a", "b", s=planned(s, requeued=("c",))) == []  # admitted again


def test_who_is_passed_over_without_a_reason(at):
    s = at(running={"a": {"known": 4, "table": (0, 1), "computed": 3}})

    def says(step=None, s=s, **plan):
        return said(queue.no_unexplained_skip(planned(s, **plan), close(step)))

    message = ["a runs, was granted nothing, and no declared guard explains it"]
    assert says() == message
    assert says(granted={"a": (3, 1)}) == [None]
    assert says(released("w")) == [None]  # a load was given up: its blocks may have come too late
    assert says(released("v"), demoted=("v",)) == message
    full = at(running={"a": {"known": 3, "table": (0,), "computed": 2}}, blocks=1)
    assert says(s=full) == [None]  # victim/duty speaks of it


def test_who_is_left_to_starve(at):
    s = at(running={"a": {"known": 3, "table": (0,), "computed": 2}}, blocks=1)

    def says(s=s, **plan):
        return said(victim.not_left_to_starve(planned(s, **plan), close()))

    assert says() == ["a needs 1 blocks, 0 are free, and nobody was preempted for it"]
    assert says(granted={"a": (2, 1)}) == []
    assert says(at(running={"a": {"known": 3, "table": (0,), "computed": 2}}, blocks=2)) == []


def test_whose_choice_a_victim_is(at):
    s = at(running={"a": {"known": 3, "table": (0,), "computed": 2}, "b": {"table": (1,)}}, blocks=2)

    def says(request, cause, *who):
        return said(victim.the_right_one(s, ev.Demote(request, 0, cause, who)))

    assert says("b", "growth", "a") == [None]
    [wrong] = says("a", "growth", "a")
    assert wrong.startswith("a was preempted for a; vllm-fcfs takes b")
    assert says("a", "reset", "a") == []
    assert says("a", "growth") == []
    assert says("a", "growth", "gone") == []


def test_a_further_victim(at):
    s = at(running={"a": {"known": 3, "table": (0,), "computed": 2}, "b": {}}, plan={"served": ("a",)})
    demote = ev.Demote("b", 0, "growth", ("a",))
    assert starts(victim.no_further_victim(s, demote), "a further victim, b: a needs 1 blocks, 7 are free already")
    assert said(victim.no_further_victim(planned(s, fenced=True), demote)) == []
    assert said(victim.no_further_victim(planned(s, served=()), demote)) == []
    behind = planned(s, fenced=True, demoted=("x", "y"))
    assert said(victim.wait_for_the_fence(behind, demote)) == ["b was preempted while the blocks of y are still fenced"]


def test_what_a_waiting_victim_holds(at):
    s = at(waiting={"v": {}}, plan={"demoted": ("v",)})
    held = (ev.Held("v", 1, 2),)
    assert said(victim.victim_holds_nothing(s, close(held=held))) == [
        "v was preempted and holds 1 blocks and 2 computed tokens"
    ]
    assert said(victim.victim_holds_nothing(s, close(held=()))) == [None]
    assert said(victim.victim_holds_nothing(s, close())) == []


def test_how_long_a_victim_is(at):
    s = at(waiting={"v": {"known": 3}})
    assert said(victim.nothing_forgotten(s, ev.Requeue("v", 0, "waiting", 0, 3))) == [None]
    assert said(victim.nothing_forgotten(s, ev.Requeue("v", 0, "waiting", 0, None))) == []

    def resumed(request, known):
        step = ev.Step(0, (), (), resumed=(ev.Resumed(request, known),))
        return said(victim.resumed_whole(s, close(step)))

    assert resumed("v", 3) == [None]
    assert resumed("v", None) == []
    assert resumed("z", 3) == []
    assert resumed("z", None) == []
    assert len(resumed("v", 2)) == 1


def test_the_queue_of_the_swapped_in_words(at):
    s = at("vllm-v0-swap", waiting={"w": {}}, running={"a": {"computed": 1}})
    s = evolve(s, running=(), swapped=("x",), requests={**s.requests, "a": evolve(s.requests["a"], place=Place.LIMBO)})
    s = evolve(s, requests={**s.requests, "x": evolve(s.requests["w"], id="x", place=Place.SWAPPED)})
    assert starts(
        queue.at_its_place(s, ev.Requeue("a", 0, "swapped", 7, 1)),
        "a was requeued at 7 of ['x']; vllm-v0-swap puts it at ",
    )
    assert starts(queue.at_its_place(s, ev.Requeue("a", 0, "waiting", 7, 1)), "a was requeued at 7 of ['w']; ")
    assert s.policy.memory is Memory.SWAP


def test_a_hit_on_an_idle_block_takes_it_out_of_the_free_ones(at):
    def says(blocks):
        s = at(waiting={"a": {"known": 6}}, blocks=blocks, caching=True)
        return said(queue.gates_open(s, Grant("a", 4, 2, ((0, 1, 2),), 2)))

    assert says(3) == [None]
    assert says(2) == ["a was admitted: it takes 3 blocks above a watermark of 0, 2 are free"]


def test_what_it_has_already_needs_no_room(at):
    s = at(waiting={"a": {"known": 6, "table": (0,), "computed": 2}}, blocks=3)
    assert said(queue.gates_open(s, Grant("a", 4, 2, ((1, 2),), None))) == [None]
    small = at(waiting={"a": {"known": 6, "table": (0,), "computed": 2}}, blocks=2)
    assert said(queue.gates_open(small, Grant("a", 2, 2, ((1,),), None))) == [
        "a was admitted: it takes 2 blocks above a watermark of 0, 1 are free"
    ]


def test_a_start_where_it_was_is_no_hit(at):
    s = at(waiting={"a": {"known": 6, "table": (0,), "computed": 2}})
    assert said(resume.no_more_than_resident(s, Grant("a", 4, 2, ((1, 2),), None))) == [None]
    bare = at(waiting={"a": {"known": 6}}, caching=True)
    assert said(resume.no_more_than_resident(bare, Grant("a", 4, 2, ((0, 1, 2),), 2))) == [
        "a starts at 2; resident blocks hold 0 tokens of its prefix"
    ]


def test_nothing_is_resident_on_an_empty_host(after):
    s = after(ev.Arrive("a", (1, 2, 3, 4), 2), host=4, caching=True)
    assert said(resume.no_more_than_resident(s, Grant("a", 2, 2, ((0, 1),), 2))) == [
        "a starts at 2; resident blocks hold 0 tokens of its prefix"
    ]


def test_an_admission_goes_on_behind_what_the_host_holds(after):
    """Its pages are written over on the device; the copy that brings them may come in this very step."""
    first = ev.Step(0, ("a",), (4,), (0,), (ev.Delta("a", 0, (0, 1)),), (ev.Sent("a", 0, (0, 1), True),))
    other = ev.Step(1, ("c",), (4,), (0,), (ev.Delta("c", 0, (0, 1)),), (ev.Sent("c", 0, (0, 1), True),))
    s = after(
        *(ev.Arrive("a", (1, 2, 3, 4), 1), first, ev.CopyStart(1, "out", ((0, 0, 0), (1, 1, 0))), ev.CopyDone(1, True)),
        *(ev.Deliver(0, ("a",), ((9,),)), ev.Finish("a", "length", ((0, 1),))),
        *(ev.Arrive("c", (7, 7, 7, 7), 2), other, ev.Arrive("b", (1, 2, 3, 4, 5), 2)),
        host=4,
        caching=True,
    )
    assert said(resume.no_more_than_resident(s, Grant("b", 1, 4, ((2, 3, 4),), 4))) == [None]
    assert s.best_hit("b") == 0


def test_an_admission_goes_on_behind_what_the_device_holds(after):
    """Whatever of it is in the host tier, which is asked for a recurrent state whole."""
    tables, sent = ((0,), (1,)), (ev.Sent("a", 0, (0,), True), ev.Sent("a", 1, (1,), True))
    first = ev.Step(0, ("a",), (2,), (0,), tuple(ev.Delta("a", g, t) for g, t in enumerate(tables)), sent)
    s = after(
        *(ev.Arrive("a", (1, 2), 2), first, ev.Arrive("b", (1, 2, 3), 2)),
        groups=("full", "recurrent"),
        host=4,
        caching=True,
    )
    assert said(resume.no_more_than_resident(s, Grant("b", 1, 2, ((0, 2), (3,)), 2))) == [None]


def test_one_host_pool_is_enough_for_a_hit(after):
    """Where some group has no host blocks, the others may still bring something."""
    some, none = (after(ev.Arrive("a", (1, 2, 3, 4), 2), groups=("full", "sliding"), host=h) for h in (4, 0))
    grant = Grant("a", 2, 2, ((0, 1), (0, 1)), None)
    assert said(resume.nothing_to_hit(evolve(some, host=(some.host[0], none.host[1])), grant)) == []
    assert said(resume.nothing_to_hit(none, grant)) == ["a starts at 2 and there is no cache to hit"]


def test_a_pass_attends_what_it_writes(at):
    s = at(running={"a": {"known": 4, "table": (0,)}})
    short = planned(s, granted={"a": (0, 3)})
    assert said(resume.reads_own_prefix(short, close())) == [
        "a attends slot 0, which does not hold its token 0 in its context"
    ]
    assert said(resume.reads_own_prefix(planned(s, granted={"a": (0, 0)}), close())) == [None]


def test_nothing_published_is_nothing_too_early(at):
    """What is not in the table is another clause's."""
    s = at("hf-cb", running={"a": {"known": 4, "table": (0,)}}, page=4)
    assert s.policy.publish is Publish.COMMIT
    assert said(resume.not_before_its_commit(s, ev.Publish("a", (7,)))) == [None]
    assert said(resume.not_before_its_commit(s, ev.Publish("a", (0,)))) == [
        "a published pages up to 4 while frames still write them"
    ]


def test_who_runs_alone_starves_alone(at):
    """Behind a whole pass nobody is there to make room for the only one."""
    alone = at("hf-cb", running={"a": {"known": 5, "table": (0,), "computed": 4}}, page=4, blocks=1)
    assert said(victim.not_left_to_starve(alone, close())) == []


def test_only_who_is_granted_anything_is_told_of_its_table(at):
    s = at(running={"a": {"known": 4, "table": (0, 1)}})
    step = ev.Step(0, (), (), blocks=(ev.Delta("a", 0, (1,)),))
    assert said(resume.sent_adds_up(s, close(step))) == []
    served = planned(s, granted={"a": (2, 2)})
    assert said(resume.sent_adds_up(served, close(step))) == [None]


def test_the_first_table_that_is_wrong_is_told(after):
    s = after(ev.Arrive("a", (1, 2), 2), groups=("full", "full"))
    tables = ((0,), (1,))
    a = evolve(s.requests["a"], place=Place.RUNNING, tables=tables, sent=((), ()))
    s = planned(evolve(s, requests={"a": a}), granted={"a": (0, 2)})
    step = ev.Step(0, (), (), blocks=(ev.Delta("a", 0, (0,)),))
    assert said(resume.sent_adds_up(s, close(step))) == ["the worker has [] for a (group 0), the allocator [0]"]
    admitted = planned(s, admitted=("a",))
    assert said(resume.sent_adds_up(admitted, close(step))) == [
        "a was admitted and its table (group 0) was not sent in full"
    ]


def test_pages_are_findable_when_their_frames_are_back(at):
    s = at(running={"a": {"known": 6, "table": (0, 1, 2), "computed": 6}})
    s = evolve(s, policy=evolve(s.policy, publish=Publish.COMMIT))

    def says(frames, *blocks):
        return said(resume.not_before_its_commit(evolve(s, frames=frames), ev.Publish("a", blocks, 0, 0)))

    due = Due(2, 6, 1, None)
    late = ["a published pages up to 6 while frames still write them"]
    assert says({}, 2) == [None]
    assert says({1: {"a": due}}, 2) == late
    assert says({1: {"a": due}}, 1, 2) == late
    assert says({1: {"a": due}}, 1) == [None]
    assert says({1: {"b": due}}, 2) == [None]
    assert says({1: {"a": evolve(due, fate=Fate.DELIVER)}}, 2) == [None]
    assert says({1: {"a": due}, 2: {"a": due}}, 1) == ["a published pages up to 4 while frames still write them"]
    assert says({}) == [None]


def test_no_page_of_a_full_group_is_passed(at):
    s = at(running={"a": {"known": 3, "table": (4, 5, 6), "computed": 3}}, page=1)
    assert said(resume.out_of_the_window(s, ev.Shed("a", (4,), 0, 0))) == [
        "block 4 left the table of a, which attends from 0 on"
    ]
