"""vLLM's block order, by itself."""

from __future__ import annotations

from preempt_oracle.lockstep.blocks import Blocks
from preempt_spec.memory import Slot

PAGE: Slot = ("", (1, 2))


def test_all_but_the_reserved_are_free_in_order():
    assert Blocks(1, 4).free == [1, 2, 3]


def test_what_is_findable_goes_to_the_end_and_the_rest_to_the_front():
    pool = Blocks(1, 7)
    taken, pool.free = pool.free[:4], pool.free[4:]
    pool.register(2, PAGE)
    pool.register(4, ("", (3, 4)))
    pool.give_back(reversed(taken))
    assert pool.free == [3, 1, 5, 6, 4, 2]


def test_of_several_with_the_same_page_the_oldest_is_hit():
    pool = Blocks(1, 4)
    for b in (3, 1, 2):
        pool.register(b, PAGE)
    assert pool.find(PAGE) == 3
    pool.forget(3)
    assert pool.find(PAGE) == 1
    pool.forget(1)
    pool.register(3, PAGE)
    assert pool.find(PAGE) == 2
    for b in (2, 3, 3):
        pool.forget(b)
    assert pool.find(PAGE) is None
    assert not pool.is_registered(3)


def test_a_hit_leaves_the_queue_wherever_it_stands():
    pool = Blocks(1, 5)
    pool.touch((3, 3, 0))
    assert pool.free == [1, 2, 4]
