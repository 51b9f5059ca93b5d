"""Clauses of the other families: what each says of states and events written down by hand, and in which words."""

from __future__ import annotations

from attrs import evolve

from preempt_spec import events as ev
from preempt_spec.micro import Close, Grant
from preempt_spec.policies.policy import AfterPreemption, Memory
from preempt_spec.rules import edge, frame, live, output, queue, resume, swap, victim
from preempt_spec.view import Copy, Cycle, Due, Fate, Place


def close(step=None, **observed):
    step = step or ev.Step(0, (), ())
    return Close(evolve(step, observed=ev.Observed(**observed)), ())


def flying(s, request, *, outputs=1, fate=Fate.LIVE, position=None, frame=0, after=None):
    known = len(s.requests[request].tokens) if position is None else position
    due = Due(1, known, outputs, after)
    return evolve(s, frames={**s.frames, frame: {request: evolve(due, fate=fate)}}, last_frame=max(s.last_frame, frame))


def said(found):
    return [*found]


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
        return said(output.in_its_context(flying(s, "a", outputs=outputs), deliver(tokens, **more)))

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
    lost = said(output.in_its_context(flying(s, "a", position=5), deliver((7,))))
    assert lost == ["token 5 of a, sampled by frame 0, comes as token 4: it was lost"]
    there = said(output.in_its_context(flying(s, "a", position=3), deliver((7,))))
    assert there == ["token 3 of a, sampled by frame 0, comes as token 4: it was there already"]


def test_what_is_dropped_is_not_shown(at):
    s = flying(at(running={"a": {"known": 4}}), "a", fate=Fate.DROP)
    assert said(output.in_its_context(s, deliver((7,), disposition="dropped", emitted=()))) == []
    assert said(output.in_its_context(s, deliver((7,), disposition="dropped"))) == []
    assert said(output.in_its_context(s, deliver((7,), disposition="dropped", emitted=(7,)))) == [
        "the output of a from frame 0 was dropped and the user was shown [7]"
    ]


def test_nothing_is_said_of_strangers_and_of_the_gone(at):
    s = at(running={"a": {"known": 4}})
    assert said(output.in_its_context(s, deliver((7,)))) == []  # that the frame does not fly, frame/once says
    gone = flying(s, "a", fate=Fate.GONE, position=9)
    assert said(output.in_its_context(gone, deliver((7,)))) == []
    over = evolve(flying(s, "a"), requests={}, running=())
    assert said(output.in_its_context(over, deliver((7,)))) == []


def test_a_request_ends_at_its_length_or_at_the_longest(at):
    def says(reason="length", **row):
        s = at(running={"a": {"prompt": 2, **row}}, max_length=6)
        return said(output.ends_at_its_length(s, ev.Finish("a", reason)))

    assert says(known=6, max_tokens=9) == [None]
    assert says(known=4, max_tokens=2) == [None]
    assert says(known=5, max_tokens=9) == ["a ended for its length after 3 of 9 tokens"]
    assert says("stop", known=3, max_tokens=9) == []


# -- frame -----------------------------------------------------------------------------------------------------------


def test_nothing_sampled_may_be_delivered_to_the_gone(at):
    s = flying(at(running={"a": {"known": 4}}), "a", fate=Fate.GONE)
    assert said(frame.as_was_fixed(s, deliver((), disposition="delivered"))) == [None]
    assert said(frame.as_was_fixed(s, deliver((7,)))) == ["a is over: frame 0 delivered to it"]
    assert said(frame.as_was_fixed(s, deliver((7,), disposition="dropped"))) == [None]


def test_a_chunk_in_the_middle_may_be_told_as_anything(at):
    s = flying(at(running={"a": {"known": 4}}), "a", outputs=0)
    assert said(frame.as_was_fixed(s, deliver((), disposition="dropped"))) == []
    owing = flying(at(running={"a": {"known": 4}}), "a")
    assert said(frame.as_was_fixed(owing, deliver((), disposition="empty"))) == [
        "the output of a from frame 0 was empty"
    ]


def test_where_a_grant_goes_on(at):
    s = at(running={"a": {"known": 4, "computed": 3}})
    assert said(frame.goes_on_where_it_was(s, Grant("a", 1, 3, ((),), None))) == [None]
    assert said(frame.goes_on_where_it_was(s, Grant("a", 1, 2, ((),), None))) == [
        "a has 3 computed tokens and goes on at 2"
    ]
    assert said(frame.goes_on_where_it_was(s, Grant("a", 1, None, ((),), None))) == []
    again = evolve(s, plan=evolve(s.plan, granted={"a": (3, 1)}))
    assert said(frame.goes_on_where_it_was(again, Grant("a", 1, 2, ((),), None))) == []  # queue/visit-once speaks of it


# -- live ------------------------------------------------------------------------------------------------------------


def test_what_counts_as_progress(at):
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
    assert said(live.moves(at(), close())) == []  # nobody lives


def test_a_circle_is_told_only_of_who_hides_nothing(at):
    s = at(running={"a": {"known": 4, "computed": 2}})
    s = evolve(s, preemptions=2, cycle=Cycle(s.fingerprint(), 1, age=3))
    assert said(live.goes_in_no_circle(s, close())) == [
        "4 steps and a preemption later all is as it was, without progress"
    ]
    assert said(live.goes_in_no_circle(evolve(s, policy=evolve(s.policy, hidden=True)), close())) == []
    assert said(live.goes_in_no_circle(evolve(s, limits=evolve(s.limits, caching=True)), close())) == []
    assert said(live.goes_in_no_circle(evolve(s, preemptions=1), close())) == []
    assert said(live.goes_in_no_circle(evolve(s, cycle=None), close())) == []


def test_a_host_tier_hides_something(after):
    s = after(groups=("full", "full"), host=4)
    s = evolve(s, preemptions=2, cycle=Cycle(s.fingerprint(), 1, age=3))
    assert said(live.goes_in_no_circle(s, close())) == []
    first = evolve(s, host=(s.host[0], evolve(s.host[1], total=0)))
    assert said(live.goes_in_no_circle(first, close())) == []


def test_the_tax(at):
    s = at(running={"a": {}}, max_length=12)

    def says(tax, recomputed, delivered):
        policy = evolve(s.policy, tax=tax)
        return said(
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
        return said(live.engine_raised(at(), ev.EngineError(origin, "KeyError", "x", where)))

    assert says("engine", "step") == ["KeyError in step: x"]
    assert says("engine", "") == ["KeyError in the engine: x"]
    assert says("adapter", "step") == []


# -- edge ------------------------------------------------------------------------------------------------------------


def test_what_an_abort_gives_back(at):
    s = at(running={"a": {"known": 4, "table": (0, 1)}, "b": {"known": 2, "table": (1,)}}, blocks=4)

    def says(free, s=s):
        return said(edge.blocks_come_back(s, ev.Abort("a", "user", None, ev.Observed(free=free))))

    assert says((3,)) == [None]
    assert says((4,)) == ["after the abort of a 4 blocks are free, not 3"]
    assert says(None) == []


def test_a_fenced_block_does_not_come_back_at_once(at):
    s = at(running={"a": {"known": 4, "table": (0, 1)}}, blocks=4)
    m = s.memory[0]
    s = evolve(s, memory=(evolve(m, blocks={0: evolve(m.block(0), fence=3)}),))
    assert said(edge.blocks_come_back(s, ev.Abort("a", "user", None, ev.Observed(free=(3,))))) == [None]


def filling(s, block):
    return evolve(s, copies={1: Copy("in", ((0, block, 0),), None)})


def test_a_block_that_is_filled_comes_back_with_its_copy(at):
    s = filling(at(running={"a": {"known": 4, "table": (0, 1)}}), 1)
    assert said(edge.all_of_it_taken_back(s, ev.Abort("a", "user", ((0,),)))) == [None]
    assert said(edge.all_of_it_taken_back(s, ev.Abort("a", "user", ((),)))) == [
        "block 0 of a was not taken back at its abort"
    ]
    assert said(edge.all_of_it_taken_back(s, ev.Abort("a", "user", None))) == []


def test_the_aborted_stand_in_no_queue(at):
    s = evolve(at(), aborted=("a",))

    def says(**queues):
        return said(edge.out_of_every_queue(s, close(**queues)))

    message = ["a was aborted and is still queued"]
    assert says(running=(), waiting=()) == [None]
    assert says(running=("a",), waiting=()) == message
    assert says(running=(), waiting=("a",)) == message
    assert says(running=(), waiting=(), swapped=("a",)) == message
    assert says(running=(), waiting=(), loading=("a",)) == message
    assert says(running=("a",)) == []
    assert says(waiting=("a",)) == []
    again = evolve(at(running={"a": {}}), aborted=("a",))
    assert said(edge.out_of_every_queue(again, close(running=("a",), waiting=()))) == []


def test_cached_tokens_count_at_an_admission_only(at):
    s = at(running={"a": {"known": 4, "prompt": 2}}, plan={"admitted": ("a",)})

    def says(s, tokens, external=0):
        return said(edge.counts_what_was_cached(s, close(cached=(ev.Cached("a", tokens, external),))))

    assert says(s, 2) == [None]
    assert says(s, 3) == ["a counts 3 cached tokens of 2, 0 of them external"]
    assert says(s, 1, 2) == ["a counts 1 cached tokens of 2, 2 of them external"]
    assert says(evolve(s, plan=evolve(s.plan, admitted=())), 9) == []


# -- queue -----------------------------------------------------------------------------------------------------------


def test_only_who_was_preempted_is_requeued_or_whose_load_failed(at):
    s = at(running={"a": {"known": 4, "table": (0,)}})
    requeue = ev.Requeue("a", 0, "waiting", 0, 4)

    def says(place, **fields):
        return said(queue.was_out(evolve(s, requests={"a": evolve(s.requests["a"], place=place, **fields)}), requeue))

    assert says(Place.LIMBO) == [None]
    assert says(Place.LOADING, tables=((),)) == [None]
    assert says(Place.LOADING) == ["a was requeued while loading"]
    assert says(Place.LOADING, tables=((0,), ())) == ["a was requeued while loading"]
    assert says(Place.RUNNING, tables=((),)) == ["a was requeued while running"]


def test_who_may_be_loaded(at):
    s = at(running={"a": {"known": 4, "table": (0,), "computed": 4}})

    def says(place, tables):
        there = evolve(s, requests={"a": evolve(s.requests["a"], place=place, tables=tables)})
        return said(queue.was_waiting(there, ev.Load("a", 2, ((1,),), 0, 0)))

    assert says(Place.WAITING, ((),)) == [None]
    assert says(Place.RUNNING, ((0,),)) == ["a is loaded while running"]
    assert says(Place.RUNNING, ((),)) == ["a is loaded while running"]
    # Its load failed, and it holds nothing any more.
    assert says(Place.LOADING, ((),)) == [None]
    assert says(Place.LOADING, ((0,), ())) == ["a is loaded while loading"]


def test_where_requests_stand_in_words(at):
    s = evolve(at(running={"a": {}}, waiting={"b": {}}), aborted=("z",))

    def says(running, waiting, **more):
        return said(queue.queues_partition(s, close(running=running, waiting=waiting, **more)))

    assert says(("a",), ("b",)) == [None]
    assert says(("a", "z"), ("b",)) == [None]  # edge/abort speaks of that
    assert says(("a", "x"), ("b",)) == ["x is over and still queued"]
    assert says(("a", "b"), ("b",)) == ["b stands in running and in waiting"]
    assert says(("a",), ("b",), loading=("b",)) == ["b stands in waiting and in loading"]
    assert says(("a",), ()) == ["b is in no queue"]
    assert says(("b",), ("a",)) == ["a is running and the engine has it in another queue"]
    assert says(("a",), ("b",), swapped=("a",)) == ["a stands in running and in swapped"]


def test_who_loads_may_be_kept_among_those_who_wait(at):
    s = at(running={"a": {}}, waiting={"b": {}})
    s = evolve(s, waiting=(), requests={**s.requests, "b": evolve(s.requests["b"], place=Place.LOADING)})

    def says(running, waiting, **more):
        return said(queue.queues_partition(s, close(running=running, waiting=waiting, **more)))

    assert says(("a",), ("b",)) == [None]
    assert says(("a",), ()) == [None]
    assert says(("a",), (), loading=("b",)) == [None]
    assert says(("a", "b"), ()) == ["b is loading and the engine has it in another queue"]
    assert says(("a",), ("b",), loading=()) == ["b is loading and the engine has it in another queue"]
    assert says(("a",), (), loading=()) == ["b is in no queue"]


def test_where_a_victim_was_put_in_words(at):
    s = at(waiting={"b": {}}, running={"a": {}})
    s = evolve(s, running=(), requests={**s.requests, "a": evolve(s.requests["a"], place=Place.LIMBO)})
    assert said(queue.at_its_place(s, ev.Requeue("a", 0, "waiting", 0, 1))) == [None]
    assert said(queue.at_its_place(s, ev.Requeue("a", 0, "waiting", 1, 1))) == [
        "a was requeued at 1 of ['b']; vllm-fcfs puts it at 0"
    ]
    assert said(queue.at_its_place(s, ev.Requeue("a", 0, "waiting", None, 1))) == []
    loading = evolve(s, requests={**s.requests, "a": evolve(s.requests["a"], place=Place.LOADING)})
    assert said(queue.at_its_place(loading, ev.Requeue("a", 0, "waiting", 1, 1))) == []


def test_the_order_of_the_queues_in_words(at):
    s = at(running={"a": {}, "b": {}}, waiting={"c": {}, "d": {}})

    def says(**queues):
        return said(queue.queues_in_order(s, close(**queues)))

    assert says(running=("a", "b"), waiting=("c", "d")) == [None, None]
    assert says(running=("b", "a")) == ["running is ['b', 'a'], admitted were ['a', 'b']"]
    assert says(waiting=("d", "c")) == ["waiting is ['d', 'c'], queued were ['c', 'd']"]
    assert says(running=("a",), waiting=("c",)) == []  # queue/one-place speaks of that
    assert says() == []


def test_an_unsplit_prefill(at):
    s = at(waiting={"a": {"known": 6}}, chunked=False)

    def says(grant, s=s):
        return said(queue.gates_open(s, grant))

    message = ["a was admitted with 4 tokens of 6 known and chunked prefill is off"]
    assert says(Grant("a", 4, 0, ((0, 1),), None)) == message
    assert says(Grant("a", 4, None, ((0, 1),), None)) == message
    assert says(Grant("a", 6, 0, ((0, 1, 2),), None)) == [None]
    assert says(Grant("a", 4, 2, ((0, 1, 2),), 2)) == [None]
    assert says(Grant("a", 4, None, ((0, 1, 2),), 2)) == [None]
    capped = at(waiting={"a": {"known": 6}}, chunked=False, long_prefill=4)
    assert says(Grant("a", 4, 0, ((0, 1),), None), capped) == [None]
    assert says(Grant("a", 4, 0, ((0, 1),), None), at(waiting={"a": {"known": 6}}, chunked=True)) == [None]


def test_a_resume_of_which_no_start_is_read_is_not_taken_for_a_chunk(at):
    s = at(waiting={"a": {"known": 6, "computed": 4, "table": (0, 1)}}, chunked=False)
    for place in (Place.SWAPPED, Place.LOADING):
        back = evolve(s, requests={"a": evolve(s.requests["a"], place=place)})
        told = said(queue.gates_open(back, Grant("a", 2, None, ((2,),), None)))
        assert told == ([None] if place is Place.SWAPPED else [])
        assert said(queue.gates_open(back, Grant("a", 1, None, ((2,),), None))) == [
            "a was admitted with 1 tokens of 6 known and chunked prefill is off"
        ]


def test_an_admission_in_a_step_that_preempted(at):
    s = at(waiting={"a": {"known": 2}}, plan={"demoted": ("v",)})
    grant, load = Grant("a", 2, 0, ((0,),), None), ev.Load("a", 2, ((0,),), 0, 0)
    assert said(queue.gates_open(s, grant)) == ["a was admitted in a step that preempted v"]
    assert said(queue.load_gates_open(s, load)) == ["a begins to load in a step that preempted v"]
    open_ = next(x for x in AfterPreemption if x is not AfterPreemption.CLOSED)
    s = evolve(s, policy=evolve(s.policy, after_preemption=open_))
    assert said(queue.gates_open(s, grant)) == [None]
    assert said(queue.load_gates_open(s, load)) == [None]


def test_room_for_a_load(at):
    s = at(waiting={"a": {"known": 6}}, running={"b": {"known": 4, "table": (0, 1)}}, blocks=4)
    assert said(queue.load_gates_open(s, ev.Load("a", 2, ((2,),), 0, 0))) == [
        "a was admitted: it takes 3 blocks above a watermark of 0, 2 are free"
    ]
    running = at(running={"a": {"known": 6}}, blocks=1)
    assert said(queue.load_gates_open(running, ev.Load("a", 2, ((2,),), 0, 0))) == []


# -- resume ----------------------------------------------------------------------------------------------------------


def test_who_is_announced_as_resumed_in_words(at):
    s = at(running={"a": {"preempted": True}, "b": {}}, plan={"admitted": ("a", "b")})

    def says(*names):
        step = ev.Step(0, (), (), resumed=tuple(ev.Resumed(n) for n in names))
        return said(resume.resumed_are_told(s, close(step)))

    assert says("a") == [None]
    [missing] = says()
    [stranger] = says("a", "b")
    assert missing is not None
    assert missing.startswith("a ")
    assert stranger == "b is announced as resumed and was not preempted"
    [both] = says("b")
    assert both == missing
    assert "was not preempted" not in missing
    nobody = at(running={"b": {}}, plan={"admitted": ("b",)})
    step = ev.Step(0, (), (), resumed=(ev.Resumed("b"),))
    assert said(resume.resumed_are_told(nobody, close(step))) == ["b is announced as resumed and was not preempted"]
    assert said(resume.resumed_are_told(nobody, close())) == []


def test_without_a_cache_there_is_nothing_to_hit(at):
    s = at(waiting={"a": {"known": 6}}, caching=False)
    assert said(resume.nothing_to_hit(s, Grant("a", 4, 0, ((0, 1, 2),), None))) == [None]
    assert said(resume.nothing_to_hit(s, Grant("a", 4, 2, ((0, 1, 2),), None))) == [
        "a starts at 2 and there is no cache to hit"
    ]


# -- swap ------------------------------------------------------------------------------------------------------------


def test_host_blocks_are_given_up_once(after):
    s = after(host=4)
    assert said(swap.was_in_use(s, ev.Evict((1,)))) == ["host block 1 was given up and was not in use"]


def test_a_host_block_that_is_in_use_is_given_up_once(after):
    s = after(ev.CopyStart(1, "out", ((0, 2, 0),)), ev.CopyDone(1, True), host=4)
    assert said(swap.was_in_use(s, ev.Evict((2,)))) == [None]
    assert said(swap.was_in_use(s, ev.Evict((2, 2)))) == ["host block 2 was given up and was not in use"] * 2


def test_a_host_block_that_is_copied_is_not_given_up(after):
    s = after(host=4)
    s = evolve(s, last_frame=5)

    def says(copy, *blocks):
        return said(swap.not_read_any_more(evolve(s, copies={1: copy}), ev.Evict(blocks)))

    message = ["host block 2 was given up while a copy still uses it"]
    assert says(Copy("out", ((0, 2, 0),), None), 2) == message
    assert says(Copy("in", ((2, 0, 0),), None), 2) == message
    assert says(Copy("out", ((0, 2, 0),), None), 3) == [None]
    assert says(Copy("out", ((0, 2, 1),), None), 2) == [None]
    assert says(Copy("out", ((0, 2, 0),), 5), 2) == []
    assert says(Copy("out", ((0, 2, 0),), 6), 2) == message


def test_a_host_block_is_filled_once(after):
    s = after(host=4)
    told = said(swap.into_free_host_blocks(s, ev.CopyStart(1, "out", ((0, 2, 0), (1, 2, 0)))))
    assert told == [None, "host block 2 is filled while it is in use"]


def test_blocks_of_copies_on_their_way(at):
    s = evolve(at(running={"a": {"known": 4, "table": (5,)}}), last_frame=5)

    def says(copy, *blocks, hit=None):
        return said(swap.not_in_transit(evolve(s, copies={1: copy}), Grant("a", 1, 0, (blocks,), hit)))

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
    assert said(swap.not_in_transit(reads, grant)) == ["the state of a is overwritten while a copy still reads it"]
    other = evolve(s, copies={1: Copy("out", ((3, 0, 0),), None)})
    assert said(swap.not_in_transit(other, grant)) == [None]
    fills = evolve(s, copies={1: Copy("in", ((0, 3, 1),), None)})
    assert said(swap.not_in_transit(fills, grant)) == ["a attends block 3, whose load is not done"]
    assert said(swap.not_in_transit(reads, ev.Load("a", 1, ((), ()), 0, 0))) == [None]


# -- victim ----------------------------------------------------------------------------------------------------------


def test_the_operators_causes_are_between_steps(at):
    def says(cause, plan, beneficiaries=()):
        s = at(running={"a": {}})
        s = evolve(s, plan=evolve(s.plan, **{"entered": (), **plan}))
        return said(victim.declared_cause(s, ev.Demote("a", 0, cause, beneficiaries)))

    assert says("reset", {}) == [None]
    assert says("reset", {"entered": ("a",)}) == ["a was preempted for 'reset' inside a step"]
    assert says("pause", {"admitted": ("a",)}) == ["a was preempted for 'pause' inside a step"]
    assert says("growth", {}, ("b",)) == [None]
    assert says("growth", {}) == ["a was preempted for growth of nobody"]
    s = at(running={"a": {}})
    fair = evolve(s, policy=evolve(s.policy, causes=s.policy.causes | {"starvation"}))
    assert said(victim.declared_cause(fair, ev.Demote("a", 0, "starvation"))) == [None]


def test_pressure_is_told_of_those_who_run(at):
    s = at(running={"a": {"known": 3, "table": (0,), "computed": 2}}, waiting={"w": {"known": 3}}, blocks=1)

    def says(cause, *who):
        return said(victim.needed(s, ev.Demote("a", 0, cause, who)))

    assert says("growth", "a") == [None]
    assert says("starvation", "a") == []
    assert says("growth", "w") == []
    assert says("growth", "gone") == []
    assert says("growth") == []


def test_what_a_release_keeps(at):
    s = at(running={"a": {"known": 4, "computed": 3}})
    release = ev.Release("a", 0, None, None, 0, 0)

    def says(policy=s.policy, **fields):
        return said(victim.computed_is_zero(evolve(s, policy=policy), evolve(release, **fields)))

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
    assert said(victim.all_of_it_back(s, ev.Unplan("a", 0, 2))) == [None]
    assert said(victim.all_of_it_back(s, ev.Unplan("b", 0, 1))) == ["1 tokens went back for b, which had 0"]
    assert said(victim.all_of_it_back(s, ev.Unplan("b", 0, 0))) == [None]
