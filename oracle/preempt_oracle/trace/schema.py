"""The JSON Schema of a line of a trace, generated from the structs of `wire`.

`trace-v1.schema.json` beside this file is its output, kept so that other languages need no Python; a test compares.
`python -m preempt_oracle.trace.schema > trace-v1.schema.json` renews it. What the schema of one line cannot say is in
`strict` and `structure`: duplicate keys, 3.0 for 3, parallel arrays, groups and block ids against the header, counts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from .wire import VERSION, Line

SCHEMA_FILE: Final = Path(__file__).with_name(f"trace-v{VERSION}.schema.json")


def line_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of any one line: `anyOf` over header, events and footer."""
    (union,), components = msgspec.json.schema_components([Line], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:preempt-oracle:trace:v{VERSION}",
        "title": f"preempt-oracle trace v{VERSION}, one line",
        "description": "A trace is JSON lines: a header, events, a footer.",
        **union,
        "$defs": {name: components[name] for name in sorted(components)},
    }


def schema_text() -> str:
    """The content of SCHEMA_FILE."""
    return json.dumps(line_schema(), indent=1, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
