"""What is generated in docs/protocol.md: commands, configuration and methods, from the classes that define them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from preempt_oracle.adapters import schema
from preempt_oracle.engines.child import Engine
from preempt_oracle.report.rulebook import cell, first_line

#: What answers a command. In words, since a reply may be refused as well.
ANSWERS: Final = {
    "start": "header",
    "add": "arrive, reject",
    "abort": "abort",
    "control": "control",
    "step": "step",
    "deliver": "deliver",
    "stop": "stopped",
}


def _fields(struct: type[msgspec.Struct]) -> str:
    return ", ".join(
        f"`{f.encode_name}`" + ("?" if f.default is not msgspec.NODEFAULT else "")
        for f in msgspec.structs.fields(struct)
    )


def commands() -> str:
    """A row per command."""
    rows = ["| `do` | fields | answered by | what it is |", "|---|---|---|---|"]
    for struct in schema.COMMANDS:
        tag = str(struct.__struct_config__.tag)
        answers = ", ".join(f"`{a}`" for a in ANSWERS[tag].split(", "))
        rows.append(f"| `{tag}` | {_fields(struct)} | {answers} | {cell(_prose(struct))} |")
    return "\n".join(rows)


def _prose(struct: type) -> str:
    return " ".join((inspect.getdoc(struct) or "").split())


def configuration() -> str:
    """The fields of a start's `config`, with their types as the schema has them."""
    _, components = msgspec.json.schema_components([schema.Configuration])
    properties = components["Configuration"]["properties"]
    rows = ["| `config` | type | left out |", "|---|---|---|"]
    for f in msgspec.structs.fields(schema.Configuration):
        kind = properties[f.encode_name]
        least = f", at least {kind['minimum']}" if kind.get("minimum", -1) in (0, 1) else ""
        default = "never" if f.default is msgspec.NODEFAULT else f"`{f.default}`"
        rows.append(f"| `{f.encode_name}` | {kind.get('type', 'any')}{least} | {default} |")
    return "\n".join(rows)


def methods() -> str:
    """The methods of an adapter in Python, in the order of the commands."""
    rows = ["| method | what it does |", "|---|---|"]
    for name in ANSWERS:
        method = getattr(Engine, name)
        names = [p for p in inspect.signature(method).parameters if p != "self"]
        rows.append(f"| `{name}({', '.join(names)})` | {cell(first_line(method))} |")
    return "\n".join(rows)


#: What may stand between marks.
BLOCKS: Final[Mapping[str, Callable[[], str]]] = {
    "protocol-commands": commands,
    "protocol-configuration": configuration,
    "adapter-methods": methods,
}
