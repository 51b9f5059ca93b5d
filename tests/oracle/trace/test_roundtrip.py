"""spec → wire → bytes → wire → spec gives back what went in, for any event the wire allows."""

from __future__ import annotations

import types
import typing
from typing import Annotated, Any, Literal, Union

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec, to_wire
from preempt_oracle.trace.reader import parse
from preempt_spec import events

IDS = st.text(st.sampled_from("abr019:-_é"), min_size=1, max_size=4)
#: Strings where the wire takes any: quotes, escapes and what looks like keys among them.
TEXT = st.text(st.sampled_from('ab:"\\,{}[]\n\x00\u202e🙂é ') | st.characters(codec="utf-8"), max_size=6)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type of `wire`, by its annotations."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        meta = arguments[1]
        if arguments[0] is str:
            return IDS
        small = st.integers(max(meta.ge, -3), 40)
        return small | st.integers(meta.ge, meta.le)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of([values(argument) for argument in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    if origin is frozenset:
        return st.frozensets(st.sampled_from(sorted(events.OBSERVABLE)), max_size=3)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        hints = typing.get_type_hints(hint, include_extras=True)
        fields = {field.name: values(hints[field.name]) for field in msgspec.structs.fields(hint)}
        required = {f.name: fields.pop(f.name) for f in msgspec.structs.fields(hint) if f.required}
        fields.pop("source", None)
        return st.fixed_dictionaries(required, optional=fields).map(lambda chosen: hint(**chosen))
    return {str: TEXT, bool: st.booleans(), type(None): st.none()}[hint]


LINES = st.one_of([values(struct) for struct in typing.get_args(wire.Line)])


@settings(max_examples=150, derandomize=True)
@given(LINES, st.sampled_from([None, "environment", "plan", "worker"]))
def test_there_and_back(line: Any, source: Any):
    spec = to_spec(line)
    assert type(spec) is getattr(events, type(line).__name__)
    again = to_wire(spec)
    assert again == line
    if source and not isinstance(line, wire.Header | wire.Footer):
        again = to_wire(spec, source)
        assert wire.source_of(again) == source
    raw = wire.ENCODER.encode(again)
    assert b"\n" not in raw
    read = parse(raw)
    assert read == again
    assert to_spec(read) == spec
    assert wire.ENCODER.encode(read) == raw


@settings(max_examples=40, derandomize=True)
@given(values(wire.Act))
def test_acts_alone(act: Any):
    assert to_wire(to_spec(act)) == act
