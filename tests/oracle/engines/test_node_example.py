"""The example for authors of schedulers in other languages must be right: it is what they start from."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from preempt_oracle.adapters.protocol import Session
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.campaign import Budget, campaign
from preempt_oracle.verdict import Verdict

SCRIPT = Path(__file__).parents[3] / "examples" / "stdio_scheduler.js"
CONFIG = {
    "policy": "vllm-fcfs",
    "blocks": 6,
    "page_size": 2,
    "max_running": 3,
    "budget": 64,
    "max_length": 12,
    "long_prefill": 0,
    "chunked": True,
    "caching": False,
    "whole_fit": True,
    "watermark": 0,
    "seed": 0,
    "options": {},
}


@pytest.fixture
def node(speak):
    found = shutil.which("node")
    if found is None:
        pytest.skip("needs Node.js (`node` on the path)")
    return speak([found, str(SCRIPT)])


def acts(events, kind):
    return [act for event in events for act in event.get("acts", []) if act["act"] == kind]


def test_the_last_running_request_is_the_victim_and_waits_in_front(node, agree):
    events = node.run(CONFIG, [(0, "a", [1] * 4, 8), (0, "b", [2] * 4, 8), (1, "c", [3] * 2, 2)])
    agree(events)
    first = acts(events, "demote")[0]
    assert first["request"] == "b"
    assert first["beneficiaries"] == ["a"]
    assert first["supply"] < first["need"]
    step = next(event for event in events if first in event.get("acts", []))
    assert step["observed"]["waiting"] == ["b", "c"]
    assert step["requests"] == ["a"], "nobody is admitted in a step that preempts"
    (resumed,) = [event["resumed"] for event in events if event.get("resumed")]
    assert resumed == [["b", acts(events, "requeue")[0]["known"]]]


@pytest.mark.parametrize("budget", [1, 2, 3, 5, 64])
def test_a_prefill_is_split_when_the_budget_is_small(node, agree, budget):
    events = node.run({**CONFIG, "budget": budget}, [(0, "a", [1] * 5, 3), (0, "b", [2] * 4, 3)])
    agree(events)
    steps = [event for event in events if event["event"] == "step"]
    assert all(sum(step["tokens"]) <= budget for step in steps)
    first = [
        count for step in steps for name, count in zip(step["requests"], step["tokens"], strict=True) if name == "a"
    ]
    assert first[0] == min(5, budget)


@pytest.mark.parametrize("seed", range(12))
def test_random_workloads_end_with_every_book_in_order(node, agree, seed):
    rng = random.Random(seed)
    config = {**CONFIG, "blocks": 6, "page_size": rng.randint(2, 4), "budget": rng.randint(1, 20)}
    work = []
    for number in range(6):
        prompt = rng.randint(1, 11)
        work.append((rng.randint(0, 5), f"r{number}", [number] * prompt, rng.randint(1, 12 - prompt)))
    events = node.run(config, work)
    agree(events)
    assert node.run(config, work) == events


def test_an_aborted_request_gives_its_blocks_back_and_what_flies_for_it_is_dropped(node):
    node("start", config=CONFIG)
    node("add", request="a", prompt=[1, 2, 3], max_tokens=4)
    assert node("step")["blocks"] == [["a", 0, [0, 1]]]
    aborted = node("abort", request="a")
    assert aborted["blocks"] == [[0, 1]]
    assert aborted["observed"]["free"] == [6]
    node("add", request="a", prompt=[9], max_tokens=4)  # the id is used again before the frame lands
    landed = node("deliver", frame=0, requests=["a"], tokens=[[7]])
    assert (landed["disposition"], landed["emitted"], landed["finished"]) == (["dropped"], [[]], [])
    assert node("step")["tokens"] == [1]


@pytest.mark.parametrize(
    "change", [{"policy": "vidur-vllm"}, {"caching": True}, {"watermark": 1}, {"chunked": False}, {"max_length": 13}]
)
def test_what_it_does_not_do_it_refuses(node, change):
    assert node("start", config={**CONFIG, **change})["event"] == "refused"


def test_what_is_too_long_is_rejected_alone(node):
    node("start", config=CONFIG)
    assert node("add", request="a", prompt=[1] * 9, max_tokens=4)["event"] == "reject"
    assert node("add", request="b", prompt=[1] * 8, max_tokens=4)["event"] == "arrive"


@pytest.mark.parametrize("line", ["garbage", "[]", "null", '{"id":5,"do":"toString"}'])
def test_what_is_no_command_is_answered_and_ends_with_3(node, line):
    assert node.line(line)["origin"] == "protocol"
    assert node.end() == (3, "", "")


def test_the_end_of_input_is_a_clean_end(node):
    node("start", config=CONFIG)
    assert node("stop") == {"event": "stopped"}
    assert node.end() == (0, "", "")


def test_it_conforms():
    found = shutil.which("node")
    if found is None:
        pytest.skip("needs Node.js (`node` on the path)")
    done = campaign(
        lambda: Session(Stdio([found, str(SCRIPT)], "example")),
        "vllm-fcfs",
        seed=1,
        budget=Budget(workloads=40),
        save=lambda violation, reduced, origin, run: ("", ""),
    )
    assert done.tally.verdict is Verdict.CONFORMS, (done.tally.missing, done.tally.failures, done.broken)
