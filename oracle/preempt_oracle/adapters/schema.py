"""The JSON Schema of the stdio protocol: the harness's commands and an engine's replies, one JSON line each.

`stdio-v1.schema.json` beside this file is its output, kept so that other languages need no Python; a test compares, and
holds what is really exchanged to it. `python -m preempt_oracle.adapters.schema > stdio-v1.schema.json` renews it.

An engine answers each command with exactly one line that carries the command's `id`. Replies are events of trace v1;
the header of a start may add `capabilities`, a delivery may add the requests that it `finished`, a step and a delivery
the copies between tiers that were over before it (`earlier`), and those that began or ended behind it (`later`), with
whoever is over because one of them failed. A second command is sent only after the reply to the first.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from preempt_oracle.trace.fields import ControlKind, Count, Int64, RequestId
from preempt_oracle.trace.schema import line_schema

SCHEMA_FILE: Final = Path(__file__).with_name("stdio-v1.schema.json")

Id = Annotated[int, Meta(ge=1, description="Numbers commands; the reply repeats it.")]
Size = Annotated[int, Meta(ge=1)]


class Configuration(Struct, forbid_unknown_fields=True):
    """What to start with: see `preempt_properties.scenario.Config`. Sizes in tokens, blocks in blocks."""

    policy: str
    blocks: Size
    page_size: Size
    max_running: Size
    budget: Size
    max_length: Size
    long_prefill: Count
    chunked: bool
    caching: bool
    whole_fit: bool
    watermark: Count
    seed: Int64
    options: dict[str, Any]
    frames: Size = 1  # that may fly at once
    drafts: Count = 0  # that follow each sampling grant unasked
    host_blocks: Count = 0
    groups: str = "full"
    lookahead: Count = 0  # tokens that a table gets room for behind those known, when it grows; 0: what it lacks
    threshold: Count = 0  # by more than this a priority must be better to displace who runs


class Start(Struct, tag_field="do", tag="start"):
    """A fresh scheduler; whatever ran before is forgotten. Answered by a header, or refused."""

    id: Id
    config: Configuration


class Add(Struct, tag_field="do", tag="add"):
    """A request arrives. Answered by arrive or reject; refused if this engine has no such requests."""

    id: Id
    request: RequestId
    prompt: tuple[Int64, ...]
    max_tokens: Size
    priority: Int64
    arrival: Int64
    salt: str


class Abort(Struct, tag_field="do", tag="abort"):
    """A live request is cancelled. Answered by abort; refused if this engine cannot."""

    id: Id
    request: RequestId


class Control(Struct, tag_field="do", tag="control"):
    """The operator acts on the scheduler. Answered by control, or refused."""

    id: Id
    kind: ControlKind


class Step(Struct, tag_field="do", tag="step"):
    """One scheduling decision. Answered by step."""

    id: Id


class Deliver(Struct, tag_field="do", tag="deliver"):
    """A frame's sampled tokens, for those of its requests whose grant reached their last known or promised token.

    Also for those that were preempted or ended meanwhile: the worker samples for them all the same. `proposed`: drafts
    for their next grant.
    """

    id: Id
    frame: Count
    requests: tuple[str, ...]
    tokens: tuple[tuple[Int64, ...], ...]
    proposed: tuple[Count, ...] | None = None


class Stop(Struct, tag_field="do", tag="stop"):
    """The scheduler is not needed any more. Answered by stopped; another start may follow."""

    id: Id


COMMANDS: Final = (Start, Add, Abort, Control, Step, Deliver, Stop)


def _any_of(*names: str) -> dict[str, Any]:
    return {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names]}


_COPIES: Final[dict[str, Any]] = {
    "earlier": {
        "type": "array",
        "items": _any_of("CopyStart", "CopyDone"),
        "description": "Copies that ended before this event.",
    },
    "later": {
        "type": "array",
        "items": _any_of("CopyStart", "CopyDone", "Finish"),
        "description": "Copies that began, or ended, behind this event, and requests that are over because of one.",
    },
}
#: What a reply may carry beyond the fields of its event.
_MORE: Final[dict[str, dict[str, Any]]] = {
    "Header": {"capabilities": {"type": "array", "items": {"type": "string"}}},
    "Step": _COPIES,
    "Deliver": {
        "finished": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "request": {"type": "string"},
                    "reason": {"type": "string"},
                    "blocks": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
                    "until": {"type": "integer"},
                },
                "required": ["request"],
                "additionalProperties": False,
            },
        },
        **_COPIES,
    },
}
#: What any reply of an adapter may carry that can put faults into its engine (`smoke --inject`).
_INJECTING: Final[dict[str, Any]] = {
    "fired": {"type": "integer", "minimum": 0, "description": "How often the fault has acted since the start."},
    "faults": {"type": "array", "items": {"type": "object"}, "description": "Those that it offers, at a start."},
}
_REPLIES: Final = ("Header", "Arrive", "Reject", "Abort", "Control", "Step", "Deliver", "EngineError")


def protocol_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 with the definitions `command` and `reply`; a line is either."""
    refs, components = msgspec.json.schema_components(COMMANDS, ref_template="#/$defs/command.{name}")
    defs = {f"command.{name}": schema for name, schema in components.items()}
    defs |= line_schema()["$defs"]
    for name in _REPLIES:
        event = defs[name]
        properties = {"id": {"type": "integer"}, **event["properties"], **_MORE.get(name, {}), **_INJECTING}
        defs[f"reply.{name}"] = {**event, "properties": properties, "required": ["id", *event["required"]]}
    for tag, more in (("refused", {"reason": {"type": "string"}}), ("stopped", {})):
        properties = {"id": {"type": "integer"}, "event": {"enum": [tag]}, **more, **_INJECTING}
        defs[f"reply.{tag}"] = {"type": "object", "properties": properties, "required": ["id", "event", *more]}
    replies = [name for name in defs if name.startswith("reply.")]
    defs["command"] = {"anyOf": list(refs)}
    defs["reply"] = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in replies]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:preempt-oracle:stdio:v1",
        "title": "preempt-oracle stdio protocol v1, one line",
        "description": "JSON lines: commands on the engine's standard input, one reply each on its standard output.",
        "anyOf": [{"$ref": "#/$defs/command"}, {"$ref": "#/$defs/reply"}],
        "$defs": {name: defs[name] for name in sorted(defs)},
    }


def schema_text() -> str:
    """The content of SCHEMA_FILE."""
    return json.dumps(protocol_schema(), indent=1, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
