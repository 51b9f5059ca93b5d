"""What moves between tiers: swaps and copies, ordered and not, in any order, failed or never done."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from preempt_spec import events as ev
from preempt_spec.memory import Ahead
from preempt_spec.micro import Malformed
from preempt_spec.state import State
from preempt_spec.system import apply, check
from preempt_spec.view import Place

After = Callable[..., State]

ARRIVE = ev.Arrive("a", (1, 2, 3, 4), 4)
PREFILL = ev.Step(0, ("a",), (4,), (0,), (ev.Delta("a", 0, (0, 1)),))
DONE = ev.Deliver(0, ("a",), ((5,),))
FIRST, WHOLE = (("", (1,)), ("", (1, 2))), (("", (1, 2, 3)), ("", (1, 2, 3, 4)))
LOST = (None, None)


def out(copy: int = 0, before: int | None = None) -> ev.CopyStart:
    """Both pages of a go to host blocks 2 and 3."""
    return ev.CopyStart(copy, "out", ((0, 2, 0), (1, 3, 0)), before)


def host(s: State, *blocks: int) -> list[object]:
    """What host blocks hold."""
    return [s.host[0].block(b).slots for b in blocks]


def device(s: State, *blocks: int) -> list[object]:
    """What device blocks hold."""
    return [s.memory[0].block(b).slots for b in blocks]


SWAP_OUT = (
    ev.Demote("a", 0, "growth", ("a",)),
    ev.Swap("a", "out", ((0, 2, 0), (1, 3, 0))),
    ev.Release("a", kept=4),
    ev.Requeue("a", queue="swapped", index=0),
)


def test_a_victim_is_swapped_and_comes_back_elsewhere(after: After):
    s = after(ARRIVE, PREFILL, DONE, ev.Step(1, acts=SWAP_OUT), host=4, policy="vllm-v0-swap")
    a = s.request("a")
    assert (a.place, a.computed, a.tables, s.swapped) == (Place.SWAPPED, 4, ((),), ("a",))
    assert host(s, 2, 3) == [FIRST, WHOLE]
    assert (s.host_free(0), s.host_used(0, 2), s.host_used(0, 0)) == (2, True, False)
    assert s.hosted("a", 0, 4)
    back = (ev.Swap("a", "in", ((2, 5, 0), (3, 6, 0)), 1), ev.Evict((2, 3), 1))
    s = apply(s, ev.Step(2, ("a",), (1,), (4,), (ev.Delta("a", 0, (5, 6, 7)),), acts=back))
    a = s.request("a")
    assert (a.place, a.computed, a.tables, s.swapped) == (Place.RUNNING, 5, ((5, 6, 7),), ())
    assert device(s, 5, 6) == [FIRST, WHOLE]
    assert s.host_free(0) == 4
    assert s.covered("a", 4, 5) == 5


def test_what_a_swap_brings_is_there_when_the_frame_runs(after: After):
    """And not before: its block may be somebody's source until then."""
    s = after(ARRIVE, PREFILL, DONE, ev.Step(1, acts=SWAP_OUT), host=4, policy="vllm-v0-swap")
    exchange = (ev.Swap("a", "in", ((2, 1, 0), (3, 0, 0)), 1),)
    s = apply(s, ev.Step(2, ("a",), (1,), (4,), (ev.Delta("a", 0, (1, 0, 7)),), acts=exchange))
    assert device(s, 1, 0) == [FIRST, WHOLE]


def test_a_copy_carries_what_its_sources_held_at_its_start(after: After):
    s = after(ARRIVE, PREFILL, DONE, out(), host=4)
    assert s.host_free(0) == 2
    free = apply(s, ev.Step(1, acts=(ev.Demote("a", 0, "growth", ("a",)), ev.Release("a"), ev.Requeue("a", index=0))))
    other = ev.Step(2, ("b",), (2,), (0,), (ev.Delta("b", 0, (0,)),))
    s = apply(apply(apply(free, ev.Arrive("b", (9, 9), 1)), other), ev.CopyDone(0))
    assert host(s, 2, 3) == [FIRST, WHOLE]
    assert device(s, 0) == [(("", (9,)), ("", (9, 9)))]


def test_of_a_failed_copy_nothing_can_be_told(after: After):
    s = after(ARRIVE, PREFILL, DONE, out(), ev.CopyDone(0, ok=False), host=4)
    assert host(s, 2, 3) == [LOST, LOST]
    assert s.host_free(0) == 2  # its blocks are in use until they are given up
    assert not s.hosted("a", 0, 4)
    assert apply(s, ev.Step(1, acts=(ev.Evict((2, 3)),))).host_free(0) == 4


def test_a_copy_does_not_bring_back_a_block_that_was_given_up(after: After):
    s = after(ARRIVE, PREFILL, DONE, out(), ev.Step(1, acts=(ev.Evict((2,)),)), ev.CopyDone(0), host=4)
    assert not s.host_used(0, 2)
    assert host(s, 3) == [WHOLE]


def test_a_copy_ordered_before_a_frame_is_done_with_it(after: After):
    s = after(ARRIVE, PREFILL, DONE, out(before=1), host=4)
    assert s.copies.keys() == {0}
    s = apply(s, ev.Step(1, ("a",), (1,), (4,), (ev.Delta("a", 0, (2,)),)))
    assert s.copies == {}
    assert host(s, 2, 3) == [FIRST, WHOLE]
    with pytest.raises(Malformed, match="0 is not in flight"):
        apply(s, ev.CopyDone(0))


def test_it_waits_for_that_frame(after: After):
    s = after(ARRIVE, PREFILL, DONE, out(before=2), ev.Step(1), host=4)
    assert s.copies.keys() == {0}
    assert apply(s, ev.Step(2)).copies == {}


def stored(after: After, *events: ev.Event) -> State:
    """Both pages of a are in host blocks 2 and 3; a was preempted and its device blocks were written anew."""
    free = ev.Step(1, acts=(ev.Demote("a", 0, "growth", ("a",)), ev.Release("a"), ev.Requeue("a", index=0)))
    b = (ev.Arrive("b", (9, 9, 9, 9), 1), ev.Step(2, ("b",), (4,), (0,), (ev.Delta("b", 0, (0, 1)),)), ev.Abort("b"))
    return after(ARRIVE, PREFILL, DONE, out(), ev.CopyDone(0), free, *b, *events, host=4, caching=True)


LOAD = ev.Step(3, acts=(ev.Load("a", 4, ((5, 6),)),))


def test_who_loads_is_in_no_queue_and_counts_what_will_be_there(after: After):
    s = stored(after, LOAD)
    a = s.request("a")
    assert (a.place, a.computed, a.tables, s.waiting) == (Place.LOADING, 4, ((5, 6),), ())
    assert s.covered("a", 4, 4) == 0


def test_copies_may_end_in_any_order(after: After):
    one, two = ev.CopyStart(7, "in", ((2, 5, 0),)), ev.CopyStart(8, "in", ((3, 6, 0),))
    s = stored(after, LOAD, one, two)
    assert [s.arriving(0, b) for b in (4, 5, 6)] == [False, True, True]
    for first, second in ((7, 8), (8, 7)):
        half = apply(s, ev.CopyDone(first))
        assert half.covered("a", 4, 4) == (2 if first == 7 else 0)
        assert apply(half, ev.CopyDone(second)).covered("a", 4, 4) == 4


def test_a_failed_load_brings_nothing(after: After):
    s = stored(after, LOAD, ev.CopyStart(7, "in", ((2, 5, 0), (3, 6, 0))), ev.CopyDone(7, ok=False))
    assert device(s, 5, 6) == [LOST, LOST]
    assert s.covered("a", 4, 4) == 0


def test_what_a_copy_fills_is_not_free_though_its_owner_is_gone(after: After):
    s = stored(after, LOAD, ev.CopyStart(7, "in", ((2, 5, 0), (3, 6, 0))), ev.Abort("a"))
    assert (s.free(0), s.is_free(0, 5), s.owner(0, 5)) == (6, False, "a copy")
    s = apply(s, ev.CopyDone(7))
    assert (s.free(0), s.is_free(0, 5)) == (8, True)


def test_what_an_abort_pins_is_not_free_before_it_is_unpinned(after: After):
    loads = (LOAD, ev.CopyStart(7, "in", ((2, 5, 0), (3, 6, 0))))
    s = stored(after, *loads, ev.Abort("a", blocks=((),), acts=(ev.Pin((5, 6)),)))
    assert [s.pinned(0, b) for b in (4, 5, 6)] == [0, 1, 1]
    s = apply(s, ev.CopyDone(7))
    assert (s.free(0), s.is_free(0, 5), s.owner(0, 5)) == (6, False, "a pin")
    s = apply(s, ev.Step(4, acts=(ev.Unpin((5, 6)),)))
    assert (s.free(0), s.is_free(0, 5), s.pinned(0, 5)) == (8, True, 0)


@pytest.mark.parametrize(("acts", "right"), [((ev.Pin((5, 6)),), True), ((ev.Pin((5,)),), False), ((), False)])
def test_who_loads_may_keep_what_it_pins_and_nothing_else(after: After, acts: tuple[ev.Act, ...], right: bool):
    """Its load is over and not heard of yet, so that nothing is filled any more."""
    s = stored(after, LOAD, ev.CopyStart(7, "in", ((2, 5, 0), (3, 6, 0))), ev.CopyDone(7))
    found = check(s, ev.Abort("a", blocks=((),), acts=acts), frozenset({"release"}))
    assert [v.rule for v in found] == ([] if right else ["edge/abort"])


def test_who_waits_may_not_keep_what_it_pins(after: After):
    s = after(ARRIVE, PREFILL, DONE)
    found = check(s, ev.Abort("a", blocks=((),), acts=(ev.Pin((0, 1)),)), frozenset({"release"}))
    assert [v.rule for v in found] == ["edge/abort"]


def test_whose_load_failed_may_load_again_once_it_holds_nothing(after: After):
    again = ev.Step(4, acts=(ev.Load("a", 4, ((4, 3),)),))
    failed = (LOAD, ev.CopyStart(7, "in", ((2, 5, 0), (3, 6, 0))), ev.CopyDone(7, ok=False))
    assert [v.rule for v in check(stored(after, *failed), again, frozenset({"demote"}))] == ["queue/one-place"]
    emptied = evolve(again, acts=(ev.Release("a"), *again.acts))
    assert not check(stored(after, *failed), emptied, frozenset({"demote"}))
    assert apply(stored(after, *failed), emptied).request("a").tables == ((4, 3),)


def test_who_has_loaded_goes_on_by_a_grant(after: After):
    s = stored(after, LOAD, ev.CopyStart(7, "in", ((2, 5, 0), (3, 6, 0))), ev.CopyDone(7))
    s = apply(s, ev.Step(4, ("a",), (1,), (4,), (ev.Delta("a", 0, (7,)),)))
    assert (s.request("a").place, s.request("a").computed, s.running) == (Place.RUNNING, 5, ("a",))


def test_the_host_learns_what_was_copied_while_its_token_flew(after: After):
    """A page whose last token is still in flight goes out; when that token comes the host knows what it has."""
    s = after(ev.Arrive("a", (1, 2, 3), 4), ev.Step(0, ("a",), (3,), (0,), (ev.Delta("a", 0, (0, 1)),)), host=4)
    s = apply(apply(s, ev.Step(1, ("a",), (1,), (3,))), out())
    assert host(s, 3) == [(("", (1, 2, 3)), Ahead("a", 4))]
    told = apply(s, ev.Deliver(0, ("a",), ((4,),)))
    assert host(told, 3) == [WHOLE]
    assert host(apply(told, ev.CopyDone(0)), 3) == [WHOLE]
    late = apply(apply(s, ev.CopyDone(0)), ev.Deliver(0, ("a",), ((4,),)))
    assert host(late, 3) == [WHOLE]
    gone = apply(apply(s, ev.Abort("a")), ev.CopyDone(0))
    assert host(gone, 3) == [(("", (1, 2, 3)), None)]  # that token will never be known


GROUPS = ("full", "sliding", "recurrent")


def test_all_components_go_out_and_come_back(after: After):
    """Four tokens, pages of 2, windows of 3: two pages, the one that the window still needs, and one state."""
    deltas = (ev.Delta("a", 0, (0, 1)), ev.Delta("a", 1, (0, 1)), ev.Delta("a", 2, (0,)))
    pairs = ((0, 0, 0), (1, 1, 0), (1, 1, 1), (0, 0, 2))
    acts = (SWAP_OUT[0], ev.Swap("a", "out", pairs), *SWAP_OUT[2:])
    start = (ARRIVE, ev.Step(0, ("a",), (4,), (0,), deltas), DONE)
    s = after(*start, ev.Step(1, acts=acts), groups=GROUPS, host=4, policy="vllm-v0-swap")
    assert s.hosted("a", 0, 4)
    assert s.host[2].block(0).slots == (("", (1, 2, 3, 4)),)
    for missing in range(len(pairs)):
        some = (SWAP_OUT[0], ev.Swap("a", "out", (*pairs[:missing], *pairs[missing + 1 :])), *SWAP_OUT[2:])
        assert not after(*start, ev.Step(1, acts=some), groups=GROUPS, host=4, policy="vllm-v0-swap").hosted("a", 0, 4)
    new = (ev.Delta("a", 0, (5, 6, 7)), ev.Delta("a", 1, (5, 6, 7)), ev.Delta("a", 2, (3,)))
    back = ((0, 5, 0), (1, 6, 0), (1, 6, 1), (0, 3, 2))
    s = apply(s, ev.Step(2, ("a",), (1,), (4,), new, acts=(ev.Swap("a", "in", back, 1),)))
    assert s.covered("a", 4, 5) == 5
    assert s.plan.torn == ()
    assert s.memory[2].block(3).slots == (("", (1, 2, 3, 4, 5)),)
