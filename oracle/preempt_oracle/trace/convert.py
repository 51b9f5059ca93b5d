"""Between the wire and the specification: `to_spec` and `to_wire`, inverse of each other up to `source`.

Generic over fields: a wire class and the spec class of its name have the same fields in the same order (a test holds
them to it), and their sequences are tuples on both sides, so only nested records need work.
"""

from __future__ import annotations

from typing import Any, overload

import attrs
import msgspec

from preempt_spec import events as spec

from . import wire
from .fields import Source

_WIRE: dict[type[Any], type[msgspec.Struct]] = {
    getattr(spec, name): cls
    for name, cls in vars(wire).items()
    if isinstance(cls, type) and issubclass(cls, msgspec.Struct) and attrs.has(getattr(spec, name, int))
}
_SPEC: dict[type[msgspec.Struct], type[Any]] = {cls: mirrored for mirrored, cls in _WIRE.items()}
#: Defaults that msgspec knows by identity: an equal but different object would be written out.
_SHARED = (wire.NOTHING_OBSERVED, *(d for d in wire.Header.__struct_defaults__ if isinstance(d, tuple | frozenset)))
_FIELDS: dict[type[Any], tuple[str, ...]] = {cls: tuple(a.name for a in attrs.fields(cls)) for cls in _WIRE}


@overload
def to_spec(event: wire.Header) -> spec.Header: ...
@overload
def to_spec(event: wire.Footer) -> spec.Footer: ...
@overload
def to_spec(event: wire.Event) -> spec.Event: ...
@overload
def to_spec(event: wire.Act) -> spec.Act: ...
def to_spec(event: wire.Line | wire.Act) -> spec.Header | spec.Event | spec.Footer | spec.Act:
    """The spec's form of a wire event, header, footer or act; `source` is dropped (see `wire.source_of`)."""
    converted: spec.Header | spec.Event | spec.Footer | spec.Act = _to_spec(event)
    return converted


@overload
def to_wire(event: spec.Header) -> wire.Header: ...
@overload
def to_wire(event: spec.Footer) -> wire.Footer: ...
@overload
def to_wire(event: spec.Event, source: Source | None = None) -> wire.Event: ...
@overload
def to_wire(event: spec.Act) -> wire.Act: ...
def to_wire(
    event: spec.Header | spec.Event | spec.Footer | spec.Act, source: Source | None = None
) -> wire.Line | wire.Act:
    """The wire form of a spec event, header, footer or act.

    `source` None stands for the default of the event's type. Values are copied, not validated: what the wire forbids
    (a negative frame, a cause nobody knows) is found by `reader.parse`, or when a `Writer` writes it.
    """
    converted: wire.Line | wire.Act = _to_wire(event)
    return converted if source is None else msgspec.structs.replace(converted, source=source)


def _to_spec(value: Any) -> Any:
    cls = _SPEC[type(value)]
    values = []
    # Most fields hold plain values: only structs, and tuples of them, are worth a call.
    for name in _FIELDS[cls]:
        part = getattr(value, name)
        kind = type(part)
        if kind in _SPEC:
            part = _to_spec(part)
        elif kind is tuple and part and type(part[0]) in _SPEC:
            part = tuple([_to_spec(item) for item in part])
        values.append(part)
    return cls(*values)


def _to_wire(value: Any) -> Any:
    cls = _WIRE.get(type(value))
    if cls is not None:
        converted: Any = cls(*[_to_wire(getattr(value, name)) for name in _FIELDS[type(value)]])
    elif type(value) is tuple and value and type(value[0]) in _WIRE:
        converted = tuple([_to_wire(item) for item in value])
    elif type(value) is frozenset:
        converted = value
    else:
        return value
    for default in _SHARED:
        if type(converted) is type(default) and converted == default:
            return default
    return converted
