"""What flying frames owe: promised at dispatch, fixed at demotion, kept or dropped at delivery."""

from __future__ import annotations

from collections.abc import Callable

from preempt_spec import events as ev
from preempt_spec.memory import Ahead
from preempt_spec.policies.outputs import awaits_output
from preempt_spec.policies.policy import Stale
from preempt_spec.state import State
from preempt_spec.system import apply
from preempt_spec.view import Due, Fate, Place

After = Callable[..., State]

ARRIVE = ev.Arrive("a", (1, 2, 3), 6)
PREFILL = ev.Step(0, ("a",), (3,), (0,), (ev.Delta("a", 0, (0, 1)),))
NEXT = ev.Step(1, ("a",), (1,), (3,))
THIRD = ev.Step(2, ("a",), (1,), (4,), (ev.Delta("a", 0, (2,)),))
PREEMPT = (ev.Demote("a", 0, "growth", ("a",)), ev.Release("a"), ev.Requeue("a", index=0))
RESET = ev.Control("reset", (ev.Demote("a", cause="reset"), ev.Release("a"), ev.Requeue("a", index=0)))


def test_a_frame_that_reaches_the_last_known_token_promises_one(after: After):
    s = after(ARRIVE, PREFILL)
    a = s.request("a")
    assert s.frames == {0: {"a": Due(tokens=3, position=3, outputs=1)}}
    assert (a.computed, a.placeholders, len(a.tokens), a.last) == (3, 1, 3, -1)


def test_a_chunk_promises_nothing(after: After):
    s = after(ARRIVE, ev.Step(0, ("a",), (2,), (0,), (ev.Delta("a", 0, (0,)),)))
    assert s.frames[0]["a"].outputs == 0
    assert s.request("a").placeholders == 0
    s = apply(s, ev.Deliver(0))  # it comes back with nothing
    assert s.frames == {}


def test_the_next_frame_is_planned_on_the_promise(after: After):
    s = after(ARRIVE, PREFILL, NEXT)
    a = s.request("a")
    assert s.frames[1] == {"a": Due(tokens=1, position=4, outputs=1, after=0)}
    assert (a.computed, a.placeholders, len(a.tokens)) == (4, 2, 3)
    assert s.memory[0].block(1).slots == (("", (1, 2, 3)), Ahead("a", 4))
    s = apply(s, ev.Deliver(0, ("a",), ((7,),)))
    a = s.request("a")
    assert (a.computed, a.placeholders, a.tokens, a.last) == (4, 1, (1, 2, 3, 7), 0)
    assert s.memory[0].block(1).slots[1] == ("", (1, 2, 3, 7))  # now it is known for what it was written


def drafted(after: After) -> State:
    """Three frames fly, the second and the third with two drafts each."""
    more = (ev.Hit("a", 2),)
    return after(
        ARRIVE,
        PREFILL,
        ev.Step(1, ("a",), (3,), (3,), (ev.Delta("a", 0, (2,)),), drafts=more),
        ev.Step(2, ("a",), (3,), (6,), (ev.Delta("a", 0, (3, 4)),), drafts=more),
        ev.Deliver(0, ("a",), ((7,),)),
        drafts=2,
    )


def test_drafts_are_promised_with_the_token_behind_them(after: After):
    s = drafted(after)
    assert s.frames[1]["a"] == Due(tokens=3, position=4, outputs=3, after=0)
    assert s.frames[2]["a"] == Due(tokens=3, position=7, outputs=3, after=1)
    assert s.request("a").placeholders == 6
    assert s.request("a").drafts == 2  # asynchronously the next grant gets as many unasked


def test_accepted_drafts_are_appended(after: After):
    s = apply(drafted(after), ev.Deliver(1, ("a",), ((8, 9, 10),), (2,)))
    a = s.request("a")
    assert (a.computed, a.placeholders, a.tokens) == (9, 3, (1, 2, 3, 7, 8, 9, 10))
    assert s.frames[2]["a"].position == 7


def test_rejected_drafts_move_what_comes_behind(after: After):
    s = apply(drafted(after), ev.Deliver(1, ("a",), ((8,),), (0,)))
    a = s.request("a")
    assert (a.computed, a.placeholders, a.tokens) == (7, 3, (1, 2, 3, 7, 8))
    assert s.frames[2]["a"] == Due(tokens=3, position=5, outputs=3, after=1)
    # The frame that still flies writes where the rejected drafts were: 8 and what comes behind it, as far as that goes.
    assert s.memory[0].block(2).slots == (("", (1, 2, 3, 7, 8)), Ahead("a", 6))
    assert s.memory[0].block(3).slots == (Ahead("a", 7), None)


def test_rejected_drafts_are_nobodys_prefix(after: After):
    grant = ev.Step(1, ("a",), (3,), (3,), (ev.Delta("a", 0, (2,)),), drafts=(ev.Hit("a", 2),))
    s = after(ARRIVE, PREFILL, ev.Deliver(0, ("a",), ((7,),), (0,), proposed=(2,)), grant)
    s = apply(s, ev.Deliver(1, ("a",), ((8, 9),), (1,)))
    assert (s.request("a").computed, s.request("a").tokens) == (5, (1, 2, 3, 7, 8, 9))
    assert s.memory[0].block(2).slots == (("", (1, 2, 3, 7, 8)), None)


def test_drafts_proposed_at_a_delivery_are_for_the_next_grant(after: After):
    s = after(ARRIVE, PREFILL, ev.Deliver(0, ("a",), ((7,),), (0,), proposed=(2,)))
    assert s.request("a").drafts == 2
    s = apply(s, ev.Step(1, ("a",), (1,), (3,)))
    assert s.request("a").drafts == 0  # they were for that one


def test_a_victims_output_is_appended_and_touches_nothing_else(after: After):
    s = after(ARRIVE, PREFILL, ev.Step(1, acts=PREEMPT))
    assert s.frames[0]["a"].fate is Fate.DELIVER
    assert (s.request("a").computed, s.request("a").placeholders) == (0, 0)
    assert awaits_output(s, "a")
    s = apply(s, ev.Deliver(0, ("a",), ((7,),)))
    a = s.request("a")
    assert (a.tokens, a.computed, a.placeholders, a.place) == ((1, 2, 3, 7), 0, 0, Place.WAITING)
    assert not awaits_output(s, "a")


def test_of_several_stale_outputs_each_comes_in_its_turn(after: After):
    s = after(ARRIVE, PREFILL, NEXT, ev.Step(2, acts=PREEMPT))
    s = apply(apply(s, ev.Deliver(0, ("a",), ((7,),))), ev.Deliver(1, ("a",), ((8,),)))
    assert s.request("a").tokens == (1, 2, 3, 7, 8)
    assert s.memory[0].block(1).slots[1] == ("", (1, 2, 3, 7))  # its former block holds what its frame wrote


def test_after_a_reset_it_is_dropped(after: After):
    s = after(ARRIVE, PREFILL, RESET)
    assert s.frames[0]["a"].fate is Fate.DROP
    s = apply(s, ev.Deliver(0, ("a",), ((7,),), disposition=("dropped",)))
    assert s.request("a").tokens == (1, 2, 3)


def test_what_is_dropped_once_stays_dropped(after: After):
    """It runs again, computes the position anew, and is preempted under pressure: the old output is still stale."""
    again = ev.Step(1, ("a",), (3,), (0,), (ev.Delta("a", 0, (4, 5)),))
    s = after(ARRIVE, PREFILL, RESET, again)
    assert [due["a"].fate for due in s.frames.values()] == [Fate.DROP, Fate.LIVE]
    assert s.request("a").placeholders == 1  # of the new frame alone
    s = apply(s, ev.Deliver(0, ("a",), ((7,),), disposition=("dropped",)))
    assert (s.request("a").placeholders, s.request("a").computed) == (1, 3)
    s = after(ARRIVE, PREFILL, RESET, again, ev.Step(2, acts=PREEMPT))
    assert [due["a"].fate for due in s.frames.values()] == [Fate.DROP, Fate.DROP]


def test_a_policy_may_drop_at_every_preemption(after: After):
    s = after(ARRIVE, PREFILL, ev.Step(1, acts=PREEMPT), knobs={"stale": Stale.DROP})
    assert s.frames[0]["a"].fate is Fate.DROP
    assert not awaits_output(s, "a")
    assert s.memory[0].block(1).slots[1] is None


def test_of_the_gone_nothing_comes_and_their_id_may_be_used_again(after: After):
    s = after(ARRIVE, PREFILL, ev.Abort("a"), ev.Arrive("a", (5,), 4))
    assert s.frames[0]["a"].fate is Fate.GONE
    s = apply(s, ev.Step(1, ("a",), (1,), (0,), (ev.Delta("a", 0, (3,)),)))
    s = apply(s, ev.Step(2, acts=PREEMPT))
    assert [due["a"].fate for due in s.frames.values()] == [Fate.GONE, Fate.DELIVER]  # each of its own request
    s = apply(s, ev.Deliver(0, ("a",), ((7,),), disposition=("dropped",)))
    assert s.request("a").tokens == (5,)
    s = apply(s, ev.Deliver(1, ("a",), ((6,),)))
    assert s.request("a").tokens == (5, 6)


def test_no_more_is_appended_than_may_be_emitted(after: After):
    s = after(ev.Arrive("a", (1, 2, 3), 1), PREFILL, NEXT, ev.Deliver(0, ("a",), ((7,),)))
    s = apply(s, ev.Deliver(1, ("a",), ((8,),)))
    assert s.request("a").tokens == (1, 2, 3, 7)
    assert s.delivered == 1


def test_what_a_frame_still_writes_is_noted_when_it_is_given_up(after: After):
    s = after(ARRIVE, PREFILL, NEXT, ev.Step(2, acts=PREEMPT))
    assert [s.loosed(0, b) for b in (0, 1, 2)] == [1, 1, None]
    s = apply(s, ev.Deliver(0, ("a",), ((7,),)))
    assert s.loosed(0, 1) == 1  # the later frame writes it still
    s = apply(s, ev.Deliver(1, ("a",), ((8,),)))
    assert s.loosed(0, 1) is None


def test_fenced_blocks_are_free_when_their_frame_is_back(after: After):
    fenced = (ev.Demote("a", 0, "growth", ("a",)), ev.Release("a", until=1), ev.Requeue("a", index=0))
    s = after(ARRIVE, PREFILL, NEXT, ev.Step(2, acts=fenced), blocks=4)
    assert (s.free(0), s.fence(0, 0), s.owner(0, 0)) == (2, 1, "a fence")
    s = apply(s, ev.Deliver(0, ("a",), ((7,),)))
    s = apply(s, ev.Deliver(1, ("a",), ((8,),), acts=(ev.Unfence((0, 1)),)))
    assert s.free(0) == 4
