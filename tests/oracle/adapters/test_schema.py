"""The published schema of the stdio protocol is current, and is what is really spoken."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest

from preempt_oracle.adapters.inprocess import InProcess
from preempt_oracle.adapters.protocol import HarnessError, Session, Transport
from preempt_oracle.adapters.reference import ReferenceEngine
from preempt_oracle.adapters.schema import COMMANDS, SCHEMA_FILE, protocol_schema, schema_text
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.drive import drive
from preempt_oracle.engines import child
from preempt_properties.scenario import Abort
from preempt_properties.workload import CAPABILITIES, workload

EXAMPLE = Path(__file__).parents[3] / "examples" / "stdio_scheduler.js"


def validator(part: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**protocol_schema(), "anyOf": [{"$ref": f"#/$defs/{part}"}]})


class Overheard:
    """A transport that keeps what it carries."""

    def __init__(self, inner: Transport) -> None:
        self.inner, self.name = inner, inner.name
        self.commands: list[dict[str, Any]] = []
        self.replies: list[dict[str, Any]] = []

    def exchange(self, command: dict[str, Any]) -> dict[str, Any]:
        self.commands.append(command)
        reply = self.inner.exchange(command)
        self.replies.append(reply)
        return reply

    def close(self) -> None:
        self.inner.close()


def test_the_file_is_current():
    jsonschema.Draft202012Validator.check_schema(protocol_schema())
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), (
        f"run: python -m preempt_oracle.adapters.schema > {SCHEMA_FILE.name}"
    )


def as_json(line: dict[str, Any]) -> Any:
    """As it goes over a pipe; in this process, arrays may be tuples."""
    return json.loads(json.dumps(line))


def engines() -> Iterator[Transport]:
    yield InProcess(ReferenceEngine(), "reference", "preempt_spec")
    if node := shutil.which("node"):
        yield Stdio([node, str(EXAMPLE)], "example")


def test_what_is_exchanged_is_valid():
    command, reply = validator("command"), validator("reply")
    for transport in engines():
        heard = Overheard(transport)
        session = Session(heard)
        can = frozenset({"abort", "chunked"}) if transport.name == "example" else CAPABILITIES
        seeds = [
            n
            for n in range(40)
            if any(isinstance(c, Abort) for c in workload(Random(n), "vllm-fcfs", capabilities=can).script)
        ]
        for n in seeds[:4]:
            drive(session, workload(Random(n), "vllm-fcfs", capabilities=can), n)
        session.close()
        assert {c["do"] for c in heard.commands} == {"start", "add", "step", "deliver", "abort", "stop"}
        for c in heard.commands:
            command.validate(as_json(c))
        for r in heard.replies:
            reply.validate(as_json(r))


@pytest.mark.parametrize(
    "line", [{"do": "step"}, {"id": 1, "do": "sleep"}, {"id": 0, "do": "step"}, {"id": 1, "do": "abort"}, {}]
)
def test_what_is_no_command_is_invalid(line: dict[str, Any]):
    assert not validator("command").is_valid(line)


def test_the_engine_side_knows_the_same_commands():
    ours = {c.__struct_config__.tag: set(c.__struct_fields__) - {"id"} for c in COMMANDS}
    assert ours.keys() == child.COMMANDS.keys()
    for name, fields in child.COMMANDS.items():
        assert fields.keys() <= ours[str(name)], name


@pytest.mark.parametrize("ended", [["a"], {"a": 1}, [None], "a"])
def test_nonsense_behind_a_delivery_is_a_broken_harness(ended: object):
    class Odd(ReferenceEngine):
        def deliver(self, cmd: child.Command) -> child.Reply:
            return {**super().deliver(cmd), "finished": ended}

    session = Session(InProcess(Odd(), "odd", "preempt_spec"))
    with pytest.raises(HarnessError, match="odd: finished"):
        drive(session, workload(Random(1), "vllm-fcfs"), 1)
