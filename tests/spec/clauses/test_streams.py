"""Clauses of what a frame brings, and to whom, by hand: what each says, and in which words."""

from __future__ import annotations

from attrs import evolve

from preempt_spec import events as ev
from preempt_spec.micro import Grant
from preempt_spec.rules import frame, output
from preempt_spec.view import Due, Fate


def flying(s, request, *, outputs=1, fate=Fate.LIVE, position=None, frame=0, after=None):
    known = len(s.requests[request].tokens) if position is None else position
    due = Due(1, known, outputs, after)
    return evolve(s, frames={**s.frames, frame: {request: evolve(due, fate=fate)}}, last_frame=max(s.last_frame, frame))


# -- output ----------------------------------------------------------------------------------------------------------


def test_a_grant_has_tokens_behind_which_something_is_sampled(at):
    s = at(running={"a": {"known": 4, "table": (0, 1), "computed": 3}})
    s = evolve(s, requests={"a": evolve(s.requests["a"], drafts=2)})

    def says(tokens, drafts=0, start=3):
        [message] = output.within_the_stream(s, Grant("a", tokens, start, ((),), None, drafts))
        return message

    assert says(1) is None
    assert says(3, 2) is None
    assert says(0) == "a is granted 0 tokens: nothing to sample from"
    assert says(2) == "a is granted tokens up to 5; 4 are known"
    assert says(2, 2) == "a is granted 2 tokens, 2 of them drafts: nothing to sample behind"
    assert says(4, 3) == "a is granted 3 drafts; 2 were proposed"


def deliver(tokens, *, frame=0, request="a", accepted=None, disposition=None, emitted=None):
    told = None if disposition is None else (disposition,)
    shown = None if emitted is None else (emitted,)
    return ev.Deliver(frame, (request,), (tokens,), None if accepted is None else (accepted,), told, shown)


def test_how_many_tokens_a_frame_may_bring(at):
    s = at(running={"a": {"known": 4, "table": (0, 1, 2), "computed": 4}})

    def says(outputs, tokens, **more):
        return list(output.in_its_context(flying(s, "a", outputs=outputs), deliver(tokens, **more)))

    assert says(1, (7,)) == [None]
    assert says(3, (7, 8, 9)) == [None]
    assert says(1, ()) == ["a got 0 tokens from frame 0"]
    assert says(1, (7, 8)) == ["a got 2 tokens from frame 0"]
    assert says(0, ()) == []
    assert says(0, (7,)) == ["a got a token from frame 0, which ended before its last known token"]
    assert says(2, (7, 8), accepted=0) == ["a got 2 tokens from frame 0, with 0 drafts accepted"]
    assert says(2, (7, 8), accepted=1) == [None]
    assert says(1, (7,), emitted=(8,)) == ["a was delivered [7] and the engine emitted [8]"]
    assert says(1, (7,), emitted=(7,)) == [None]


def test_where_a_token_belongs(at):
    s = at(running={"a": {"known": 4, "computed": 4}})
    lost = list(output.in_its_context(flying(s, "a", position=5), deliver((7,))))
    assert lost == ["token 5 of a, sampled by frame 0, comes as token 4: it was lost"]
    there = list(output.in_its_context(flying(s, "a", position=3), deliver((7,))))
    assert there == ["token 3 of a, sampled by frame 0, comes as token 4: it was there already"]


def test_what_is_dropped_is_not_shown(at):
    s = flying(at(running={"a": {"known": 4}}), "a", fate=Fate.DROP)
    assert list(output.in_its_context(s, deliver((7,), disposition="dropped", emitted=()))) == []
    assert list(output.in_its_context(s, deliver((7,), disposition="dropped"))) == []
    assert list(output.in_its_context(s, deliver((7,), disposition="dropped", emitted=(7,)))) == [
        "the output of a from frame 0 was dropped and the user was shown [7]"
    ]


def test_nothing_is_said_of_strangers_and_of_the_gone(at):
    s = at(running={"a": {"known": 4}})
    assert list(output.in_its_context(s, deliver((7,)))) == []  # that the frame does not fly, frame/once says
    gone = flying(s, "a", fate=Fate.GONE, position=9)
    assert list(output.in_its_context(gone, deliver((7,)))) == []
    over = evolve(flying(s, "a"), requests={}, running=())
    assert list(output.in_its_context(over, deliver((7,)))) == []


def test_a_request_ends_at_its_length_or_at_the_longest(at):
    def says(reason="length", **row):
        s = at(running={"a": {"prompt": 2, **row}}, max_length=6)
        return list(output.ends_at_its_length(s, ev.Finish("a", reason)))

    assert says(known=6, max_tokens=9) == [None]
    assert says(known=4, max_tokens=2) == [None]
    assert says(known=5, max_tokens=9) == ["a ended for its length after 3 of 9 tokens"]
    assert says("stop", known=3, max_tokens=9) == []


# -- frame -----------------------------------------------------------------------------------------------------------


def test_nothing_sampled_may_be_delivered_to_the_gone(at):
    s = flying(at(running={"a": {"known": 4}}), "a", fate=Fate.GONE)
    assert list(frame.as_was_fixed(s, deliver((), disposition="delivered"))) == [None]
    assert list(frame.as_was_fixed(s, deliver((7,)))) == ["a is over: frame 0 delivered to it"]
    assert list(frame.as_was_fixed(s, deliver((7,), disposition="dropped"))) == [None]


def test_a_chunk_in_the_middle_may_be_told_as_anything(at):
    s = flying(at(running={"a": {"known": 4}}), "a", outputs=0)
    assert list(frame.as_was_fixed(s, deliver((), disposition="dropped"))) == []
    owing = flying(at(running={"a": {"known": 4}}), "a")
    assert list(frame.as_was_fixed(owing, deliver((), disposition="empty"))) == [
        "the output of a from frame 0 was empty"
    ]


def test_where_a_grant_goes_on(at):
    s = at(running={"a": {"known": 4, "computed": 3}})
    assert list(frame.goes_on_where_it_was(s, Grant("a", 1, 3, ((),), None))) == [None]
    assert list(frame.goes_on_where_it_was(s, Grant("a", 1, 2, ((),), None))) == [
        "a has 3 computed tokens and goes on at 2"
    ]
    assert list(frame.goes_on_where_it_was(s, Grant("a", 1, None, ((),), None))) == []
    again = evolve(s, plan=evolve(s.plan, granted={"a": (3, 1)}))
    assert list(frame.goes_on_where_it_was(again, Grant("a", 1, 2, ((),), None))) == []  # queue/visit-once speaks of it
