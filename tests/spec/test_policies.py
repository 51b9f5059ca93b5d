"""What the knobs mean, as tables: victims with ties, places in queues, needs, guards, bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from preempt_spec import events as ev
from preempt_spec.edit import change
from preempt_spec.events import Limits
from preempt_spec.policies import admission, blocks, outputs, pressure, progress, queues, victims, visits
from preempt_spec.policies.blocks import blocks_for
from preempt_spec.policies.outputs import room_for_outputs
from preempt_spec.policies.policy import AfterSelf, Fence, Need, Stale
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.state import State
from preempt_spec.view import Copy, Due, Fate

At = Callable[..., State]


def rows(*keys: tuple[int, int]) -> dict[str, dict[str, int]]:
    """Running requests a, b, c … of these (priority, arrival)."""
    return {name: {"priority": p, "arrival": t} for name, (p, t) in zip("abcdef", keys, strict=False)}


GRANTED = {"granted": {"b": (0, 1)}}

VICTIMS = [
    # policy, (priority, arrival) of a, b, c …, requester, grants of this step → victim
    ("vllm-fcfs", [(0, 0), (0, 1), (0, 2)], "a", {}, "c"),  # the last position
    ("vllm-fcfs", [(9, 9), (0, 1), (0, 2)], "a", {}, "c"),  # whatever its priority
    ("vllm-fcfs", [(0, 0), (0, 1), (0, 2)], "c", {}, "c"),  # the requester itself
    ("vllm-priority", [(0, 0), (1, 1), (0, 2)], "a", {}, "b"),  # the worst priority
    ("vllm-priority", [(0, 0), (0, 2), (0, 1)], "a", {}, "b"),  # then the latest arrival
    ("vllm-priority", [(0, 1), (1, 2), (1, 2)], "a", {}, "b"),  # then the earliest position
    ("vllm-priority", [(1, 1), (1, 1), (1, 1)], "c", {}, "a"),  # all tied
    ("vllm-priority", [(0, 0), (1, 1), (0, 2)], "a", GRANTED, "b"),  # granted in this step already, all the same
    ("vllm-priority", [(2, 0), (1, 1), (0, 2)], "a", {}, "a"),  # the requester itself
    ("nano-vllm", [(0, 0), (0, 1), (0, 2)], "a", {}, "c"),  # the last that was not served
    ("nano-vllm", [(0, 0), (0, 1)], "a", GRANTED, "a"),  # never one that was
    ("nano-vllm", [(0, 0), (0, 1), (0, 2)], "c", GRANTED, "a"),  # nor the requester, while there is another
    ("vidur-vllm", [(0, 2), (0, 1), (0, 0)], "c", {}, "a"),  # the latest arrival that was not served
    ("vidur-vllm", [(0, 1), (0, 1), (0, 0)], "c", {}, "b"),  # of equals the last position
    ("vidur-vllm", [(0, 1), (0, 1)], "a", GRANTED, "a"),  # the requester, if there is none
]


@pytest.mark.parametrize(("policy", "keys", "requester", "plan", "expected"), VICTIMS)
def test_victim(at: At, policy: str, keys: Any, requester: str, plan: Any, expected: str):
    assert victims.victim(at(policy, running=rows(*keys), plan=plan), requester) == expected


def test_nobody_is_eligible_when_nobody_runs(at: At):
    s = at("vllm-fcfs", waiting=rows((0, 0)))
    assert victims.eligible(s, "a") == ()
    assert victims.victim(s, "a") is None
    assert victims.victim(at("nano-vllm", waiting=rows((0, 0))), "a") is None


PLACES = [
    # policy, waiting (id, priority, arrival) …, newcomer → as an arrival, as a victim
    ("vllm-fcfs", [("a", 0, 0), ("b", 0, 1)], ("x", 0, 0), 2, 0),
    ("nano-vllm", [("a", 0, 0), ("b", 0, 1)], ("x", 0, 9), 2, 0),
    ("vllm-priority", [("a", 0, 0), ("b", 1, 1)], ("x", 0, 1), 1, 1),  # behind a better arrival
    ("vllm-priority", [("a", 0, 0), ("b", 1, 1)], ("x", 2, 0), 2, 2),  # a worse priority
    ("vllm-priority", [("a", 0, 0), ("z", 0, 0)], ("m", 0, 0), 1, 1),  # ties go by id
    ("vllm-priority", [("a", 1, 0)], ("x", 0, 9), 0, 0),
    ("vllm-fcfs", [], ("x", 0, 0), 0, 0),
]


@pytest.mark.parametrize(("policy", "queue", "new", "arrives", "returns"), PLACES)
def test_place_in_the_waiting_queue(at: At, policy: str, queue: Any, new: Any, arrives: int, returns: int):
    waiting = {n: {"priority": p, "arrival": t} for n, p, t in queue}
    name, priority, arrival = new
    s = at(policy, waiting=waiting, running={name: {"priority": priority, "arrival": arrival}})
    assert queues.enqueue_at(s, name) == arrives
    assert queues.requeue_at(s, name) == returns


def test_the_next_to_be_admitted_is_the_first_that_is_ready(at: At):
    waiting: dict[str, Any] = {"a": {}, "b": {}}
    assert queues.next_admitted(at(waiting=waiting)) == "a"
    assert queues.next_admitted(at(waiting=waiting, plan={"skipped": {"a": "loading"}})) == "b"
    assert queues.next_admitted(at()) is None


NEEDS = [
    # known, computed, blocks in table → wanted tokens, blocks lacking (page 2)
    (3, 2, (0,), 1, 1),  # the next token is on a new page
    (4, 3, (0, 1), 1, 0),
    (8, 2, (0,), 6, 3),  # a prefill under way
    (11, 10, (0, 1, 2, 3, 4, 5), 1, 0),
    (3, 3, (0, 1), 0, 0),  # all computed: its output has not come back
]


@pytest.mark.parametrize(("known", "computed", "table", "want", "growth"), NEEDS)
def test_need_of_a_running_request(at: At, known: int, computed: int, table: tuple[int, ...], want: int, growth: int):
    s = at(running={"a": {"known": known, "computed": computed, "table": table}})
    assert pressure.want(s, "a") == want
    assert pressure.growth(s, "a", 0) == pressure.pressure(s, ["a"])[0] == growth
    eager = evolve(s, policy=evolve(s.policy, need=Need.ONE_FREE))
    assert pressure.pressure(eager, ["a"])[0] == 1


CAPS = [
    # budget, spent, long_prefill, others alive → tokens wanted of 10 lacking
    (16, 0, 0, 0, 10),
    (16, 9, 0, 0, 7),  # what is left of the budget
    (16, 16, 0, 0, 0),
    (16, 0, 3, 0, 10),  # the cap is for those who are not alone
    (16, 0, 3, 1, 8),  # … and never below a fair share of the budget
    (4, 0, 3, 1, 3),
]


@pytest.mark.parametrize(("budget", "spent", "long_prefill", "others", "want"), CAPS)
def test_want_within_caps(at: At, budget: int, spent: int, long_prefill: int, others: int, want: int):
    waiting: dict[str, Any] = {f"o{i}": {} for i in range(others)}
    running = {"a": {"known": 10}}
    s = at(running=running, waiting=waiting, plan={"spent": spent}, budget=budget, long_prefill=long_prefill)
    assert pressure.want(s, "a") == want


def test_supply_is_what_no_table_names(at: At):
    s = at(running={"a": {"table": (0, 1)}, "b": {"table": (1, 2)}}, blocks=8)
    assert pressure.pressure(s, ["a"])[1] == 5


WANTS = [
    # known, placeholders, drafts, computed → wanted tokens
    (4, 1, 0, 4, 1),  # planned on an output that flies
    (4, 2, 0, 5, 1),
    (4, 1, 2, 4, 3),  # with drafts behind it
    (4, 0, 2, 3, 3),
    (4, 1, 0, 5, 0),  # all of it is planned
    (11, 1, 3, 10, 1),  # the last of 12 tokens is sampled, never computed
]


@pytest.mark.parametrize(("known", "placeholders", "drafts", "computed", "want"), WANTS)
def test_want_of_what_flies_and_is_drafted(
    at: At, known: int, placeholders: int, drafts: int, computed: int, want: int
):
    s = at(running={"a": {"known": known, "computed": computed}})
    s = change(s, "a", placeholders=placeholders, drafts=drafts)
    assert pressure.want(s, "a") == want


FATES = [
    # what flies already, cause, policy → the fate of its outputs
    (Fate.LIVE, "growth", Stale.DELIVER, Fate.DELIVER),
    (Fate.LIVE, "growth", Stale.DROP, Fate.DROP),
    (Fate.LIVE, "reset", Stale.DELIVER, Fate.DROP),
    (Fate.DROP, "growth", Stale.DELIVER, Fate.DROP),  # who was dropped once stays dropped
    (Fate.GONE, "growth", Stale.DELIVER, Fate.DELIVER),  # of an earlier request of its id
    (Fate.LIVE, "pause", Stale.DELIVER, Fate.DELIVER),
]


@pytest.mark.parametrize(("flies", "cause", "stale", "fate"), FATES)
def test_fate_of_what_flies_at_a_preemption(at: At, flies: Fate, cause: str, stale: Stale, fate: Fate):
    s = at(running={"a": {}})
    s = evolve(s, policy=evolve(s.policy, stale=stale), frames={3: {"a": Due(1, 1, 1, fate=flies)}})
    assert outputs.stale_fate(s, "a", cause) is fate


def test_who_awaits_an_output_is_not_admitted(at: At):
    s = at(waiting={"a": {}, "b": {}})
    for fate, first in ((Fate.DELIVER, "b"), (Fate.DROP, "a"), (Fate.GONE, "a")):
        flying = evolve(s, frames={3: {"a": Due(1, 1, 1, fate=fate)}})
        assert outputs.awaits_output(flying, "a") is (fate is Fate.DELIVER)
        assert queues.next_admitted(flying) == first
    alone = evolve(at(waiting={"a": {}}), frames={3: {"a": Due(1, 1, 1, fate=Fate.DELIVER)}})
    assert queues.next_admitted(alone) is None


def test_who_is_swapped_comes_back_before_who_waits(at: At):
    s = at("vllm-v0-swap", waiting={"a": {}, "b": {}, "c": {}})
    s = evolve(s, waiting=("a",), swapped=("c", "b"))
    assert queues.next_admitted(s) == "c"
    assert queues.requeue_at(s, "x", "swapped") == 2  # in the order of going
    assert queues.requeue_at(s, "a") == 0
    assert queues.next_admitted(evolve(s, policy=PROFILES["vllm-fcfs"].contract)) == "a"


NEW_GUARDS = [
    # state, the request (placeholders) → guard; whether it may be passed over
    ({"paused": True}, 0, "paused", True),
    ({}, 0, None, False),
    ({}, 1, None, False),  # one output flies, and one token is still to be planned
    ({}, 4, "its last output flies", True),
]


@pytest.mark.parametrize(("state", "placeholders", "guard", "excused"), NEW_GUARDS)
def test_guards_of_what_flies(at: At, state: Any, placeholders: int, guard: str | None, excused: bool):
    s = evolve(at(running={"a": {"known": 4, "computed": 3, "max_tokens": 4}}), **state)
    s = change(s, "a", placeholders=placeholders)
    assert victims.skip_guard(s, "a") == guard
    assert victims.excused(s, "a") is excused


def test_to_plan_on_an_output_in_flight_is_the_engines_choice(at: At):
    s = change(at(running={"a": {"known": 4, "computed": 4}}), "a", placeholders=1)
    assert victims.skip_guard(s, "a") is None
    assert victims.excused(s, "a")
    assert not victims.excused(change(s, "a", computed=3), "a")


def test_a_batch_is_full(at: At):
    running: dict[str, Any] = {"a": {"known": 3, "computed": 2}, "b": {"known": 3, "computed": 2}}
    s = at("nano-vllm", running=running, plan={"granted": {"b": (2, 1)}}, max_running=1)
    assert victims.skip_guard(s, "a") == "batch full"
    assert victims.skip_guard(evolve(s, policy=PROFILES["vllm-fcfs"].contract), "a") is None


def fenced_state(at: At, host: int, fate: Fate = Fate.LIVE) -> State:
    """a cannot grow; b, its victim, flies."""
    running: dict[str, Any] = {
        "a": {"known": 3, "computed": 2, "table": (0,)},
        "b": {"known": 2, "computed": 1, "table": (1,)},
    }
    s = at(running=running, blocks=2)
    return evolve(s, host=(evolve(s.memory[0], total=host),), frames={3: {"b": Due(1, 2, 1, fate=fate)}})


def test_with_a_host_cache_nobody_is_preempted_while_it_flies(at: At):
    s = fenced_state(at, host=4)
    assert victims.fenced(s, "b")
    assert not victims.fenced(s, "a")
    assert victims.held_back(s)
    assert victims.skip_guard(s, "a") == "a victim flies"
    for free in (fenced_state(at, host=0), fenced_state(at, host=4, fate=Fate.GONE)):
        assert not victims.fenced(free, "b")
        assert not victims.held_back(free)
        assert victims.skip_guard(free, "a") is None
    assert not victims.fenced(evolve(s, policy=evolve(s.policy, fence=Fence.NONE)), "b")


def test_an_empty_step_waits_for_somebody_else(at: At):
    s = at(waiting={"a": {}})
    assert not progress.waits(s)
    assert progress.waits(evolve(s, frames={3: {}}))
    assert progress.waits(evolve(s, paused=True))
    assert progress.waits(evolve(s, copies={0: Copy("in", (), None)}))
    assert progress.waits(evolve(s, plan=evolve(s.plan, skipped={"a": "grammar"})))
    assert not progress.waits(evolve(s, paused=True, plan=evolve(s.plan, granted={"b": (0, 1)})))


GROUPS = {
    "full": ev.Group("f", "full", 2),
    "sliding": ev.Group("s", "sliding", 2, window=3),
    "recurrent": ev.Group("r", "recurrent", 1),
}
PAGES = [
    # kind, tokens → entries of the table, blocks at once, leading blocks that a hit of as many tokens shares
    ("full", 0, 0, 0, 0),
    ("full", 5, 3, 3, 3),
    ("sliding", 5, 3, 3, 3),
    ("sliding", 9, 5, 3, 5),  # what the window has passed can have gone
    ("recurrent", 0, 0, 0, 0),
    ("recurrent", 9, 1, 1, 0),  # a state is overwritten: never shared
]


@pytest.mark.parametrize(("kind", "tokens", "pages", "once", "shared"), PAGES)
def test_pages_of_a_group(kind: str, tokens: int, pages: int, once: int, shared: int):
    group = GROUPS[kind]
    assert blocks.pages_for(group, tokens) == pages
    assert blocks.blocks_at_once(group, tokens) == once
    assert blocks.shared_pages(group, tokens) == shared


@pytest.mark.parametrize(("outputs", "emitted", "room"), [(4, 0, 4), (4, 3, 1), (4, 4, 0), (99, 0, 9)])
def test_room_for_outputs(at: At, outputs: int, emitted: int, room: int):
    s = at(running={"a": {"known": 3 + emitted, "prompt": 3, "max_tokens": outputs}})
    assert room_for_outputs(s, s.request("a")) == room  # max_length is 12


GUARDS = [
    # policy, plan, the request → why it gets nothing
    ("vllm-fcfs", {}, {"known": 3, "computed": 2}, None),
    ("vllm-fcfs", {"skipped": {"a": "cadence"}}, {"known": 3, "computed": 2}, "cadence"),
    ("vllm-fcfs", {"spent_running": 16}, {"known": 3, "computed": 2}, "budget"),
    ("vllm-fcfs", {"spent": 16}, {"known": 3, "computed": 2}, None),  # admissions come after running requests
    ("vllm-fcfs", {"self_preempted": True}, {"known": 3, "computed": 2}, "stopped"),
    ("vllm-priority", {"self_preempted": True}, {"known": 3, "computed": 2}, None),
    ("vllm-fcfs", {}, {"known": 3, "computed": 3}, "nothing to compute"),
    ("vllm-fcfs", {}, {"known": 12, "computed": 11}, "nothing to compute"),  # max_length reached
    ("vllm-fcfs", {"admitted": ("b",)}, {"known": 3, "computed": 2}, None),
    ("nano-vllm", {"admitted": ("b",)}, {"known": 3, "computed": 2}, "exclusive prefill"),
]


@pytest.mark.parametrize(("policy", "plan", "request_", "guard"), GUARDS)
def test_guards_of_a_skip(at: At, policy: str, plan: Any, request_: Any, guard: str | None):
    assert victims.skip_guard(at(policy, running={"a": request_}, plan=plan), "a") == guard


def test_a_deviating_version_stops_after_a_self_preemption(at: At):
    built, applied = PROFILES["vllm-priority"].as_built("vllm", "0.31.0")
    assert built.after_self is AfterSelf.STOP
    assert [d.knob for d in applied] == ["after_self"]
    s = at("vllm-priority", running={"a": {"known": 3, "computed": 2}}, plan={"self_preempted": True})
    assert victims.skip_guard(evolve(s, policy=built), "a") == "stopped"


@pytest.mark.parametrize(
    ("version", "order", "victim", "once_served"),
    [("0.10.2", ("a", "b", "c"), "a", "b"), ("0.18.0", ("c", "b", "a"), "c", "c")],
)
def test_lmdeploy_looks_at_who_runs_from_either_end(
    at: At, version: str, order: tuple[str, ...], victim: str, once_served: str
):
    built, _ = PROFILES["lmdeploy"].as_built("lmdeploy", version)
    one: dict[str, Any] = {"known": 2, "computed": 1, "table": [0]}
    running = {r: {**one, "table": [i]} for i, r in enumerate("abc")}
    s = evolve(at("lmdeploy", running=running, blocks=3), policy=built)
    assert visits.visiting(s) == order
    assert victims.eligible(s, victim) == ("a", "b", "c")  # none of them fits: each asks for room for one token more
    assert victims.victim(s, victim) == victim
    first = evolve(s, plan=evolve(s.plan, granted={"a": (1, 1)}))
    assert victims.victim(first, once_served) == once_served


@pytest.mark.parametrize("known", [1, 2, 5, 8])
def test_a_hit_leaves_a_token_to_compute(at: At, known: int):
    assert admission.hit_limit(at(waiting={"a": {"known": known}}), "a") == known - 1


OVERSIZE = [
    # prompt, outputs, max_length, blocks (page 2) → refused
    (4, 8, 12, 8, False),
    (4, 9, 12, 8, True),  # longer than the longest
    (4, 5, 12, 4, False),  # the last token needs no slot
    (4, 6, 12, 4, True),
]


@pytest.mark.parametrize(("prompt", "outputs", "longest", "blocks", "refused"), OVERSIZE)
def test_oversize(at: At, prompt: int, outputs: int, longest: int, blocks: int, refused: bool):
    s = at(waiting={"a": {"known": prompt, "max_tokens": outputs}}, max_length=longest, blocks=blocks)
    assert admission.oversize(s, s.request("a")) is refused


PATIENCE = [
    # policy, max_running, budget, max_length, long_prefill → K
    ("vllm-fcfs", 4, 16, 12, 0, 4 * 1 + 2),
    ("vllm-fcfs", 4, 5, 12, 0, 4 * 3 + 2),  # a refill takes three steps
    ("vllm-fcfs", 4, 16, 12, 2, 4 * 6 + 2),
    ("nano-vllm", 4, 16, 12, 0, 3),
    ("vllm-v0-swap", 4, 16, 12, 0, 3),
]


@pytest.mark.parametrize(("policy", "running", "budget", "longest", "cap", "k"), PATIENCE)
def test_patience(policy: str, running: int, budget: int, longest: int, cap: int, k: int):
    contract = PROFILES[policy].contract
    assert progress.patience(contract, Limits(running, budget, longest, cap)) == k
    # With three frames in flight the next decision sees what this one brings two steps later.
    assert progress.patience(contract, Limits(running, budget, longest, cap, frames=3)) == k + 2


@pytest.mark.parametrize(("tokens", "page", "blocks"), [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (3, 1, 3)])
def test_blocks_for(tokens: int, page: int, blocks: int):
    assert blocks_for(tokens, page) == blocks


def test_the_group_with_least_room_decides():
    groups = (ev.Group("a", "full", 2), ev.Group("b", "full", 3))
    assert blocks.table_room(groups, ((1, 2), (3,)), 9) == 3
    state = ev.Group("s", "recurrent", 1)
    assert blocks.table_room((groups[0], state), ((1, 2), (7,)), 9) == 4
    assert blocks.table_room((groups[0], state), ((1, 2), ()), 9) == 0
