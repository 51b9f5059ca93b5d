"""Traces that cannot be right, one way or the other: what is a named violation, what is malformed, what is harmless.

Malformed is what makes no sense whoever wrote it; a violation is what a broken engine could really have done.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from preempt_spec import events as ev
from preempt_spec.micro import Malformed
from preempt_spec.policies.policy import Stale
from preempt_spec.reference import OBSERVES
from preempt_spec.state import State
from preempt_spec.system import apply, clauses, run
from preempt_spec.view import Place

After = Callable[..., State]

ARRIVE = ev.Arrive("a", (1, 2, 3), 6)
PREFILL = ev.Step(0, ("a",), (3,), (0,), (ev.Delta("a", 0, (0, 1)),))
PREEMPT = (ev.Demote("a", 0, "growth", ("a",)), ev.Release("a"), ev.Requeue("a", index=0))
RESUME = ev.Step(2, ("a",), (3,), (0,), (ev.Delta("a", 0, (4, 5)),))
RESET = ev.Control("reset", (ev.Demote("a", cause="reset"), ev.Release("a"), ev.Requeue("a", index=0)))
#: What needs nothing but the event itself.
BARE = OBSERVES - {"free", "free-ids", "refs", "queues", "held", "sent", "stats", "host"}


def broken(s: State, event: ev.Event, observes: frozenset[str] = BARE) -> dict[str, str]:
    """Rule -> message of what an event breaks."""
    return {v.rule: v.message for v in run(s, event, clauses(observes)).violations}


def malformed(s: State, event: ev.Event) -> str:
    """The field at fault."""
    with pytest.raises(Malformed) as e:
        apply(s, event)
    return e.value.field


# -- frames delivered twice, never, by the wrong name -----------------------------------------------------------------


def test_a_frame_delivered_twice_is_a_violation(after: After):
    deliver = ev.Deliver(0, ("a",), ((7,),))
    s = after(ARRIVE, PREFILL, deliver)
    assert broken(s, deliver) == {
        "frame/once": "frame 0 is delivered and does not fly: it was delivered before, or granted nothing"
    }
    assert apply(s, deliver).request("a").tokens == (1, 2, 3, 7)  # and changes nothing


def test_an_empty_frame_may_be_delivered_and_need_not(after: After):
    s = after(ARRIVE, ev.Step(0, reason="nothing"))
    assert broken(s, ev.Deliver(0)) == {}
    assert s.frames == {}


def test_a_frame_never_delivered_is_malformed_as_soon_as_one_too_many_flies(after: After):
    s = after(ARRIVE, PREFILL, ev.Step(1, ("a",), (1,), (3,)), frames=2)
    assert malformed(s, ev.Step(2)) == "frame"
    assert len(s.frames) == 2  # up to then nobody can tell it from one that is late


def test_an_output_left_out_of_its_frames_delivery_is_a_violation(after: After):
    s = after(ARRIVE, PREFILL)
    assert broken(s, ev.Deliver(0)) == {"frame/once": "the output of a from frame 0 was lost"}
    assert broken(s, ev.Deliver(0, ("a",), ((),), disposition=("empty",))) == {
        "frame/once": "the output of a from frame 0 was empty"
    }
    assert broken(s, ev.Deliver(0, ("a", "a"), ((7,), (8,)))) == {"frame/once": "a is delivered twice by frame 0"}


def test_of_the_gone_nothing_need_be_said_and_nothing_may_be_appended(after: After):
    s = after(ARRIVE, PREFILL, ev.Abort("a"))
    assert broken(s, ev.Deliver(0)) == {}
    assert broken(s, ev.Deliver(0, ("a",), ((7,),), disposition=("dropped",))) == {}
    assert broken(s, ev.Deliver(0, ("a",), ((7,),))) == {"frame/once": "a is over: frame 0 delivered to it"}


def test_a_frame_that_was_not_dispatched_or_a_stranger_in_it_is_malformed(after: After):
    s = after(ARRIVE, PREFILL)
    assert malformed(s, ev.Deliver(1, ("a",), ((7,),))) == "frame"
    assert malformed(s, ev.Deliver(0, ("x",), ((7,),))) == "requests"
    other = apply(s, ev.Arrive("b", (1,), 1))
    assert broken(other, ev.Deliver(0, ("a", "b"), ((7,), (8,)))) == {
        "frame/once": "b is delivered by frame 0, which did not grant it"
    }


def test_frames_count_upwards(after: After):
    s = after(ARRIVE, PREFILL)
    assert malformed(s, ev.Step(0)) == "frame"
    assert apply(s, ev.Step(7)).last_frame == 7  # not one by one


# -- incarnations that go back ----------------------------------------------------------------------------------------


def test_a_dropped_output_appended_after_the_resume_is_a_violation(after: After):
    s = after(ARRIVE, PREFILL, ev.Step(1, acts=PREEMPT), RESUME, knobs={"stale": Stale.DROP})
    assert broken(s, ev.Deliver(0, ("a",), ((7,),))) == {
        "frame/once": "a was preempted and its output is not to be appended: frame 0 delivered to it"
    }
    dropped = ev.Deliver(0, ("a",), ((7,),), disposition=("dropped",))
    assert broken(s, dropped) == {}
    s = apply(s, dropped)
    assert broken(s, ev.Deliver(2, ("a",), ((7,),))) == {}  # that of the new incarnation


def test_an_output_that_is_to_be_appended_and_is_not_is_a_violation(after: After):
    s = after(ARRIVE, PREFILL, ev.Step(1, acts=PREEMPT))
    assert broken(s, ev.Deliver(0, ("a",), ((7,),), disposition=("dropped",))) == {
        "frame/once": "the output of a from frame 0 was dropped"
    }


def test_a_resume_before_the_stale_output_came_is_a_violation(after: After):
    s = after(ARRIVE, PREFILL, ev.Step(1, acts=PREEMPT))
    assert broken(s, RESUME) == {"queue/order": "a was admitted before None"}
    s = apply(apply(s, RESUME), ev.Deliver(0, ("a",), ((7,),)))
    assert broken(s, ev.Deliver(2, ("a",), ((7,),))) == {
        "output/stream": "token 3 of a, sampled by frame 2, comes as token 4: it was there already"
    }


def test_a_stale_output_that_moves_computed_tokens_back_shows_at_the_next_grant(after: After):
    s = after(ARRIVE, PREFILL, RESET, evolve(RESUME, frame=1))
    s = apply(s, ev.Deliver(0, ("a",), ((7,),), disposition=("dropped",)))
    assert broken(s, ev.Step(2, ("a",), (1,), (2,))) == {"frame/once": "a has 3 computed tokens and goes on at 2"}
    assert broken(s, ev.Step(2, ("a",), (1,), (3,))) == {}


def test_frames_that_come_back_in_another_order_are_a_violation(after: After):
    s = after(ARRIVE, PREFILL, ev.Step(1, ("a",), (1,), (3,)))
    assert broken(s, ev.Deliver(1, ("a",), ((8,),))) == {
        "output/stream": "token 4 of a, sampled by frame 1, comes as token 3: it was lost"
    }


def test_whatever_takes_a_token_out_of_the_stream_shows_before_one_is_missed_behind_it(after: After):
    """So the check that a token stands behind that of `Due.after` never speaks first; it holds what others let pass."""
    s = after(ARRIVE, PREFILL, ev.Step(1, ("a",), (1,), (3,)))
    assert s.frames[1]["a"].after == 0
    assert "output/stream" in broken(s, ev.Deliver(1, ("a",), ((8,),)))  # the position says so too
    assert "frame/once" in broken(s, ev.Deliver(0, ("a",), ((),), disposition=("empty",)))
    put = evolve(s, requests={"a": evolve(s.request("a"), tokens=(1, 2, 3, 7))})  # by nobody's frame
    assert broken(put, ev.Deliver(1, ("a",), ((8,),))) == {
        "output/stream": "token 4 of a was sampled behind that of frame 0, which is not in the stream"
    }


# -- copies that never complete ---------------------------------------------------------------------------------------


def loading(after: After) -> State:
    """The two pages of a are in the host tier, and a waits for a copy of them."""
    arrive = ev.Arrive("a", (1, 2, 3, 4), 4)
    prefill = ev.Step(0, ("a",), (4,), (0,), (ev.Delta("a", 0, (0, 1)),))
    out = ev.CopyStart(0, "out", ((0, 0, 0), (1, 1, 0)))
    load = ev.Step(2, acts=(ev.Load("a", 4, ((5, 6),)),))
    done, start = ev.CopyDone(0), ev.CopyStart(1, "in", ((0, 5, 0), (1, 6, 0)))
    preempt = ev.Step(1, acts=PREEMPT)
    return after(arrive, prefill, ev.Deliver(0, ("a",), ((5,),)), out, done, preempt, load, start, host=4, caching=True)


def test_a_load_that_never_ends_is_waited_for(after: After):
    """An obligation of somebody else: however long it takes, the engine breaks nothing by waiting for it."""
    s = loading(after)
    stall = s.stall
    for frame in range(3, 60):
        step = ev.Step(frame, reason="loading")
        assert broken(s, step) == {}
        s = apply(s, step)
    assert s.stall == stall
    assert s.request("a").place is Place.LOADING
    assert s.copies.keys() == {1}


def test_its_blocks_are_in_use_until_then(after: After):
    s = apply(loading(after), ev.Abort("a"))
    assert s.free(0) == 6
    told = ev.Step(3, observed=ev.Observed(free=(8,)))
    assert "pool/conserve" in broken(s, told, frozenset({"free"}))
    b = apply(s, ev.Arrive("b", (9,), 1))
    again = ev.Step(3, ("b",), (1,), (0,), (ev.Delta("b", 0, (5,)),))
    assert broken(b, again)["swap/fence"] == "block 5 was given to b while a copy still uses it"
    assert broken(apply(b, ev.CopyDone(1)), again) == {}


def test_a_pass_that_does_not_wait_is_a_violation(after: After):
    s = loading(after)
    go_on = ev.Step(3, ("a",), (1,), (4,), (ev.Delta("a", 0, (7,)),))
    assert broken(s, go_on)["swap/fence"] == "a attends block 5, whose load is not done"
    assert broken(apply(s, ev.CopyDone(1)), go_on) == {}
    failed = apply(s, ev.CopyDone(1, ok=False))
    assert broken(failed, go_on) == {"swap/round-trip": "a resumes at 4; what was loaded holds its prefix up to 0"}


def test_a_store_that_never_ends_keeps_its_host_blocks(after: After):
    out = ev.CopyStart(0, "out", ((0, 3, 0),))
    s = after(ARRIVE, PREFILL, ev.Deliver(0, ("a",), ((7,),)), out, host=4)
    assert s.host_free(0) == 3
    assert broken(s, ev.Step(1, acts=(ev.Evict((3,)),))) == {
        "swap/fence": "host block 3 was given up while a copy still uses it"
    }
    assert broken(s, ev.CopyStart(1, "out", ((1, 3, 0),))) == {
        "swap/host-pool": "host block 3 is filled while it is in use"
    }
    assert broken(s, ev.CopyStart(1, "in", ((3, 5, 0),)))["swap/host-pool"] == (
        "host block 3 is loaded while it is still filled"
    )


def test_copies_that_were_not_started_or_are_started_twice_are_malformed(after: After):
    s = loading(after)
    assert malformed(s, ev.CopyDone(7)) == "copy"
    assert malformed(apply(s, ev.CopyDone(1)), ev.CopyDone(1)) == "copy"
    assert malformed(s, ev.CopyStart(1, "out", ((2, 3, 0),))) == "copy"
    assert malformed(s, ev.CopyStart(2, "out", ((2, 3, 0),), before=2)) == "before"  # that frame is gone


# -- host pools of size 0 ---------------------------------------------------------------------------------------------


def test_without_a_host_pool_nothing_can_be_copied(after: After):
    s = after(ARRIVE, PREFILL, ev.Deliver(0, ("a",), ((7,),)))
    assert malformed(s, ev.CopyStart(0, "out", ((0, 0, 0),))) == "blocks"
    assert malformed(s, ev.CopyStart(0, "in", ((0, 5, 0),))) == "blocks"
    for act in (ev.Swap("a", "out", ((0, 0, 0),)), ev.Evict((0,))):
        assert malformed(s, ev.Step(1, acts=(act,))) == "acts.blocks"
    assert s.host_extent(0) == s.host_free(0) == 0


def test_without_a_host_pool_nothing_can_be_kept(after: After):
    s = after(ARRIVE, PREFILL, ev.Deliver(0, ("a",), ((7,),)), policy="vllm-v0-swap", frames=1)
    demote = ev.Demote("a", 0, "growth", ("a",))
    kept = ev.Step(1, acts=(demote, ev.Release("a", kept=3)))
    assert broken(s, kept, frozenset({"copies", "blocks"})) == {
        "swap/round-trip": "a keeps 3 computed tokens whose KV was not copied to the host"
    }
    queued = ev.Step(1, acts=(demote, ev.Release("a"), ev.Requeue("a", queue="swapped")))
    assert broken(s, queued, frozenset({"place", "release", "copies"})) == {
        "queue/front": "a was requeued in swapped and its KV is nowhere"
    }
    recomputed = ev.Step(1, acts=(demote, ev.Release("a"), ev.Requeue("a", index=0)))
    assert broken(s, recomputed, frozenset({"place", "release", "copies"})) == {}  # there is no room in no pool


def test_with_an_empty_pool_observed_zero_free_blocks_are_right(after: After):
    s = after(ARRIVE)
    right, wrong = (ev.Step(0, observed=ev.Observed(host_free=(n,))) for n in (0, 1))
    assert broken(s, right, frozenset({"host", "copies"})) == {}
    assert broken(s, wrong, frozenset({"host", "copies"})) == {
        "swap/host-pool": "the engine counts 1 free host blocks, its copies leave 0"
    }


# -- labels that were never put on ------------------------------------------------------------------------------------


def test_to_withdraw_what_was_never_published_is_harmless(after: After):
    """Engines clear a block's hash whenever they hand it out; that there was none is no fault."""
    s = after(ARRIVE, PREFILL, caching=True)
    again = ev.Step(1, acts=(ev.Withdraw((0,)), ev.Withdraw((5,)), ev.Withdraw((0,))))
    assert broken(s, again) == {}
    assert not apply(s, again).findable()
    assert malformed(s, ev.Step(1, acts=(ev.Withdraw((99,)),))) == "acts.blocks"


def test_a_fence_or_pin_that_was_never_set_may_be_taken_off(after: After):
    s = after(ARRIVE, PREFILL)
    off = ev.Step(1, acts=(ev.Unfence((0,)), ev.Unpin((5,))))
    assert broken(s, off) == {}
    assert apply(s, off).free(0) == s.free(0)


def test_a_fence_waits_for_a_frame_that_flies(after: After):
    s = after(ARRIVE, PREFILL, ev.Step(1, ("a",), (1,), (3,)), ev.Deliver(0, ("a",), ((7,),)))
    demote, requeue = ev.Demote("a", 0, "growth", ("a",)), ev.Requeue("a", index=0)
    for until, rules in ((1, set()), (2, set()), (0, {"swap/fence"})):
        step = ev.Step(2, acts=(demote, ev.Release("a", until=until), requeue))
        assert broken(s, step, frozenset({"blocks"})).keys() == rules
    assert malformed(s, ev.Step(2, acts=(demote, ev.Release("a", until=3), requeue))) == "until"
    assert malformed(s, ev.Abort("a", until=2)) == "until"


def test_a_host_block_that_is_not_in_use_cannot_be_given_up(after: After):
    s = after(ARRIVE, host=4)
    assert broken(s, ev.Step(0, acts=(ev.Evict((1,)),))) == {
        "swap/host-pool": "host block 1 was given up and was not in use"
    }


# -- what this version does not judge ---------------------------------------------------------------------------------


def test_what_is_not_judged_is_malformed_and_not_passed(after: After):
    assert malformed(after(ARRIVE), ev.Control("caps")) == "kind"
    groups = ("full", "recurrent")
    blocks = (ev.Delta("a", 0, (0, 1)), ev.Delta("a", 1, (0,)))
    hit = ev.Step(0, ("a",), (1,), (2,), blocks, hits=(ev.Hit("a", 2),))
    assert malformed(after(ARRIVE, groups=groups), hit) == "hits"
    prefill = ev.Step(0, ("a",), (3,), (0,), blocks)
    s = after(ARRIVE, prefill, ev.Deliver(0, ("a",), ((7,),), (0,), proposed=(1,)), groups=groups)
    drafted = ev.Step(1, ("a",), (2,), (3,), (ev.Delta("a", 0, (2,)),), drafts=(ev.Hit("a", 1),))
    assert malformed(s, drafted) == "drafts"
