"""What a slot was written for: prefixes, and tokens that still fly."""

from __future__ import annotations

from preempt_spec.events import Group
from preempt_spec.memory import Ahead, Block, Memory, is_page, resolve

A5 = Ahead("a", 5)


def test_what_was_written_ahead_is_known_when_its_token_is():
    tokens = (1, 2, 3, 4, 9)
    assert resolve((A5,), "a", "s", tokens, None) == (("s", tokens),)
    assert resolve((A5,), "a", "s", tokens[:4], None) == (A5,)  # the token still flies
    assert resolve((A5, Ahead("a", 4)), "a", "", tokens[:4], None) == (A5, ("", tokens[:4]))


def test_what_was_written_ahead_is_lost_when_its_token_never_comes():
    assert resolve((Ahead("a", 4), A5), "a", "", (1, 2, 3, 4), 4) == (("", (1, 2, 3, 4)), None)
    assert resolve((A5,), "a", "", (1, 2, 3, 4, 9, 9), 4) == (None,)  # another token stands there now


def test_what_others_wrote_stays():
    slots = (Ahead("b", 5), ("", (1,)), None)
    assert resolve(slots, "a", "", (1, 2, 3, 4, 5), 0) == slots


def test_a_page_with_a_token_in_flight_is_no_page_yet():
    assert not is_page(Block((("", (1,)), Ahead("a", 2))), ("", (1, 2)))
    assert not is_page(Block((("", (1,)), Ahead("a", 2))), Ahead("a", 2))


def test_a_recurrent_group_has_one_slot_per_block():
    state = Memory(Group("state", "recurrent", 1), 4, 0)
    pages = Memory(Group("kv", "full", 4), 4, 0)
    assert (state.slots, pages.slots) == (1, 4)
    assert pages.block(3).slots == (None,) * 4  # never touched
    assert state.having({2: Block((A5,))}).block(2).slots == (A5,)


def test_only_blocks_with_something_in_flight_change():
    m = Memory(Group("kv", "full", 1), 4, 0, {0: Block((A5,), pins=1), 1: Block((("", (1,)),))})
    assert m.resolved("b", "", (1,), None) is m
    now = m.resolved("a", "", (1, 2, 3, 4, 5), None)
    assert now.block(0) == Block((("", (1, 2, 3, 4, 5)),), pins=1)
    assert now.block(1) is m.block(1)
    assert now.without((0,)).blocks == {1: m.block(1)}
