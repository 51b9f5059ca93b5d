"""A child process of an adapter, spoken to as the harness does: one JSON line out, one JSON line back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest


class Speaker:
    """Sends commands, numbers them, and checks that each reply carries the number of its command."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None) -> None:
        self.process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        self.number = 0

    def line(self, text: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"no answer to {text}"
        reply = json.loads(answer)
        assert isinstance(reply, dict)
        return reply

    def __call__(self, do: str, **fields: Any) -> dict[str, Any]:
        self.number += 1
        reply = self.line(json.dumps({"id": self.number, "do": do, **fields}))
        assert reply.pop("id") == self.number
        return reply

    def run(self, config: Mapping[str, Any], work: Sequence[tuple[int, str, list[int], int]]) -> list[dict[str, Any]]:
        """Drive a workload of (step of arrival, request, prompt, max_tokens) to its end, or to an engine_error.

        Tokens are a function of request and position, given to every grant that reaches the last known token.
        """
        events = [self("start", config=config)]
        assert events[0]["event"] == "header", events[0]
        pending, known = sorted(work), dict[str, int]()
        for step in range(2_000):
            while pending and pending[0][0] <= step:
                arrival, name, prompt, limit = pending.pop(0)
                events.append(self("add", request=name, prompt=prompt, max_tokens=limit, arrival=arrival))
                assert events[-1]["event"] == "arrive", events[-1]
                known[name] = len(prompt)
            if not pending and not known:
                return events
            plan = self("step")
            events.append(plan)
            if plan["event"] == "engine_error":
                return events
            grants = zip(plan.get("requests", []), plan.get("start", []), plan.get("tokens", []), strict=True)
            names = [name for name, start, count in grants if start + count == known.get(name)]
            tokens = [[1_000 + known[name]] for name in names]
            events.append(self("deliver", frame=plan["frame"], requests=names, tokens=tokens))
            if events[-1]["event"] == "engine_error":
                return events
            for name in names:
                known[name] += 1
            for ended in events[-1]["finished"]:
                del known[ended["request"]]
        raise AssertionError(f"not finished after 2,000 steps: {known}")

    def end(self) -> tuple[int, str, str]:
        """End of input: (exit code, what was left on stdout, stderr)."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


def books_agree(events: Sequence[dict[str, Any]]) -> None:
    """Replay block deltas, releases and finishes, and compare with the engine's own free count and queues."""
    total = events[0]["pools"][0]["total"]
    page = events[0]["groups"][0]["page_size"]
    tables: dict[str, list[int]] = {}
    for event in events[1:]:
        for act in event.get("acts", []):
            if act["act"] == "release":
                assert act["blocks"] == [tables[act["request"]]]
                assert act["computed"] == 0
                tables[act["request"]] = []
        if event["event"] == "step":
            for name, _, blocks in event["blocks"]:
                tables.setdefault(name, []).extend(blocks)
            grants = zip(event.get("requests", []), event.get("start", []), event.get("tokens", []), strict=True)
            for name, start, count in grants:
                assert count > 0
                assert len(tables[name]) * page >= start + count
        for ended in event.get("finished", []):
            assert ended["blocks"] == [tables.pop(ended["request"])]
        if "observed" in event:
            owned = {block for table in tables.values() for block in table}
            assert event["observed"]["free"] == [total - len(owned)]
            assert not event["observed"]["held"]
            both = set(event["observed"]["running"]) & set(event["observed"]["waiting"])
            assert not both, f"in both queues: {both}"
    assert not any(tables.values())


@pytest.fixture
def agree() -> Callable[[Sequence[dict[str, Any]]], None]:
    """`books_agree`, for tests that cannot import this file."""
    return books_agree


@pytest.fixture
def speak() -> Iterator[Callable[..., Speaker]]:
    """Start a child process; whatever is still alive after the test is ended."""
    speakers: list[Speaker] = []

    def start(command: Sequence[str], env: Mapping[str, str] | None = None) -> Speaker:
        speakers.append(Speaker(command, env))
        return speakers[-1]

    yield start
    for speaker in speakers:
        if speaker.process.returncode is None:
            speaker.process.kill()
            speaker.process.communicate()
