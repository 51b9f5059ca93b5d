"""Copies between tiers in the replies of an adapter: told before their event, or behind it."""

from __future__ import annotations

from typing import Any

import pytest

from preempt_oracle.adapters.protocol import HarnessError, Refused, Session
from preempt_oracle.drive import Run, drive
from preempt_oracle.trace import wire
from preempt_properties.scenario import Add, Config, Scenario, Step

CONFIG = Config("vllm-fcfs", 4, 2, 2, 8, 8, caching=True, host_blocks=2)


class Canned:
    """One request of a page and its output; its page is stored behind the first frame, and is there with the third."""

    name = "canned"

    def __init__(self, can: str = "offload", **more: Any) -> None:
        self.can, self.more, self.frame = can, more, -1

    def exchange(self, command: dict[str, Any]) -> dict[str, Any]:
        return {"id": command["id"], **getattr(self, command["do"])(command)}

    def start(self, _: dict[str, Any]) -> dict[str, Any]:
        pools = [{"tier": "device", "group": 0, "total": 4}, {"tier": "host", "group": 0, "total": 2}]
        limits = {"max_running": 2, "budget": 8, "max_length": 8, "caching": True}
        return {
            "event": "header",
            "engine": "canned",
            "version": "1",
            "policy": "vllm-fcfs",
            "limits": limits,
            "groups": [{"page_size": 2}],
            "pools": pools,
            "observes": ["counts", "blocks", "copies", "host"],
            "capabilities": [self.can],
        }

    def add(self, command: dict[str, Any]) -> dict[str, Any]:
        return {"event": "arrive", "request": command["request"], "prompt": command["prompt"], "max_tokens": 2}

    def step(self, _: dict[str, Any]) -> dict[str, Any]:
        self.frame += 1
        reply: dict[str, Any] = {"event": "step", "frame": self.frame}
        if self.frame == 0:
            reply |= {"requests": ["a"], "tokens": [2], "start": [0], "blocks": [["a", 0, [0]]]}
            reply["later"] = [{"event": "copy_start", "copy": 7, "direction": "out", "blocks": [[0, 1, 0]]}]
        elif self.frame == 1:
            reply |= {"requests": ["a"], "tokens": [1], "start": [2], "blocks": [["a", 0, [1]]]}
            reply["earlier"] = [{"event": "copy_done", "copy": 7}]
        reply["observed"] = {"host_free": [2 if self.frame == 0 else 1]}
        return {**reply, **self.more}

    def deliver(self, command: dict[str, Any]) -> dict[str, Any]:
        told = {"event": "deliver", **{key: command[key] for key in ("frame", "requests", "tokens")}}
        return told if self.frame == 0 else {**told, "finished": [{"request": "a", "blocks": [[0, 1]]}]}

    def stop(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"event": "stopped"}

    def close(self) -> None:
        """Nothing to end."""


def test_copies_stand_where_they_were_told():
    out = drive(Session(Canned()), Scenario(CONFIG, (Add("a", (1, 2), 2), Step())))
    assert isinstance(out, Run)
    assert not out.violations
    kinds = [type(event).__name__ for event in out.events]
    assert kinds == ["Arrive", "Step", "CopyStart", "Deliver", "CopyDone", "Step", "Deliver", "Finish", "Step"]


def test_a_host_pool_needs_a_capability():
    out = drive(Session(Canned("reuse")), Scenario(CONFIG, (Add("a", (1, 2), 2),)))
    assert isinstance(out, Refused)
    assert "'host' or 'offload'" in out.reason


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("all", "expected a list of objects"),
        ([1], "expected a list of objects"),
        ([{"event": "step", "frame": 3}], "'step' is none of copy_start, copy_done, finish"),
        ([{"copy": 3}], "None is none of copy_start, copy_done, finish"),
        ([{"event": "copy_done"}], "copy"),
        ([{"event": "copy_done", "copy": 99}], "99 is not in flight"),
    ],
)
def test_copies_that_cannot_be_read_are_no_verdict(told, reason):
    with pytest.raises(HarnessError, match=reason):
        drive(Session(Canned(later=told)), Scenario(CONFIG, (Add("a", (1, 2), 2), Step())))


def test_nobody_is_over_before_a_step():
    session = Session(Canned(earlier=[{"event": "finish", "request": "a"}]))
    session.start(CONFIG)
    session.add(Add("a", (1, 2), 2))
    with pytest.raises(HarnessError, match="earlier: 'finish' is none of copy_start, copy_done"):
        session.step()


def test_who_is_over_because_a_load_failed_stands_behind_it():
    session = Session(Canned(later=[{"event": "finish", "request": "a", "reason": "error"}]))
    session.start(CONFIG)
    session.add(Add("a", (1, 2), 2))
    session.step()
    assert session.later == (wire.Finish("a", "error"),)


def test_the_last_reply_is_the_one_that_is_told_of():
    session = Session(Canned())
    session.start(CONFIG)
    session.add(Add("a", (1, 2), 2))
    session.step()
    assert [type(copy) for copy in session.later] == [wire.CopyStart]
    session.deliver(0, ["a"], [[5]])
    assert session.earlier == session.later == ()
