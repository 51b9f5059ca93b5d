from __future__ import annotations

import random

import pytest

from preempt_oracle.engines import environments

pytestmark = pytest.mark.light

SMALL = {"page_size": 2, "max_running": 2, "chunked": False, "whole_fit": True, "long_prefill": 0, "watermark": 0}
VIDUR = {**SMALL, "policy": "vidur-vllm", "blocks": 3, "budget": 16, "max_length": 7, "caching": False}
REPAIRED = {**VIDUR, "options": {"repair": True}}
NANO = {**SMALL, "policy": "nano-vllm", "blocks": 4, "budget": 16, "max_length": 7, "caching": True}


def live(speak, name):
    version = environments.ENGINES[name].versions[-1]
    found = environments.ready(name, version)
    if found is None:
        pytest.skip(f"needs `preempt-oracle engines install {name}=={version}`")
    return speak(found.command, found.env)


@pytest.fixture
def vidur(speak):
    return live(speak, "vidur")


@pytest.fixture
def nano(speak):
    return live(speak, "nano-vllm-fork")


def acts(events, kind):
    return [act for event in events for act in event.get("acts", []) if act["act"] == kind]


def workload(seed, longest):
    rng = random.Random(seed)
    for number in range(rng.randint(2, 6)):
        prompt = rng.randint(1, longest - 1)
        tokens = [rng.randint(1, 9) for _ in range(prompt)]
        yield rng.choice([0, rng.randint(0, 9)]), f"r{number}", tokens, rng.randint(1, longest - prompt)


def test_vidur_declares_no_block_ids_and_nothing_it_does_not_have(vidur):
    header = vidur("start", config=VIDUR)
    assert (header["engine"], header["version"], header["assumes"]) == ("vidur", "0.0.26", [])
    assert not {"blocks", "free-ids", "refs", "sent", "hits", "publish", "emitted", "reject"} & set(header["observes"])
    assert header["limits"]["chunked"] is False


def test_vidur_crashes_on_every_resume_because_restart_keeps_the_stage_counter(vidur):
    *before, error = vidur.run(VIDUR, [(0, "a", [1, 2, 3, 4, 5], 2)])
    (demoted,) = acts(before, "demote")
    assert demoted["beneficiaries"] == ["a"]
    assert (error["origin"], error["kind"]) == ("engine", "AssertionError")
    assert error["where"].startswith("vidur/entities/request.py:")
    assert error["where"].endswith(" in on_batch_stage_end")


def test_vidur_repaired_finishes_and_says_what_was_repaired(vidur, agree):
    events = vidur.run(REPAIRED, [(0, "a", [1, 2, 3, 4, 5], 2)])
    assert "repaired" in events[0]["assumes"][0]
    assert [event["resumed"] for event in events if event.get("resumed")] == [[["a", 6]]]
    assert acts(events, "release") == [
        {"act": "release", "request": "a", "after": 0, "blocks": [[0, 1, 2]], "computed": 0}
    ]
    assert acts(events, "requeue")[0]["index"] == 0
    agree(events)


@pytest.mark.parametrize("seed", range(12))
def test_vidur_repaired_keeps_its_books(vidur, agree, seed):
    config = {**REPAIRED, "blocks": 6, "page_size": 1 + seed % 4, "max_running": 4, "watermark": seed % 2}
    config["max_length"] = (6 - config["watermark"]) * config["page_size"] + 1
    config["budget"] = config["max_length"] + 5
    work = list(workload(seed, config["max_length"]))
    events = vidur.run(config, work)
    agree(events)
    for act in acts(events, "demote"):
        assert act["supply"] == 0 < act["need"]
    assert vidur.run(config, work) == events, "the same workload gives the same trace"


@pytest.mark.parametrize(
    "change",
    [
        {"policy": "vllm-fcfs"},
        {"caching": True},
        {"chunked": True},
        {"whole_fit": False},
        {"budget": 5},
        {"watermark": 1},
        {"max_length": 8},
        {"blocks": 0},
        {"page_size": "2"},
        {"options": {"fast": True}},
    ],
)
def test_vidur_refuses_what_is_outside_its_contract(vidur, change):
    assert vidur("start", config={**VIDUR, **change})["event"] == "refused"
    assert vidur("start", config=VIDUR)["event"] == "header"


def test_requests_outside_the_contract_and_aborts_are_refused_not_rejected(vidur, nano):
    for engine, config in ((vidur, VIDUR), (nano, NANO)):
        engine("start", config=config)
        assert engine("add", request="a", prompt=[1] * 6, max_tokens=2)["event"] == "refused"
        assert engine("add", request="a", prompt=[], max_tokens=2)["event"] == "refused"
        assert engine("add", request="a", prompt=[1], max_tokens=2)["event"] == "arrive"
        assert engine("add", request="a", prompt=[1], max_tokens=2)["event"] == "refused"
        assert engine("abort", request="a") == {"event": "refused", "reason": "this engine has no abort"}
        assert engine("step")["requests"] == ["a"]
        assert engine("step")["event"] == "refused", "one frame at a time"
        assert engine("deliver", frame=0, requests=["a"], tokens=[[5]])["finished"] == []


def test_an_idle_step_is_written_with_its_reason(vidur, nano):
    for engine, config, free in ((vidur, VIDUR, 3), (nano, NANO, 4)):
        engine("start", config=config)
        step = engine("step")
        assert (step["reason"], step["observed"]["free"]) == ("idle", [free])
        assert engine("deliver", frame=step["frame"], requests=[], tokens=[])["finished"] == []


def test_nano_shows_true_ids_reference_counts_hits_and_hashes(nano):
    nano("start", config=NANO)
    for name in "ab":
        nano("add", request=name, prompt=[7, 8, 9], max_tokens=2)
    step = nano("step")
    assert step["blocks"] == [["a", 0, [0, 1]], ["b", 0, [0, 2]]]
    assert (step["requests"], step["start"], step["tokens"]) == (["a", "b"], [0, 2], [3, 1])
    assert step["hits"] == [["a", 0], ["b", 2]]
    assert step["acts"] == [{"act": "publish", "after": 1, "request": "a", "blocks": [0]}]
    assert step["observed"]["refs"] == [[0, 0, 2]]
    assert step["observed"]["free_ids"] == [[3]]
    assert nano("deliver", frame=0, requests=["a", "b"], tokens=[[1], [2]])["emitted"] == [[1], [2]]
    step = nano("step")
    assert [act["blocks"] for act in step["acts"]] == [[1], [2]]
    ended = nano("deliver", frame=1, requests=["a", "b"], tokens=[[3], [4]])["finished"]
    assert [one["blocks"] for one in ended] == [[[0, 1]], [[0, 2]]]
    gone = nano("step")["acts"]  # of the finishes: a delivery has no acts, so they stand in front of the next step's
    assert [(act["act"], act["after"], act["blocks"]) for act in gone] == [
        ("withdraw", 0, [1]),
        ("withdraw", 0, [0, 2]),
    ]


def test_nano_leaves_a_victim_in_both_queues_and_then_crashes(nano):
    *events, error = nano.run(NANO, [(0, "a", [0], 4), (0, "b", [0, 1, 2, 3], 3)])
    books = [event["observed"] for event in events if event["event"] == "step"][-1]
    assert "b" in books["running"]
    assert "b" in books["waiting"]
    assert (error["origin"], error["kind"]) == ("engine", "IndexError")
    assert error["where"].startswith("nanovllm/engine/block_manager.py:")


def test_nano_takes_the_next_in_order_as_its_victim_not_the_last(nano):
    config = {**NANO, "blocks": 3, "max_running": 3}
    events = nano.run(config, [(0, name, [number] * 2, 3) for number, name in enumerate("abc")])
    first = acts(events, "demote")[0]
    assert (first["request"], first["beneficiaries"], first["need"], first["supply"]) == ("b", ["a"], 1, 0)


def test_nano_grants_no_token_at_all_on_a_full_hit(nano):
    nano("start", config={**NANO, "page_size": 3, "blocks": 2, "max_length": 4})
    for name in "ab":
        nano("add", request=name, prompt=[0, 1, 2], max_tokens=1)
    step = nano("step")
    assert (step["requests"], step["tokens"], step["hits"]) == (["a", "b"], [3, 0], [["a", 0], ["b", 3]])


def test_nano_without_pressure_keeps_its_books(nano, agree):
    config = {**NANO, "blocks": 60, "page_size": 3, "max_running": 6, "budget": 60, "max_length": 20}
    events = nano.run(config, [(n, f"r{n}", [n] * (n + 1), 6) for n in range(6)])
    assert not acts(events, "demote")
    agree(events)


@pytest.mark.parametrize(
    "change",
    [{"policy": "vidur-vllm"}, {"caching": False}, {"page_size": 1}, {"budget": 6}, {"blocks": 2}, {"watermark": 1}],
)
def test_nano_refuses_what_is_outside_its_contract(nano, change):
    assert nano("start", config={**NANO, **change})["event"] == "refused"
