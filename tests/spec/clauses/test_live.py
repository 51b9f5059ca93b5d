"""Clauses of progress, crashes, cancellations, counters, by hand: what each says, and in which words."""

from __future__ import annotations

from attrs import evolve

from preempt_spec import events as ev
from preempt_spec.rules import edge, live
from preempt_spec.view import Copy, Cycle

# -- live ------------------------------------------------------------------------------------------------------------


def test_what_counts_as_progress(at, close):
    s = evolve(at(running={"a": {"known": 8, "table": (0, 1, 2, 3), "computed": 4}}), stall=100)
    s = evolve(s, requests={"a": evolve(s.requests["a"], peak=4)})

    def says(granted, s=s):
        [message] = live.moves(evolve(s, plan=evolve(s.plan, granted=granted)), close())
        return message

    assert says({"a": (4, 1)}) is None
    assert says({"a": (2, 3)}) is None
    assert says({"a": (0, 4)}) is not None
    assert says({"a": (3, 1)}) is not None
    assert says({"a": (1, 2)}) is not None
    assert says({}, evolve(s, stall=0)) is None
    assert "101 steps without progress" in says({})
    assert list(live.moves(at(), close())) == []  # nobody lives


def test_a_circle_is_told_only_of_who_hides_nothing(at, close):
    s = at(running={"a": {"known": 4, "computed": 2}})
    s = evolve(s, preemptions=2, cycle=Cycle(s.fingerprint(), 1, age=3))
    assert list(live.goes_in_no_circle(s, close())) == [
        "4 steps and a preemption later all is as it was, without progress"
    ]
    assert list(live.goes_in_no_circle(evolve(s, policy=evolve(s.policy, hidden=True)), close())) == []
    assert list(live.goes_in_no_circle(evolve(s, limits=evolve(s.limits, caching=True)), close())) == []
    assert list(live.goes_in_no_circle(evolve(s, preemptions=1), close())) == []
    assert list(live.goes_in_no_circle(evolve(s, cycle=None), close())) == []


def test_a_host_tier_hides_something(after, close):
    s = after(groups=("full", "full"), host=4)
    s = evolve(s, preemptions=2, cycle=Cycle(s.fingerprint(), 1, age=3))
    assert list(live.goes_in_no_circle(s, close())) == []
    first = evolve(s, host=(s.host[0], evolve(s.host[1], total=0)))
    assert list(live.goes_in_no_circle(first, close())) == []


def test_the_tax(at, close):
    s = at(running={"a": {}}, max_length=12)

    def says(tax, recomputed, delivered):
        policy = evolve(s.policy, tax=tax)
        return list(
            live.taxed_moderately(evolve(s, policy=policy, recomputed=recomputed, delivered=delivered), close())
        )

    assert says(None, 99, 0) == []
    assert says(2, 0, 0) == []
    assert says(2, 24, 0) == [None]
    assert says(2, 25, 0) == ["25 tokens computed again for 0 delivered"]
    assert says(2, 26, 1) == [None]
    assert says(2, 27, 1) == ["27 tokens computed again for 1 delivered"]


def test_only_the_engine_falls_over(at):
    def says(origin, where):
        return list(live.engine_raised(at(), ev.EngineError(origin, "KeyError", "x", where)))

    assert says("engine", "step") == ["KeyError in step: x"]
    assert says("engine", "") == ["KeyError in the engine: x"]
    assert says("adapter", "step") == []


# -- edge ------------------------------------------------------------------------------------------------------------


def test_what_an_abort_gives_back(at):
    s = at(running={"a": {"known": 4, "table": (0, 1)}, "b": {"known": 2, "table": (1,)}}, blocks=4)

    def says(free, s=s):
        return list(edge.blocks_come_back(s, ev.Abort("a", "user", None, ev.Observed(free=free))))

    assert says((3,)) == [None]
    assert says((4,)) == ["after the abort of a 4 blocks are free, not 3"]
    assert says(None) == []


def test_a_fenced_block_does_not_come_back_at_once(at):
    s = at(running={"a": {"known": 4, "table": (0, 1)}}, blocks=4)
    m = s.memory[0]
    s = evolve(s, memory=(evolve(m, blocks={0: evolve(m.block(0), fence=3)}),))
    assert list(edge.blocks_come_back(s, ev.Abort("a", "user", None, ev.Observed(free=(3,))))) == [None]


def filling(s, block):
    return evolve(s, copies={1: Copy("in", ((0, block, 0),), None)})


def test_a_block_that_is_filled_comes_back_with_its_copy(at):
    s = filling(at(running={"a": {"known": 4, "table": (0, 1)}}), 1)
    assert list(edge.all_of_it_taken_back(s, ev.Abort("a", "user", ((0,),)))) == [None]
    assert list(edge.all_of_it_taken_back(s, ev.Abort("a", "user", ((),)))) == [
        "block 0 of a was not taken back at its abort"
    ]
    assert list(edge.all_of_it_taken_back(s, ev.Abort("a", "user", None))) == []


def test_the_aborted_stand_in_no_queue(at, close):
    s = evolve(at(), aborted=("a",))

    def says(**queues):
        return list(edge.out_of_every_queue(s, close(**queues)))

    message = ["a was aborted and is still queued"]
    assert says(running=(), waiting=()) == [None]
    assert says(running=("a",), waiting=()) == message
    assert says(running=(), waiting=("a",)) == message
    assert says(running=(), waiting=(), swapped=("a",)) == message
    assert says(running=(), waiting=(), loading=("a",)) == message
    assert says(running=("a",)) == []
    assert says(waiting=("a",)) == []
    again = evolve(at(running={"a": {}}), aborted=("a",))
    assert list(edge.out_of_every_queue(again, close(running=("a",), waiting=()))) == []


def test_cached_tokens_count_at_an_admission_only(at, close):
    s = at(running={"a": {"known": 4, "prompt": 2}}, plan={"admitted": ("a",)})

    def says(s, tokens, external=0):
        return list(edge.counts_what_was_cached(s, close(cached=(ev.Cached("a", tokens, external),))))

    assert says(s, 2) == [None]
    assert says(s, 3) == ["a counts 3 cached tokens of 2, 0 of them external"]
    assert says(s, 1, 2) == ["a counts 1 cached tokens of 2, 2 of them external"]
    assert says(evolve(s, plan=evolve(s.plan, admitted=())), 9) == []
