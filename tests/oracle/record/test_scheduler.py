"""The recording scheduler over a scheduler of vLLM's shape (`conftest`)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from preempt_oracle.check import check
from preempt_oracle.engines.child import Unsupported
from preempt_oracle.record import capture, eyes, reading, scheduler
from preempt_oracle.record.settings import BadSetting
from preempt_oracle.trace import wire
from preempt_oracle.trace.reader import read
from preempt_oracle.verdict import Verdict


def one(directory: Path) -> Path:
    (file,) = directory.iterdir()
    return file


def test_what_is_recorded_conforms_and_the_caller_sees_no_difference(vllm, configured, logged):
    directory = configured()
    recorded, plain = vllm.Recorded(), vllm.Plain()
    assert vllm.serve(recorded, vllm.workload()) == vllm.serve(plain, vllm.workload())
    recorded.shutdown()
    tally = check(one(directory))
    assert (tally.verdict, tally.lost) == (Verdict.CONFORMS, 0)
    assert tally.preemptions > 3
    assert logged() == []


def test_a_wrong_victim_is_named_by_check_and_by_the_log_as_it_happens(vllm, configured, logged):
    directory = configured(ONLINE="on")
    recorded = vllm.Recorded()
    recorded.wrong = lambda s: s.running[0]
    vllm.serve(recorded, vllm.workload())
    recorded.shutdown()
    file = one(directory)
    tally = check(file)
    assert tally.verdict is Verdict.VIOLATES
    failure = tally.failures[0]
    (line,) = logged()
    assert line.startswith(f"{failure.violation.rule} is violated in step {failure.frame}, {file}, line ")
    assert failure.violation.message in line
    assert f"line {failure.where.rpartition(':')[2]}: " in line


def test_online_needs_no_files(vllm, configured, logged, monkeypatch):
    directory = configured(ONLINE="on")
    monkeypatch.delenv("PREEMPT_ORACLE_RECORD_DIR")
    recorded = vllm.Recorded()
    recorded.wrong = lambda s: s.running[0]
    assert len(vllm.serve(recorded, vllm.workload())) > 30
    assert [re.sub(r" \d+: .*", "", line) for line in logged()] == ["victim/choice is violated in step"]
    assert list(directory.iterdir()) == []
    assert recorded.capture.over


def test_hashed_content_never_shows_a_token(vllm, configured):
    directory = configured()
    recorded = vllm.Recorded()
    text = [5_000_000_001 + i for i in range(4)]
    recorded.add_request(vllm.Request("a", text, 4, cache_salt="tenant-of-salt"))
    recorded.add_request(vllm.Request("b", text, 4, cache_salt="tenant-of-salt"))
    recorded.add_request(vllm.Request("c", text, 4))
    vllm.serve(recorded, [])
    recorded.shutdown()
    raw = one(directory).read_text()
    outputs = [1000 + 7 * known for known in range(4, 8)]
    assert not re.search("|".join(rf"\b{token}\b" for token in [*text, *outputs]), raw)
    assert "tenant" not in raw
    events = [json.loads(line) for line in raw.splitlines()]
    assert events[0]["content"] == "hashed"
    a, b, c = (e for e in events if e["event"] == "arrive")
    assert a["prompt"] == b["prompt"]  # the same prefix is the same,
    assert len(set(a["prompt"])) == 4
    assert a["salt"] == b["salt"] != c.get("salt", "")
    assert check(one(directory)).failures == []


def test_no_two_series_hash_alike(vllm, configured):
    directory = configured()
    prompts = []
    for _ in range(2):
        recorded = vllm.Recorded()
        recorded.add_request(vllm.Request("a", [1, 2, 3], 1))
        recorded.shutdown()
    for file in directory.iterdir():
        prompts.append([line.prompt for _, line in read(file) if isinstance(line, wire.Arrive)])
    assert prompts[0] != prompts[1]


def test_plain_content_is_the_tokens(vllm, configured):
    directory = configured(CONTENT="plain")
    recorded = vllm.Recorded()
    vllm.serve(recorded, [vllm.Request("a", [11, 12, 13], 2)])
    recorded.shutdown()
    raw = one(directory).read_text()
    assert '"prompt":[11,12,13]' in raw
    assert '"tokens":[[1021]]' in raw
    assert '"content"' not in raw  # plain is the default of trace v1


def test_aborts_resets_and_pauses_are_recorded(vllm, configured):
    directory = configured()
    recorded = vllm.Recorded()
    for request in vllm.workload(6):
        recorded.add_request(request)
    output = recorded.schedule()
    rows = [[7] for _ in output.num_scheduled_tokens]
    told = type("Told", (), {"req_ids": list(output.num_scheduled_tokens), "sampled_token_ids": rows, "req_id_to_index": dict(zip(output.num_scheduled_tokens, (0, 1, 2), strict=False))})  # noqa: E501 # fmt: skip
    recorded.update_from_output(output, told)
    recorded.finish_requests(["r0", "r5"], vllm.Status("FINISHED_ABORTED"))
    recorded.reset_prefix_cache(True)
    recorded.set_pause_state(vllm.Status("PAUSED_ALL"))
    recorded.set_pause_state(vllm.Status("UNPAUSED"))
    vllm.serve(recorded, [])
    recorded.shutdown()
    kinds = [getattr(line, "kind", type(line).__name__) for _, line in read(one(directory))]
    at = kinds.index("Abort")
    assert kinds[at : at + 5] == ["Abort", "Abort", "reset", "pause", "resume"]
    assert check(one(directory)).failures == []


def test_an_id_no_trace_can_have_gets_another_name(vllm, configured):
    directory = configured()
    recorded = vllm.Recorded()
    vllm.serve(recorded, [vllm.Request("my <request>", [1, 2], 3), vllm.Request("plain", [1, 2], 3)])
    recorded.shutdown()
    assert "my <" not in one(directory).read_text()
    tally = check(one(directory))
    assert (tally.failures, tally.steps) == ([], 3)


# -- harming nobody ----------------------------------------------------------------------------------------------------


def test_what_has_no_words_ends_the_recording_and_nothing_else(vllm, configured, logged):
    directory = configured()
    recorded, plain = vllm.Recorded(), vllm.Plain()
    requests = vllm.workload()
    requests[5].mm_features = ["an image"]
    assert vllm.serve(recorded, requests) == vllm.serve(plain, vllm.workload())
    recorded.shutdown()
    tally = check(one(directory))
    assert (tally.failures, tally.lost) == ([], 1)
    assert logged()[0] == ("the recording stops: a request with images or other media came in, which is not recorded")
    assert re.fullmatch(r"\d+ calls of the scheduler behind the end of the recording were not recorded", logged()[1])


@pytest.mark.parametrize(
    ("where", "method"),
    [
        (eyes.Eyes, "_failed_for"),
        (eyes.Eyes, "_queued_again"),
        (eyes.Eyes, "_left"),
        (reading.Reading, "free"),
        (reading.Reading, "tables"),
        (capture.Capture, "_columns"),
        (capture.Capture, "_rows"),
        (capture.Frame, "__init__"),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_a_fault_of_ours_inside_the_engines_step_is_not_the_engines(
    vllm, configured, logged, monkeypatch, where, method, late
):
    original = getattr(where, method)
    calls = []

    def faulty(self, *args, **kwargs):
        calls.append(method)
        if len(calls) == 2:
            if late:
                original(self, *args, **kwargs)
            raise KeyError("a fault of ours")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(where, method, faulty)
    directory = configured()
    recorded, plain = vllm.Recorded(), vllm.Plain()
    assert vllm.serve(recorded, vllm.workload()) == vllm.serve(plain, vllm.workload())
    recorded.shutdown()
    assert len(calls) == 2
    assert "a fault of ours" in logged()[0]
    assert len([line for line in logged() if "stops" in line]) == 1
    tally = check(one(directory))
    assert (tally.failures, tally.lost) == ([], 1)
    assert "_preempt_request" not in vars(recorded)  # our eyes are off


def test_what_the_engine_raises_reaches_its_caller_and_is_the_last_event(vllm, configured, logged, monkeypatch):
    directory = configured()
    recorded = vllm.Recorded()
    recorded.add_request(vllm.Request("a", [1, 2], 3))
    monkeypatch.setattr(
        capture, "engine_error", lambda e, _: {"event": "engine_error", "origin": "engine", "kind": type(e).__name__,
                                               "message": str(e), "where": "vllm/x.py:1 in schedule"},
    )  # fmt: skip

    def breaks():
        raise IndexError("tokens [1, 2] of the prompt")

    recorded.breaks = breaks
    with pytest.raises(IndexError, match="of the prompt"):
        recorded.schedule()
    recorded.breaks = None
    vllm.serve(recorded, [])
    recorded.shutdown()
    tally = check(one(directory))
    assert [f.violation.rule for f in tally.failures] == ["live/survives"]
    assert "of the prompt" not in one(directory).read_text()


def test_a_call_that_raises_inside_an_allocation_is_made_once(vllm, configured):
    configured()
    recorded = vllm.Recorded()
    manager = recorded.kv_cache_manager
    calls = []

    def take(count):
        calls.append(count)
        raise MemoryError("the engine's own")

    manager.block_pool.take = take
    recorded.add_request(vllm.Request("a", [1, 2], 3))
    with pytest.raises(MemoryError, match="the engine's own"):
        recorded.schedule()
    assert calls == [1]
    recorded.shutdown()


# -- refused at start --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"DIR": "/no/such/directory"}, "PREEMPT_ORACLE_RECORD_DIR: '/no/such/directory': must be an existing"),
        ({"DIR": ""}, "PREEMPT_ORACLE_RECORD_DIR: '': must be"),
        ({"ONLINE": "yes"}, "PREEMPT_ORACLE_RECORD_ONLINE: 'yes': must be on or off"),
        ({"CONTENT": "text"}, "PREEMPT_ORACLE_RECORD_CONTENT: 'text': must be hashed"),
        ({"PART_MB": "0"}, "PREEMPT_ORACLE_RECORD_PART_MB: '0': must be a whole number of at least 1"),
        ({"PART_MB": "1.5"}, "PREEMPT_ORACLE_RECORD_PART_MB: '1.5'"),
        ({"PART_MB": "64", "LIMIT_MB": "63"}, "PREEMPT_ORACLE_RECORD_LIMIT_MB: '63': must be a whole number, at least"),
        ({"BUFFER_MB": "-1"}, "PREEMPT_ORACLE_RECORD_BUFFER_MB: '-1'"),
        ({"BUFFER_MB": "٣"}, "PREEMPT_ORACLE_RECORD_BUFFER_MB: '٣'"),
        ({"QUEUE": "5"}, "PREEMPT_ORACLE_RECORD_QUEUE: there is no such setting"),
        ({"UNVERIFIED": "on"}, "PREEMPT_ORACLE_RECORD_UNVERIFIED: 'on': must be record, or refuse"),
        ({"PARTS_MB": "5"}, "PREEMPT_ORACLE_RECORD_PARTS_MB: there is no such setting"),
    ],
)
def test_a_bad_setting_is_refused_by_name(vllm, configured, values, message):
    configured(**values)
    with pytest.raises(BadSetting) as refused:
        vllm.Recorded()
    assert str(refused.value).startswith(message)


def test_nothing_to_do_is_refused(vllm, configured, monkeypatch):
    configured()
    monkeypatch.delenv("PREEMPT_ORACLE_RECORD_DIR")
    with pytest.raises(BadSetting, match="there is nothing to do"):
        vllm.Recorded()


def test_an_unknown_version_is_refused_unless_asked_for(vllm, configured):
    directory = configured()
    unknown = scheduler.recording(vllm.Plain, lambda s: vllm.begin(s, version="9.9.9", listed=False))
    with pytest.raises(scheduler.CannotRecord, match=r"vLLM 9\.9\.9 is none of .*UNVERIFIED=record"):
        unknown()
    assert list(directory.iterdir()) == []
    configured(UNVERIFIED="record")
    recorded = unknown()
    recorded.shutdown()
    (_, header), *_ = read(one(directory))
    assert isinstance(header, wire.Header)
    assert "unverified version" in header.assumes


def test_a_scheduler_without_words_is_refused(vllm, configured):
    directory = configured()

    def changed(self):
        vllm.Plain.__init__(self)
        del self.kv_cache_manager.block_pool.free_block_queue

    connected = type("Connected", (vllm.Plain,), {"connector": object()})
    other = type("Changed", (vllm.Plain,), {"__init__": changed})
    for base, message in ((connected, "a KV connector"), (other, "Pool has no free_block_queue")):
        with pytest.raises(Unsupported, match=message):
            scheduler.recording(base, vllm.begin)()
    assert all(len(list(read(file))) == 2 for file in directory.iterdir())  # begun and ended: nothing is cut off
