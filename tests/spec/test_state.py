"""What the shadow state says is derived from tables and slots alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from preempt_spec.events import Group
from preempt_spec.memory import Block, Memory, is_page
from preempt_spec.state import State, needed_pages
from preempt_spec.view import HOLE, with_holes

At = Callable[..., State]


def written(s: State, request: str, upto: int) -> State:
    """The state with the first tokens of a request written into its table."""
    r = s.request(request)
    m = s.memory[0]
    for p in range(upto):
        i, slot = divmod(p, m.page)
        block = m.block(r.tables[0][i])
        slots = (*block.slots[:slot], r.prefix(p + 1), *block.slots[slot + 1 :])
        m = m.having({r.tables[0][i]: evolve(block, slots=slots)})
    return evolve(s, memory=(m,))


def test_free_is_what_is_not_reserved_owned_pinned_or_fenced(at: At):
    s = at(running={"a": {"table": (1, 2)}, "b": {"table": (2, 3)}}, blocks=8, reserved=1)
    m = s.memory[0].having({4: Block((None, None), pins=1), 5: Block((None, None), fence=0)})
    s = evolve(s, memory=(m,))
    assert s.total(0) == 8
    assert s.extent(0) == 9
    assert s.free_ids(0) == {6, 7, 8}
    assert s.free(0) == 3
    assert [b for b in range(9) if s.is_free(0, b)] == [6, 7, 8]
    owners = ["the engine (reserved)", "a", "a", "b", "a pin", "a fence", "nobody", "nobody", "nobody"]
    assert [s.owner(0, b) for b in range(9)] == owners
    assert s.owner(0, 9) == "the engine (reserved)"


def test_shared_counts_tables_and_pins(at: At):
    s = at(running={"a": {"table": (1, 2)}, "b": {"table": (2, 3)}})
    m = s.memory[0].having({2: Block((None, None), pins=1), 3: Block((None, None), pins=1)})
    assert evolve(s, memory=(m,)).shared(0) == {2: 3, 3: 2}


def test_covered_stops_at_the_first_slot_with_other_content(at: At):
    s = at(running={"a": {"known": 5, "table": (0, 1, 2)}})
    assert s.covered("a", 0, 5) == 0
    s = written(s, "a", 5)
    assert s.covered("a", 0, 5) == 5
    assert s.covered("a", 0, 3) == 3
    other = at(running={"a": {"known": 5, "table": (0, 1, 2)}, "b": {"tokens": (9, 9), "known": 2, "table": (1,)}})
    other = evolve(other, memory=s.memory)
    assert written(other, "b", 1).covered("a", 0, 5) == 2  # b wrote over its third slot


def test_covered_ends_with_the_table(at: At):
    s = at(running={"a": {"known": 4, "table": (0, 1)}})
    s = written(s, "a", 4)
    short = evolve(s, requests={"a": evolve(s.request("a"), tables=((0,),))})
    assert short.covered("a", 0, 4) == 2


@pytest.mark.parametrize(
    ("tokens", "salt", "hit"),
    [
        ((0, 1, 2, 3, 4), "", 4),  # two whole pages of a
        ((0, 1, 2, 9), "", 2),
        ((1, 1, 2, 3), "", 0),
        ((0, 1, 2, 3), "s", 0),  # another tenant's
        ((2, 3, 0, 1), "", 0),  # the same pages at other positions
        ((0,), "", 0),
    ],
)
def test_best_hit(at: At, tokens: tuple[int, ...], salt: str, hit: int):
    s = at(
        running={"a": {"known": 5, "table": (0, 1, 2)}},
        waiting={"x": {"tokens": tokens, "known": len(tokens), "salt": salt}},
    )
    s = written(s, "a", 5)
    assert s.best_hit("x") == hit
    assert s.resident("x", hit, ((),))
    assert not s.resident("x", hit + 1, ((),))


def test_a_page_that_this_frame_writes_is_resident(at: At):
    s = at(
        running={"a": {"known": 4, "table": (0, 1)}},
        waiting={"x": {"known": 4}},
        plan={"granted": {"a": (0, 4)}},
    )
    assert s.best_hit("x") == 4
    assert evolve(s, plan=evolve(s.plan, granted={"a": (0, 3)})).best_hit("x") == 2
    assert evolve(s, plan=evolve(s.plan, granted={}, pending={"a": (0, 4)})).best_hit("x") == 4


def test_a_block_is_a_page_if_every_slot_holds_its_part():
    whole = Block((("", (1,)), ("", (1, 2))))
    assert is_page(whole, ("", (1, 2)))
    assert not is_page(whole, ("s", (1, 2)))
    assert not is_page(whole, ("", (2, 2)))
    assert not is_page(whole, None)
    assert not is_page(Block((None, ("", (1, 2)))), ("", (1, 2)))


def test_holds_page_compares_with_what_was_published(at: At):
    s = written(at(running={"a": {"known": 4, "table": (0, 1)}}), "a", 4)
    m = s.memory[0]
    m = m.having({0: evolve(m.block(0), published=("", (0, 1))), 1: evolve(m.block(1), published=("", (0, 1)))})
    s = evolve(s, memory=(m,))
    assert s.holds_page(0, 0)
    assert not s.holds_page(0, 1)
    assert not s.holds_page(0, 2)  # never published


SLIDING = Group("window", "sliding", 2, window=3)
STATE = Group("state", "recurrent", 1)


def test_what_a_window_has_passed_is_not_looked_at(at: At):
    s = written(at(running={"a": {"known": 6, "table": (0, 1, 2)}}), "a", 6)
    s = evolve(s, memory=(evolve(s.memory[0], group=SLIDING),))
    holes = evolve(s, requests={"a": evolve(s.request("a"), tables=((HOLE, 1, 2),))})
    assert [holes.covered("a", start, 6) for start in (3, 4, 5)] == [1, 6, 6]  # from 3 on token 1 is attended
    early = evolve(s, requests={"a": evolve(s.request("a"), tables=((HOLE, HOLE, 2),))})
    assert early.covered("a", 5, 6) == 3


def test_a_state_is_that_of_one_length(at: At):
    s = at(running={"a": {"known": 4, "table": (2,)}})
    held = Block((("", (0, 1, 2)),))
    s = evolve(s, memory=(Memory(STATE, 8, 0, {2: held}),))
    assert [s.carries("a", n) for n in (0, 2, 3, 4)] == [True, False, True, False]
    assert s.covered("a", 3, 4) == 4  # pages have nothing to say of it


@pytest.mark.parametrize(
    ("group", "upto", "pages"),
    [
        (Group("f", "full", 2), 0, []),
        (Group("f", "full", 2), 5, [0, 1, 2]),
        (SLIDING, 2, [0]),
        (SLIDING, 4, [1]),  # tokens 2 and 3 are attended from 4 on
        (SLIDING, 5, [1, 2]),
        (STATE, 0, []),
        (STATE, 5, [0]),
    ],
)
def test_pages_needed_to_go_on(group: Group, upto: int, pages: list[int]):
    assert list(needed_pages(group, upto)) == pages


def test_the_engines_null_block_is_a_hole_in_a_window():
    assert with_holes(SLIDING, 1, (0, 3, 4)) == (HOLE, 3, 4)
    assert with_holes(Group("f", "full", 2), 1, (0, 3)) == (0, 3)


def test_a_fingerprint_forgets_block_ids_and_nothing_else(at: At):
    s = at(running={"a": {"known": 3, "computed": 2, "table": (0,)}}, waiting={"w": {}})
    moved = evolve(s, requests={**s.requests, "a": evolve(s.request("a"), tables=((5,),))})
    assert s.fingerprint() == moved.fingerprint()
    for other in (
        evolve(s, waiting=(), running=("a", "w")),
        evolve(s, requests={**s.requests, "a": evolve(s.request("a"), computed=1)}),
        evolve(s, requests={**s.requests, "a": evolve(s.request("a"), tables=((0, 1),))}),
        evolve(s, requests={**s.requests, "a": evolve(s.request("a"), placeholders=1)}),
    ):
        assert s.fingerprint() != other.fingerprint()
