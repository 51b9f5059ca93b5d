"""Clauses of the host tier, and victims, by hand: what each says, and in which words."""

from __future__ import annotations

from attrs import evolve

from preempt_spec import events as ev
from preempt_spec.micro import Grant
from preempt_spec.policies.policy import Memory
from preempt_spec.rules import swap, victim
from preempt_spec.view import HOLE, Copy, Due, Place

# -- swap ------------------------------------------------------------------------------------------------------------


def test_host_blocks_are_given_up_once(after):
    s = after(host=4)
    assert list(swap.was_in_use(s, ev.Evict((1,)))) == ["host block 1 was given up and was not in use"]


def test_a_host_block_that_is_in_use_is_given_up_once(after):
    s = after(ev.CopyStart(1, "out", ((0, 2, 0),)), ev.CopyDone(1, True), host=4)
    assert list(swap.was_in_use(s, ev.Evict((2,)))) == [None]
    assert list(swap.was_in_use(s, ev.Evict((2, 2)))) == ["host block 2 was given up and was not in use"] * 2


def test_a_host_block_that_is_copied_is_not_given_up(after):
    s = after(host=4)
    s = evolve(s, last_frame=5)

    def says(copy, *blocks):
        return list(swap.not_read_any_more(evolve(s, copies={1: copy}), ev.Evict(blocks)))

    message = ["host block 2 was given up while a copy still uses it"]
    assert says(Copy("out", ((0, 2, 0),), None), 2) == message
    assert says(Copy("in", ((2, 0, 0),), None), 2) == message
    assert says(Copy("out", ((0, 2, 0),), None), 3) == [None]
    assert says(Copy("out", ((0, 2, 1),), None), 2) == [None]
    assert says(Copy("out", ((0, 2, 0),), 5), 2) == []
    assert says(Copy("out", ((0, 2, 0),), 6), 2) == message


def test_a_host_block_is_filled_once(after):
    s = after(host=4)
    told = list(swap.into_free_host_blocks(s, ev.CopyStart(1, "out", ((0, 2, 0), (1, 2, 0)))))
    assert told == [None, "host block 2 is filled while it is in use"]


def test_blocks_of_copies_on_their_way(at):
    s = evolve(at(running={"a": {"known": 4, "table": (5,)}}), last_frame=5)

    def says(copy, *blocks, hit=None):
        return list(swap.not_in_transit(evolve(s, copies={1: copy}), Grant("a", 1, 0, (blocks,), hit)))

    assert says(Copy("out", ((3, 0, 0),), None), 3) == ["block 3 was given to a while a copy still uses it"]
    assert says(Copy("out", ((3, 0, 0),), None), 4) == [None]
    assert says(Copy("out", ((3, 0, 0),), 5), 3) == []
    assert says(Copy("out", ((3, 0, 0),), 6), 3) == ["block 3 was given to a while a copy still uses it"]
    assert says(Copy("out", ((3, 0, 0),), None), 3, hit=2) == [None]
    assert says(Copy("in", ((0, 3, 0),), None), 3, hit=2) == ["a attends block 3, whose load is not done"]
    assert says(Copy("in", ((0, 5, 0),), None)) == ["a attends block 5, whose load is not done"]
    assert says(Copy("out", ((5, 0, 0),), None)) == [None]


def test_a_state_is_not_overwritten_while_a_copy_reads_it(after):
    s = after(ev.Arrive("a", (1, 2), 2), groups=("full", "recurrent"))
    r = s.requests["a"]
    s = evolve(s, requests={"a": evolve(r, place=Place.RUNNING, tables=((0,), (3,)))}, waiting=(), running=("a",))
    grant = Grant("a", 1, 0, ((), ()), None)
    reads = evolve(s, copies={1: Copy("out", ((3, 0, 1),), None)})
    assert list(swap.not_in_transit(reads, grant)) == ["the state of a is overwritten while a copy still reads it"]
    other = evolve(s, copies={1: Copy("out", ((3, 0, 0),), None)})
    assert list(swap.not_in_transit(other, grant)) == [None]
    fills = evolve(s, copies={1: Copy("in", ((0, 3, 1),), None)})
    assert list(swap.not_in_transit(fills, grant)) == ["a attends block 3, whose load is not done"]
    assert list(swap.not_in_transit(reads, ev.Load("a", 1, ((), ()), 0, 0))) == [None]


def test_what_a_copy_does_not_touch_is_free_to_use(at):
    s = at(running={"a": {"known": 4, "table": (5,)}}, page=1)

    def says(copy, e):
        return list(swap.not_in_transit(evolve(s, copies={1: copy}), e))

    out, fills = Copy("out", ((3, 0, 0),), None), Copy("in", ((0, 6, 0),), None)
    assert says(fills, Grant("a", 1, 0, ((3,),), 1)) == [None]  # a hit on another block than the one it fills
    assert says(Copy("in", ((0, 5, 0),), None), ev.Load("a", 1, ((4,),), 0, 0)) == [None]  # who loads attends nothing
    given = ["block 3 was given to a while a copy still uses it"]
    assert says(out, ev.Plan("a", 0, 0, 1, ((3,),))) == given
    assert says(out, Grant("a", 1, 0, ((3,),), None)) == given


def test_what_is_filled_is_somebodys_and_written_by_no_frame(after):
    s = after(ev.Arrive("a", (1, 2), 2), host=4)
    owned = evolve(s, requests={"a": evolve(s.requests["a"], tables=((1,),))})

    def says(dst, before=None, direction="in", s=owned):
        return list(swap.not_written_any_more(s, ev.CopyStart(1, direction, ((0, dst, 0),), before)))

    assert says(2) == ["block 2 is filled and nobody owns it"]
    assert says(2, before=3) == []
    assert says(2, direction="out") == []
    assert says(1) == [None]
    loose = evolve(owned, loose={(0, 1): 4})
    assert says(1, s=loose) == ["block 1 is filled while frame 4, which writes it, flies"]


def test_pages_come_back_group_by_group_and_into_the_table(after):
    s = after(ev.Arrive("a", (1, 2, 3, 4), 2), policy="vllm-v0-swap", groups=("full", "sliding"), host=4)
    r = evolve(s.requests["a"], place=Place.SWAPPED, computed=2, tables=((0,), (HOLE, 3)))
    s = evolve(s, requests={"a": r}, waiting=(), swapped=("a",))

    def says(*blocks):
        return list(swap.comes_back_as_it_was(s, ev.Swap("a", "in", blocks)))

    assert says((1, 0, 0)) == ["page 0 of a (group 0) comes back as something else"]  # and of group 1 nothing is said
    assert says((1, 4, 0)) == ["block 4 of group 0 is filled for a, which does not own it"]
    assert says((1, HOLE, 1)) == [f"block {HOLE} of group 1 is filled for a, which does not own it"]


def test_a_torn_state_came_back_up_to_nothing(at):
    s = at(running={"a": {"known": 4, "computed": 2, "table": (0, 1)}})
    s = evolve(s, plan=evolve(s.plan, restored=("a",), torn=("a",), granted={"a": (2, 1)}))
    assert list(swap.comes_back_whole(s, None)) == ["a goes on at 2; what came back holds its prefix up to 0"]


def test_the_host_is_empty_when_nobody_needs_it(after, close):
    s = after(ev.CopyStart(1, "out", ((0, 2, 0),)), ev.CopyDone(1, True), policy="vllm-v0-swap", host=4)
    leak = ["host blocks of group 0 are in use and nobody is swapped: leaked"]
    flight = {"a": Due(1, 1, 1)}

    def says(s=s, **plan):
        return list(swap.nobodys_copies_are_gone(evolve(s, plan=evolve(s.plan, **plan)), close()))

    assert says() == leak
    assert says(restored=("a",)) == []
    assert says(evolve(s, swapped=("a",))) == []
    assert says(evolve(s, copies={2: Copy("in", ((2, 0, 0),), None)})) == []
    before, this = evolve(s, frames={0: flight, 1: flight}), evolve(s, frames={1: flight})
    assert says(before, granted={"a": (0, 1)}) == []  # a frame of before may still read what it came from
    assert says(this) == []
    assert says(this, granted={"a": (0, 1)}) == leak


def test_who_computed_nothing_loses_nothing(after):
    s = after(ev.Arrive("a", (1, 2), 2), policy="vllm-v0-swap", host=4)
    r = evolve(s.requests["a"], place=Place.RUNNING)
    s = evolve(s, plan=evolve(s.plan, served=("b",)))

    def says(computed, served=("b",)):
        state = evolve(s, requests={"a": evolve(r, computed=computed)}, plan=evolve(s.plan, served=served))
        return list(swap.swaps_while_there_is_room(state, ev.Release("a", 0, ((),), None, 0)))

    assert says(0) == []
    assert says(2) == ["a lost 2 computed tokens while the host had room for them"]
    assert says(2, ()) == []


# -- victim ----------------------------------------------------------------------------------------------------------


def test_the_operators_causes_are_between_steps(at):
    def says(cause, plan, beneficiaries=()):
        s = at(running={"a": {}})
        s = evolve(s, plan=evolve(s.plan, **{"entered": (), **plan}))
        return list(victim.declared_cause(s, ev.Demote("a", 0, cause, beneficiaries)))

    assert says("reset", {}) == [None]
    assert says("reset", {"entered": ("a",)}) == ["a was preempted for 'reset' inside a step"]
    assert says("pause", {"admitted": ("a",)}) == ["a was preempted for 'pause' inside a step"]
    assert says("growth", {}, ("b",)) == [None]
    assert says("growth", {}) == ["a was preempted for growth of nobody"]
    s = at(running={"a": {}})
    fair = evolve(s, policy=evolve(s.policy, causes=s.policy.causes | {"starvation"}))
    assert list(victim.declared_cause(fair, ev.Demote("a", 0, "starvation"))) == [None]


def test_pressure_is_told_of_those_who_run(at):
    s = at(running={"a": {"known": 3, "table": (0,), "computed": 2}}, waiting={"w": {"known": 3}}, blocks=1)

    def says(cause, *who):
        return list(victim.needed(s, ev.Demote("a", 0, cause, who)))

    assert says("growth", "a") == [None]
    assert says("starvation", "a") == []
    assert says("growth", "w") == []
    assert says("growth", "gone") == []
    assert says("growth") == []


def test_what_a_release_keeps(at):
    s = at(running={"a": {"known": 4, "computed": 3}})
    release = ev.Release("a", 0, None, None, 0, 0)

    def says(policy=s.policy, **fields):
        return list(victim.computed_is_zero(evolve(s, policy=policy), evolve(release, **fields)))

    assert says() == [None, None]
    assert says(computed=3) == ["a was released and keeps 3 computed tokens", None]
    assert says(computed=3, until=2) == [None]
    assert says(computed=None) == [None]
    assert says(drafts=None) == [None]
    assert says(drafts=1) == [None, "a was released and keeps 1 drafts"]
    assert says(kept=3, computed=3) == ["a keeps 3 of 3 computed tokens", None, None]
    swaps = evolve(s.policy, memory=Memory.SWAP)
    assert says(swaps, kept=3, computed=3) == [None, None, None]
    assert says(swaps, kept=2, computed=2) == ["a keeps 2 of 3 computed tokens", None, None]


def test_nothing_unplanned_goes_back(at):
    s = at(running={"a": {}}, plan={"pending": {"a": (0, 2)}})
    assert list(victim.all_of_it_back(s, ev.Unplan("a", 0, 2))) == [None]
    assert list(victim.all_of_it_back(s, ev.Unplan("b", 0, 1))) == ["1 tokens went back for b, which had 0"]
    assert list(victim.all_of_it_back(s, ev.Unplan("b", 0, 0))) == [None]
