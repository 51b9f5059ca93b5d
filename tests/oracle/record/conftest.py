"""The recorder over a scheduler of vLLM's shape (`fake_vllm`), without a process of its own or beside one."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from preempt_oracle.record import channel as channels
from preempt_oracle.record import keeper as keepers
from preempt_oracle.record import records
from preempt_oracle.record import scheduler as recorded
from preempt_oracle.record.settings import PREFIX

if TYPE_CHECKING:
    from tests.oracle.record.fake_vllm import FakeScheduler, Request, Status
else:  # importlib mode has no modules beside a test
    _spec = importlib.util.spec_from_file_location("fake_vllm", Path(__file__).with_name("fake_vllm.py"))
    fake = importlib.util.module_from_spec(_spec)
    sys.modules["fake_vllm"] = fake
    _spec.loader.exec_module(fake)
    FakeScheduler, Request, Status = fake.FakeScheduler, fake.Request, fake.Status

TRAITS = frozenset({"preempt-method", "reset"})
VERSION = "0.33.0"


class Direct:
    """A channel without a process behind it: each record is encoded, decoded, and kept at once, by the keeper's own."""

    def __init__(self, begun: records.Begun, limit: int) -> None:
        log = logging.getLogger("preempt_oracle.record").warning
        try:
            self.keeper = keepers.Keeper(records.FIRST.decode(records.ENCODER.encode(begun)), log)
        except keepers.Refusal as refused:
            raise channels.CannotStart(str(refused)) from None
        self._log = log

    @property
    def stopped(self) -> bool:
        return self.keeper.idle

    def put(self, record: records.Record) -> None:
        self.keeper.take(records.DECODER.decode(records.ENCODER.encode(record)))

    def flush(self) -> None: ...

    def close(self, last: records.Record, lost: Callable[[], int]) -> None:
        self.put(last)
        if count := lost():
            self._log("%d calls of the scheduler behind the end of the recording were not recorded", count)


def begin(scheduler: Any, **more: Any) -> Any:
    """The recorder, without a process of its own."""
    given: dict[str, Any] = {"version": VERSION, "traits": TRAITS, "listed": True, "connect": Direct}
    return recorded.begin(scheduler, **given | more)


Recorded = recorded.recording(FakeScheduler, begin)
Beside = recorded.recording(FakeScheduler, lambda s: begin(s, connect=channels.Channel))


def serve(scheduler: Any, requests: Iterable[Any], steps: int = 400) -> list[str]:
    """What an engine core does: add, step, run, until everybody is done. Returns what the callers would see."""
    waiting = list(requests)
    seen: list[str] = []
    for number in range(steps):
        while waiting and waiting[0].arrival_time <= number:
            scheduler.add_request(waiting.pop(0))
        if not waiting and not scheduler.requests:
            break
        output = scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        rows = []
        for name in names:
            request = scheduler.requests[name]
            done = request.num_computed_tokens == request.num_tokens
            rows.append([1000 + 7 * request.num_tokens] if done else [])
        told = SimpleNamespace(
            req_ids=names, sampled_token_ids=rows, req_id_to_index={name: i for i, name in enumerate(names)}
        )
        answer = scheduler.update_from_output(output, told)
        seen += [f"{o.request_id}:{o.new_token_ids}" for o in answer[0].outputs]
    return seen


def workload(count: int = 12, first: int = 100) -> list[Any]:
    return [
        Request(
            f"r{i}", [first + i, first + 1, first + 2 * i, first + 3][: 2 + i % 3], 3 + i % 4, arrival=float(i // 2)
        )
        for i in range(count)
    ]


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Set the recorder's variables; the directory is there unless another is named."""

    def configure(**values: str) -> Path:
        for name, value in {"DIR": str(tmp_path), **values}.items():
            monkeypatch.setenv(PREFIX + name, value)
        return tmp_path

    return configure


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the recorder wrote into the log."""
    caplog.set_level(logging.WARNING, logger="preempt_oracle.record")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "preempt_oracle.record"]


@pytest.fixture
def vllm() -> SimpleNamespace:
    """The pieces above, as importlib mode has no modules beside a test."""
    return SimpleNamespace(
        Recorded=Recorded,
        Beside=Beside,
        begin=begin,
        Plain=FakeScheduler,
        Request=Request,
        Status=Status,
        serve=serve,
        workload=workload,
    )
