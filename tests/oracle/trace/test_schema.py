"""The published JSON Schema is the one of the structs, and says of sample lines what the reader says."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from preempt_oracle.trace.errors import Fault
from preempt_oracle.trace.reader import parse
from preempt_oracle.trace.schema import SCHEMA_FILE, line_schema, schema_text


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = line_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_file_is_current():
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), (
        f"run: python -m preempt_oracle.trace.schema > {SCHEMA_FILE.name}"
    )


def test_lines_of_a_trace_are_valid(validator: Any, lines: list[bytes]):
    for line in lines:
        validator.validate(json.loads(line))


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[]",
        '{"event":"meow"}',
        '{"event":"step"}',
        '{"event":"step","frame":-1}',
        '{"event":"step","frame":1.5}',
        '{"event":"step","frame":true}',
        '{"event":"step","frame":9223372036854775808}',
        '{"event":"step","frame":1,"colour":"red"}',
        '{"event":"step","frame":1,"blocks":[["a",0]]}',
        '{"event":"step","frame":1,"sent":[["a",0,[1],true,1]]}',
        '{"event":"step","frame":1,"acts":[{"act":"explode"}]}',
        '{"event":"step","frame":1,"source":"nobody"}',
        '{"event":"finish","request":"a b"}',
        '{"event":"finish","request":"a\\n"}',
        '{"event":"finish","request":""}',
        '{"event":"finish","request":"a\\u202e"}',
        '{"event":"copy_start","copy":1,"direction":"up","blocks":[]}',
        '{"event":"copy_start","copy":1,"direction":"in","blocks":[[1,2]]}',
        '{"event":"header","engine":"e","version":"1","policy":"p","limits":{"budget":1}}',
    ],
)
def test_lines_refused_by_both(validator: Any, line: str):
    assert not validator.is_valid(json.loads(line))
    with pytest.raises(Fault):
        parse(line.encode())
