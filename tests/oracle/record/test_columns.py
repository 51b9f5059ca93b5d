"""From columns back to events: what is left out of them, and what is looked at only now and then."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from preempt_oracle.check import check
from preempt_oracle.engines import vllm_books
from preempt_oracle.record import reading, shape
from preempt_oracle.record.records import Demoted, Short
from preempt_oracle.record.timeline import Made, segments
from preempt_oracle.trace import wire
from preempt_oracle.trace.reader import read
from preempt_oracle.verdict import Verdict


def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on a pool is large, whatever its size."""
    monkeypatch.setattr(vllm_books, "SMALL", 0)
    monkeypatch.setattr(shape, "SMALL", 0)


def stood(*names: str) -> list[Made]:
    return [Made(name, 1, True) for name in names]


def test_grants_stand_where_they_were_made_and_those_taken_back_too():
    # a, b and c were granted; d could not grow: b is preempted, and its grant taken back. Then d could not grow again:
    # e is preempted, which had none. Then d and f were granted.
    first = Demoted("b", 7, Short("d", 4, 1, 0, True, 3, 1, 5))
    second = Demoted("e", 0, Short("d", 4, 1, 0, True, 2))
    found = segments([("a", 1), ("c", 1), ("d", 1), ("f", 1)], [first, second])
    assert found == [[*stood("a"), Made("b", 5, False), *stood("c")], [], stood("d", "f")]


def test_a_victim_granted_behind_an_earlier_one_is_in_the_segment_between():
    first = Demoted("x", 0, Short("b", 4, 1, 0, True, 1))
    second = Demoted("b", 3, Short("c", 4, 1, 0, True, 2, 1, 2))
    assert segments([("a", 1), ("c", 1)], [first, second]) == [stood("a"), [Made("b", 2, False)], stood("c")]


def test_a_reset_takes_nothing_back():
    assert segments([], [Demoted("a", 0), Demoted("b", 0)]) == [[], [], []]


def recorded_events(vllm, configured, directory: Path, wrong=None) -> list[wire.Line]:
    before = {*directory.iterdir()}
    recorded = vllm.Recorded()
    recorded.wrong = wrong
    vllm.serve(recorded, vllm.workload(40))
    recorded.shutdown()
    (file,) = {*directory.iterdir()} - before
    return [line for _, line in read(file)][1:-1]


@pytest.mark.parametrize("wrong", [None, lambda s: s.running[0]])  # the second takes grants back
def test_a_large_pool_is_told_of_as_a_small_one_but_for_its_blocks(vllm, configured, monkeypatch, wrong):
    directory = configured(CONTENT="plain")
    whole = recorded_events(vllm, configured, directory, wrong)
    large(monkeypatch)
    some = recorded_events(vllm, configured, directory, wrong)
    bare = [
        replace(e, observed=replace(e.observed, free_ids=None, refs=None))  # type: ignore[union-attr]
        if getattr(e, "observed", None)
        else e
        for e in whole
    ]
    assert some == bare
    assert len(some) > 100


def test_a_table_that_grows_behind_the_workers_back_is_found_with_the_next_look_at_all(vllm, configured, monkeypatch):
    large(monkeypatch)
    directory = configured()
    recorded = vllm.Recorded(blocks=20)
    recorded.add_request(vllm.Request("a", [1, 2], 8))
    recorded.add_request(vllm.Request("b", [1, 2], 8))
    manager, steps = recorded.kv_cache_manager, []

    def leaks():
        steps.append(len(manager.tables["a"]))
        if len(steps) == 3:
            manager.tables["a"] += manager.block_pool.take(1)

    recorded.breaks = leaks
    monkeypatch.setattr(reading, "AUDIT", 5)
    monkeypatch.setattr("preempt_oracle.record.capture.AUDIT", 5)
    vllm.serve(recorded, [])
    recorded.shutdown()
    tally = check(next(directory.iterdir()))
    assert tally.verdict is Verdict.VIOLATES
    assert tally.failures[0].frame <= 5


def test_a_token_that_the_request_gets_and_the_user_does_not_is_found_with_the_next_look_at_all(
    vllm, configured, monkeypatch
):
    large(monkeypatch)
    directory = configured(CONTENT="plain")
    monkeypatch.setattr("preempt_oracle.record.capture.AUDIT", 2)
    recorded = vllm.Recorded(blocks=20)
    recorded.add_request(vllm.Request("a", [1, 2], 8))
    original = recorded._engine_update

    def adds(output, sampled):
        answer = original(output, sampled)
        request = recorded.requests.get("a")
        if request is not None and len(request._output_token_ids) == 3:
            request._output_token_ids[-1] = 77
        return answer

    recorded._engine_update = adds
    vllm.serve(recorded, [])
    recorded.shutdown()
    events = [line for _, line in read(next(directory.iterdir()))]
    odd = [e for e in events if isinstance(e, wire.Deliver) and e.emitted is not None and e.emitted != e.tokens]
    assert [e.emitted for e in odd] == [((77,),)]
