from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.engines import environments

pytestmark = pytest.mark.vllm

VERSIONS = environments.ENGINES["vllm"].driven
BASE = {
    "policy": "vllm-fcfs",
    "blocks": 4,
    "page_size": 2,
    "max_running": 2,
    "budget": 16,
    "max_length": 8,
    "long_prefill": 0,
    "chunked": True,
    "caching": False,
    "whole_fit": True,
    "watermark": 0,
    "seed": 0,
    "options": {},
}


def environment(version: str) -> environments.Environment:
    found = environments.ready("vllm", version)
    if found is None:
        pytest.skip(f"needs `preempt-oracle engines install vllm=={version}`")
    return found


class Vllm:
    """One child process for all tests of a version: importing vLLM takes half a minute."""

    def __init__(self, version: str, command: Sequence[str] | None = None) -> None:
        found = environment(version)
        self.version = version
        self.transport = Stdio(command or found.command, f"vLLM {version}", env=found.env)
        self.number = 0

    def __call__(self, do: str, **fields: Any) -> dict[str, Any]:
        self.number += 1
        reply = self.transport.exchange({"id": self.number, "do": do, **fields})
        assert reply.pop("id") == self.number
        return reply

    def start(self, **changes: Any) -> dict[str, Any]:
        self.known: dict[str, int] = {}
        self.events = [self("start", config={**BASE, **changes})]
        return self.events[0]

    def add(self, name: str, prompt: list[int], limit: int, **fields: Any) -> dict[str, Any]:
        reply = self("add", request=name, prompt=prompt, max_tokens=limit, **fields)
        if reply["event"] == "arrive":
            self.known[name] = len(prompt)
        self.events.append(reply)
        return reply

    def abort(self, name: str) -> None:
        del self.known[name]
        self.events.append(self("abort", request=name))
        assert self.events[-1]["event"] == "abort"

    def turn(self, between: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """A step and its delivery: a token for every grant that reaches the last known one. Returns the step."""
        step = self("step")
        assert step["event"] == "step", step
        self.events.append(step)
        between()
        grants = zip(step["requests"], step["start"], step["tokens"], strict=True)
        names = [name for name, start, count in grants if start + count == self.known.get(name)]
        tokens = [[100 + self.known[name]] for name in names]
        told = self("deliver", frame=step["frame"], requests=names, tokens=tokens)
        assert told["emitted"] == tokens
        self.events.append(told)
        for name in names:
            self.known[name] += 1
        for ended in told["finished"]:
            del self.known[ended["request"]]
        return step


@pytest.fixture(scope="module", params=VERSIONS)
def vllm(request: pytest.FixtureRequest) -> Iterator[Vllm]:
    vllm = Vllm(request.param)
    yield vllm
    vllm.transport.close()


def books_agree(events: Sequence[dict[str, Any]]) -> None:
    """Replay deltas, plans and releases by true block id, and compare with vLLM's free list and reference counts."""
    usable = set(range(1, events[0]["pools"][0]["total"]))
    owned: dict[str, list[int]] = {}
    told: dict[str, list[int]] = {}
    for event in events[1:]:
        for act in event.get("acts", []):
            if act["act"] == "plan":
                owned.setdefault(act["request"], []).extend(act["blocks"][0])
            elif act["act"] == "release":
                assert act["blocks"] == [owned.pop(act["request"])]
        for name, _, ids in event.get("blocks", []) if event["event"] == "step" else []:
            owned.setdefault(name, []).extend(ids)
        for name, _, ids, *full in event.get("sent", []):
            told[name] = ids if full else told[name] + ids
        for name in event["requests"] if event["event"] == "step" else []:
            assert told[name] == owned[name]
        for ended in event.get("finished", []):
            assert ended["blocks"] == [owned.pop(ended["request"])]
        if "observed" in event:
            seen = event["observed"]
            uses = Counter(block for table in owned.values() for block in table)
            assert (sorted(seen["free_ids"][0]), seen["free"]) == (
                sorted(usable - set(uses)),
                [len(usable - set(uses))],
            )
            assert sorted(seen["refs"]) == sorted([0, block, n] for block, n in uses.items() if n > 1)
            assert set(owned) <= set(seen["running"])
            assert seen["held"] == []
    assert not owned


def brief(step: dict[str, Any]) -> list[str]:
    """The acts of a step as words, so that their order can be read."""
    return [f"{act['act']} {act.get('request', act.get('blocks'))} after {act['after']}" for act in step["acts"]]


def test_the_header_counts_the_null_block_apart_and_names_the_version(vllm):
    header = vllm.start()
    assert (header["engine"], header["version"]) == ("vllm", vllm.version)
    assert header["pools"] == [{"tier": "device", "group": 0, "total": 5, "reserved": 1}]
    assert "unverified version" not in header["assumes"]
    assert {"blocks", "free-ids", "refs", "sent", "trigger", "publish"} <= set(header["observes"])


def test_a_large_pool_is_not_walked_in_every_step(vllm):
    header = vllm.start(blocks=65, max_length=130)
    assert not {"free-ids", "refs"} & set(header["observes"])
    vllm.add("a", [1, 2, 3], 1)
    assert set(vllm.turn()["observed"]) == {"free", "running", "waiting", "held", "preemptions", "cached"}


def test_fcfs_preempts_the_last_runner_and_brings_it_back_in_full(vllm):
    vllm.start()
    vllm.add("a", [1, 2, 3], 4)
    vllm.add("b", [4, 5, 6], 4, arrival=1)
    first, second, third = vllm.turn(), vllm.turn(), vllm.turn()
    assert first["blocks"] == [["a", 0, [1, 2]], ["b", 0, [3, 4]]]
    assert first["sent"] == [["a", 0, [1, 2], True], ["b", 0, [3, 4], True]]
    assert (second["requests"], second["blocks"], second["sent"]) == (["a", "b"], [], [])
    demote, release, requeue = third["acts"]
    assert demote == {
        "act": "demote",
        "request": "b",
        "after": 0,
        "cause": "growth",
        "beneficiaries": ["a"],
        "need": 1,
        "supply": 0,
    }
    assert release == {"act": "release", "request": "b", "after": 0, "blocks": [[3, 4]], "computed": 0, "drafts": 0}
    assert requeue == {"act": "requeue", "request": "b", "after": 0, "index": 0, "known": 5}
    assert (third["requests"], third["tokens"], third["start"]) == (["a"], [1], [4])
    assert third["observed"]["waiting"] == ["b"]
    while "a" in vllm.known:
        vllm.turn()
    back = vllm.turn()
    assert back["resumed"] == [["b", 5]]
    assert (back["requests"], back["tokens"], back["start"]) == (["b"], [5], [0])
    ((name, _, sent, full),) = back["sent"]
    assert (name, full, [[name, 0, sent]]) == ("b", True, back["blocks"])
    while vllm.known:
        vllm.turn()
    books_agree(vllm.events)


def rolled_back(vllm: Vllm, **changes: Any) -> dict[str, Any]:
    """PRIORITY: "lo" gets a chunk of four tokens, then "hi" behind it lacks a block and takes it all back."""
    vllm.start(
        policy="vllm-priority", blocks=10, budget=6, max_length=20, long_prefill=4, caching=True, options=changes
    )
    vllm.add("lo", list(range(100, 119)), 1, priority=9)
    vllm.turn()
    vllm.add("hi", [7], 3, arrival=1)
    vllm.turn()
    vllm.turn()
    return vllm.turn()


def test_priority_takes_a_grant_back_that_it_made_in_the_same_step(vllm):
    step = rolled_back(vllm)
    assert (step["requests"], step["tokens"], step["start"]) == (["hi"], [1], [2])
    assert brief(step) == [
        "plan lo after 0",
        "publish lo after 0",
        "demote lo after 0",
        "release lo after 0",
        "requeue lo after 0",
        "unplan lo after 0",
        "withdraw [10] after 0",
    ]
    plan, publish, demote, release, requeue, unplan, _ = step["acts"]
    assert (plan["start"], plan["tokens"], plan["blocks"]) == (14, 4, [[9, 10]])
    assert publish["blocks"] == [9, 10]
    assert (demote["beneficiaries"], demote["need"], demote["supply"]) == (["hi"], 1, 0)
    assert release["blocks"] == [[1, 2, 3, 4, 5, 7, 8, 9, 10]]
    assert requeue["known"] == 19
    assert unplan["tokens"] == 4


def test_a_taken_back_grant_leaves_a_hash_of_what_was_never_computed(vllm):
    """A finding in vLLM 0.31.0 and 0.33.0: block 9 was to hold positions 14 and 15, and is then hit as if it did."""
    rolled_back(vllm)
    while "hi" in vllm.known:
        vllm.turn()
    back = vllm.turn()
    assert back["hits"] == [["lo", 16]]
    assert back["start"] == [16]
    assert ["lo", 0, [1, 2, 3, 4, 5, 7, 8, 9]] in [[name, group, ids[:8]] for name, group, ids, *_ in back["sent"]]


def test_both_runners_tell_the_same_story(vllm):
    told = []
    for v2_runner in (False, True):
        rolled_back(vllm, v2_runner=v2_runner)
        while vllm.known:
            vllm.turn()
        told.append(vllm.events[1:])
    assert told[0] == told[1]
    assert [event["resumed"] for event in told[0] if event.get("resumed")] == [[["lo", 19]]]


def test_an_abort_while_the_frame_flies_drops_its_output(vllm):
    vllm.start(caching=True)
    vllm.add("a", [1, 2, 3], 4)
    vllm.turn(lambda: vllm.abort("a"))
    abort = vllm.events[-2]
    assert abort["blocks"] == [[1, 2]]
    assert abort["observed"]["free"] == [4]


def test_vllm_refuses_to_start_where_its_own_checks_do(vllm):
    for changes, word in (
        ({"max_length": 9}, "max_length"),
        ({"budget": 1}, "max_num_batched_tokens"),
        ({"chunked": False, "budget": 7}, "max_model_len"),
        ({"long_prefill": 9}, "long_prefill_token_threshold"),
        ({"page_size": 0}, "page_size"),
        ({"polcy": ""}, "polcy"),
        ({"options": {"v3": True}}, "v3"),
    ):
        reply = vllm.start(**changes)
        assert reply["event"] == "refused", changes
        assert word in reply["reason"]


def test_the_front_end_rejects_and_clips(vllm):
    vllm.start()
    reject = vllm.add("a", [1] * 8, 1)
    assert reject["event"] == "reject"
    assert "mirrored" in reject["reason"]
    assert vllm.add("a", [1] * 6, 9)["max_tokens"] == 2
    assert vllm.add("a", [1], 1)["event"] == "refused"  # alive: vLLM's front end never reuses an id


def test_a_reset_preempts_whoever_runs_and_withdraws_every_hash(vllm):
    vllm.start(caching=True)
    vllm.add("a", [1, 2, 3], 4)
    vllm.turn()
    reset = vllm("control", kind="reset")
    assert [(act["act"], act["after"]) for act in reset["acts"]] == [
        ("demote", 0),
        ("release", 0),
        ("requeue", 0),
        ("withdraw", 0),
    ]
    assert reset["acts"][0]["cause"] == "reset"
    assert vllm.turn()["hits"] == [["a", 0]]


@pytest.mark.parametrize("seed", range(30))
def test_books_agree(vllm, seed):
    rng = random.Random(seed)
    page, blocks = rng.randint(1, 4), rng.randint(3, 12)
    header = vllm.start(
        policy=rng.choice(environments.ENGINES["vllm"].policies),
        blocks=blocks,
        page_size=page,
        max_running=3,
        budget=rng.randint(3, 12),
        max_length=blocks * page,
        long_prefill=rng.choice([0, 2]),
        caching=rng.random() < 0.6,
        watermark=rng.choice([0, 1]),
        options={"v2_runner": rng.random() < 0.5},
    )
    assert header["event"] == "header", header
    for number in range(5):
        prompt = [rng.choice([7, 7, 8]) for _ in range(rng.randint(1, max(1, blocks * page // 2)))]
        vllm.add(f"r{number}", prompt, rng.randint(1, 9), priority=rng.randint(0, 1), arrival=number)
    for _ in range(400):
        if not vllm.known:
            break
        vllm.turn()
    assert not vllm.known
    books_agree(vllm.events)


def test_a_scheduler_without_a_watched_method_is_a_broken_adapter_that_names_it():
    found = environment(VERSIONS[-1])
    code = f"""
import runpy, sys
sys.path.insert(0, {str(found.child.parent)!r})
import child
child.claim()
from vllm.v1.core.block_pool import BlockPool
del BlockPool.cache_full_blocks
runpy.run_path({str(found.child)!r}, run_name="__main__")
"""
    vllm = Vllm(VERSIONS[-1], [found.python, "-c", code])
    try:
        reply = vllm.start()
    finally:
        vllm.transport.close()
    assert (reply["event"], reply["origin"], reply["kind"]) == ("engine_error", "adapter", "Unsupported")
    assert "BlockPool has no cache_full_blocks" in reply["message"]
