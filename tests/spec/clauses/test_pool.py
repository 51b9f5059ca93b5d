"""pool/*, clause by clause: what each says of states and events written down by hand, and in which words."""

from __future__ import annotations

from attrs import evolve

from preempt_spec import events as ev
from preempt_spec.micro import Close, Grant
from preempt_spec.policies.policy import Release as When
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.rules import pool
from preempt_spec.state import initial
from preempt_spec.system import apply
from preempt_spec.view import Copy, Place


def close(**observed):
    return Close(ev.Step(0, (), (), observed=ev.Observed(**observed)), ())


def fenced(s, group, block, until):
    memory = list(s.memory)
    m = memory[group]
    memory[group] = evolve(m, blocks={**m.blocks, block: evolve(m.block(block), fence=until)})
    return evolve(s, memory=tuple(memory))


def test_more_blocks_than_are_free(at):
    s = at(running={"a": {"known": 2, "table": (0,)}}, blocks=3)
    assert [*pool.enough_were_free(s, Grant("a", 1, 2, ((1, 2),), None))] == [None]
    assert [*pool.enough_were_free(s, Grant("a", 1, 2, ((1, 2, 2),), None))] == ["3 blocks were given to a with 2 free"]
    assert [*pool.enough_were_free(s, Grant("a", 1, 2, ((),), None))] == []


def test_a_hit_is_no_fresh_block(at):
    s = at(running={"a": {"known": 4, "table": (0, 1)}}, waiting={"b": {"known": 4}}, blocks=3)
    assert [*pool.enough_were_free(s, Grant("b", 2, 2, ((0, 2),), 2))] == [None]
    assert [*pool.fresh_blocks_were_free(s, Grant("b", 2, 2, ((0, 2),), 2))] == [None]


def test_one_block_twice_in_a_table(at):
    s = at(running={"a": {"known": 2}})
    twice = [*pool.fresh_blocks_were_free(s, Grant("a", 2, 0, ((3, 3),), None))]
    assert twice == ["a block joins the table of a twice: [3, 3]"]
    held = at(running={"a": {"known": 2}, "b": {"table": (3,)}})
    taken = [*pool.fresh_blocks_were_free(held, Grant("a", 2, 0, ((3,),), None))]
    assert taken == ["block 3 was given to a while b holds it"]


def test_a_hit_block_that_is_fresh_again(at):
    s = at(running={"a": {"known": 2, "table": (0,)}}, waiting={"b": {"known": 4}})
    twice = [*pool.fresh_blocks_were_free(s, Grant("b", 2, 2, ((1, 1),), 2))]
    assert twice == ["a block joins the table of b twice: [1, 1]"]


def test_free_counts_in_words(at):
    s = at(running={"a": {"known": 2, "table": (0,)}}, blocks=4)
    assert [*pool.free_count_agrees(s, close(free=(3,)))] == [None]
    assert [*pool.free_count_agrees(s, close(free=(2,)))] == [
        "the engine counts 2 free blocks, its tables leave 3: 1 leaked"
    ]
    assert [*pool.free_count_agrees(s, close(free=(5,)))] == [
        "the engine counts 5 free blocks, its tables leave 3: 2 credited twice"
    ]
    assert [*pool.free_count_agrees(s, close())] == []


def test_references_in_words(at):
    s = at(running={"a": {"known": 2, "table": (0, 1)}, "b": {"known": 2, "table": (0, 1)}})
    right = (ev.Refs(0, 0, 2), ev.Refs(0, 1, 2))
    assert [*pool.references_agree(s, close(refs=right))] == [None]
    assert [*pool.references_agree(s, close(refs=right[1:]))] == [
        "block 0: the engine counts 0 or 1 references, tables and pins make 2"
    ]
    assert [*pool.references_agree(s, close(refs=()))] == [
        "block 0: the engine counts 0 or 1 references, tables and pins make 2"
    ]
    assert [*pool.references_agree(s, close(refs=(*right, ev.Refs(0, 5, 3))))] == [
        "block 5: the engine counts 3 references, tables and pins make 0 or 1"
    ]
    assert [*pool.references_agree(s, close())] == []


def test_references_are_counted_group_by_group(after):
    s = after(groups=("full", "full"))
    told = [*pool.references_agree(s, close(refs=(ev.Refs(1, 2, 2),)))]
    assert told == [None, "block 2: the engine counts 2 references, tables and pins make 0 or 1"]


def test_a_deferred_free_may_keep_a_reference_and_lose_none(at):
    s = fenced(at(running={"a": {"table": (0,)}, "b": {"table": (0,)}}), 0, 0, 7)
    shared = s.shared(0)[0]
    assert [*pool.references_agree(s, close(refs=(ev.Refs(0, 0, shared + 1),)))] == [None]
    assert [*pool.references_agree(s, close(refs=(ev.Refs(0, 0, shared),)))] == [None]
    assert [*pool.references_agree(s, close(refs=()))] != [None]


def test_a_deferred_free_of_a_block_that_nobody_shares(at):
    s = fenced(at(running={"a": {"table": (0,)}}), 0, 0, 7)
    assert [*pool.references_agree(s, close(refs=(ev.Refs(0, 0, 2),)))] == [None]


def test_free_list_in_words(at):
    s = at(running={"a": {"known": 2, "table": (0,)}}, blocks=4)
    assert [*pool.free_list_agrees(s, close(free_ids=((1, 2, 3),)))] == [None]
    assert [*pool.free_list_agrees(s, close(free_ids=((1, 2, 3, 2),)))] == ["block 2 stands 2 times in the free list"]
    assert [*pool.free_list_agrees(s, close(free_ids=((0, 1, 2, 3),)))] == [
        "block 0 is in the free list while a holds it"
    ]
    assert [*pool.free_list_agrees(s, close(free_ids=((1, 3),)))] == [
        "block 2 is held by nobody and missing from the free list"
    ]
    assert [*pool.free_list_agrees(s, close())] == []


def test_each_group_has_a_free_list_of_its_own(after):
    s = after(groups=("full", "full"), blocks=2)
    assert [*pool.free_list_agrees(s, close(free_ids=((0, 0), (0, 1))))] == [
        "block 0 stands 2 times in the free list",
        None,
    ]


def test_what_was_taken_back_in_words(at):
    s = at(running={"a": {"known": 6, "table": (4, 5, 6)}})

    def says(*blocks):
        [message] = pool.released_once(s, ev.Release("a", 0, (blocks,), None, 0, 0))
        return message

    assert says(4, 5, 6) is None
    assert says(4) is None
    assert says(4, 7) == "block 7 was taken back from a, which does not own it (any more)"
    assert says(4, 6, 5, 6) == "block 6 was taken back from a, which does not own it (any more)"


def placed(s, place, **fields):
    r = s.requests["a"]
    s = evolve(s, running=(), requests={"a": evolve(r, place=place, **fields)})
    return evolve(s, waiting=("a",) if place is Place.WAITING else ())


def test_a_release_follows_its_own_demotion(at):
    release = ev.Release("a", 0, None, None, 0, 0)
    s = at(running={"a": {"known": 2, "table": (0,), "computed": 2}})

    def says(s):
        [message] = pool.one_release_each(s, release)
        return message

    assert says(s) == "a was released while running, without being preempted"
    assert says(placed(s, Place.LIMBO)) is None
    assert says(placed(s, Place.LIMBO, computed=0)) is None  # a table is something to give back
    assert says(placed(s, Place.LIMBO, tables=((),))) is None  # so is a computed token
    assert says(placed(s, Place.LIMBO, computed=0, tables=((0,), ()))) is None  # of any group
    assert says(placed(s, Place.LIMBO, computed=0, tables=((),))) == "a was released a second time"
    assert says(placed(s, Place.WAITING, preempted=True)) == "a was released while waiting, without being preempted"
    lazy = evolve(s, policy=evolve(s.policy, release=When.LAZY))
    assert says(placed(lazy, Place.WAITING, preempted=True)) is None
    assert says(placed(lazy, Place.WAITING)) == "a was released while waiting, without being preempted"
    assert says(placed(lazy, Place.RUNNING)) == "a was released while running, without being preempted"


def test_a_load_that_failed_gives_back_what_nothing_fills(at):
    s = placed(at(running={"a": {"known": 4, "table": (0, 1), "computed": 4}}), Place.LOADING)
    release = ev.Release("a", 0, None, None, 0, 0)
    assert [*pool.one_release_each(s, release)] == [None]
    copying = evolve(s, copies={7: Copy("in", ((0, 1, 0),), None)})
    assert [*pool.one_release_each(copying, release)] == ["a was released while block 1 is still filled"]


def test_who_waits_holds_what_it_had(at):
    def says(row, demoted=()):
        s = at(waiting={"a": {"known": 4, **row}}, plan={"demoted": demoted})
        return [*pool.waiting_holds_nothing(s, close(held=(ev.Held("a", 2, 1),)))]

    message = "a waits and holds 2 blocks and 1 computed tokens"
    assert says({}) == [message]
    assert says({"computed": 1}) == []
    assert says({"table": (0, 1)}) == []
    assert says({"table": (0, 1), "computed": 1}) == []
    assert says({}, demoted=("a",)) == []
    half = at(waiting={"a": {"known": 4}})
    half = evolve(half, requests={"a": evolve(half.requests["a"], tables=((0,), ()))})
    assert [*pool.waiting_holds_nothing(half, close(held=(ev.Held("a", 2, 1),)))] == []
    s = at(waiting={"a": {"computed": 1}, "b": {}})
    assert [*pool.waiting_holds_nothing(s, close(held=()))] == [None, None]
    assert [*pool.waiting_holds_nothing(s, close())] == []


def test_a_load_reaches_as_far_as_its_table_and_no_less_than_its_hit(at):
    s = at(waiting={"a": {"known": 8}})

    def says(computed, hit, *blocks):
        [message] = pool.load_fits(s, ev.Load("a", computed, (blocks,), 0, hit))
        return message

    assert says(4, 2, 0, 1) is None
    assert says(4, 4, 0, 1) is None
    assert says(4, 2, 0) == "a loads up to token 4, 2 hit, and owns room for 2"
    assert says(2, 4, 0, 1) == "a loads up to token 2, 4 hit, and owns room for 4"


def test_what_is_filled_is_not_missing_from_a_release(at):
    s = at(running={"a": {"known": 4, "table": (0, 1)}})
    copying = evolve(s, copies={7: Copy("in", ((0, 1, 0),), None)})
    release = ev.Release("a", 0, ((0,),), None, 0, 0)
    assert [*pool.release_is_whole(copying, release)] == [None]
    assert [*pool.release_is_whole(s, release)] == ["block 1 of a was not taken back: leaked"]


def test_a_reference_that_is_gone_before_its_fence(at):
    s = fenced(at(running={"a": {"table": (0,)}}), 0, 5, 7)
    assert [*pool.references_agree(s, close(refs=(ev.Refs(0, 5, 0),)))] == [None]


def test_the_null_block_of_a_window_is_no_block():
    limits = ev.Limits(max_running=4, budget=16, max_length=12)
    pools = (ev.Pool(ev.DEVICE, 0, 6, 1),)
    head = ev.Header("test", "", "vllm-fcfs", limits, (ev.Group("s", "sliding", 2, 3),), pools)
    s = apply(initial(head, PROFILES["vllm-fcfs"].contract), ev.Arrive("a", (1, 2, 3, 4, 5, 6, 7, 8), 2))
    assert [*pool.fresh_blocks_were_free(s, Grant("a", 8, 0, ((0, 0, 3, 4),), None))] == [None]
    assert [*pool.enough_were_free(s, Grant("a", 8, 0, ((0, 0, 3, 4),), None))] == [None]
