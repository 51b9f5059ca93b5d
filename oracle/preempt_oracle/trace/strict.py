"""Duplicate keys, which msgspec passes over in silence (the last one wins), found exactly and nearly for free.

Each key of a JSON object brings one colon outside strings, so a line has at least as many colons as keys. It has no
duplicate key if one of these holds, tried in order of cost:

1. its colons are no more than the fields of the decoded event that are not at their default (nearly all events);
2. it has no backslash, so that no string holds a quote; every colon directly follows a quote, so that every key is
   among the texts between a quote and `":`; and these are distinct, over all objects of the line (so, at most one act);
3. it has no backslash, so that no colon in a string is spelled as an escape, and has as many colons as the encoding of
   the decoded event, which holds the same strings and each key once.

A line that fails them all (fields written out at their default beside several acts, escapes) is scanned in full, which
decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import attrgetter, ne
from typing import Final, get_args

import msgspec

from .errors import Fault
from .raw import Rest
from .wire import (
    ENCODER,
    NOTHING_OBSERVED,
    Act,
    Arrive,
    CopyDone,
    CopyStart,
    Deliver,
    Finish,
    Line,
    Observed,
    Reject,
    Step,
)

#: Per kind of act, and of event without objects in it: its fields, read at once, and their defaults. A field without a
#: default is always written.
_FLAT: Final = {
    kind: (attrgetter(*kind.__struct_fields__), tuple([f.default for f in msgspec.structs.fields(kind)]))
    for kind in (*get_args(Act), Arrive, Reject, Finish, CopyStart, CopyDone)
}


def refuse_duplicate_keys(raw: bytes, event: Line) -> None:
    """Raise Fault if an object in `raw`, which decoded to `event`, has the same key twice."""
    colons = raw.count(b":")
    if type(event) is Step:
        if colons == _step_keys(event):
            return
    elif type(event) is Deliver:
        if colons == _deliver_keys(event):
            return
    elif type(event) in _FLAT and colons == _flat_keys(event):
        return
    if b"\\" not in raw:
        ends = raw.split(b'":')
        if len(ends) - 1 == colons and len({end[end.rfind(b'"') :] for end in ends[:-1]}) == colons:
            return
        if colons == ENCODER.encode(event).count(b":"):
            return
    try:
        json.loads(raw.decode(), object_pairs_hook=_refuse)
    except ValueError as error:  # msgspec took it, so this is a difference between two JSON parsers
        raise Fault("", f"JSON is malformed: {error}") from None


def _refuse(pairs: list[tuple[str, object]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise Fault(key, "duplicate key")
        seen.add(key)


def _step_keys(step: Step) -> int:
    return 2 + (step.requests != ()) + (step.tokens != ()) + rest_keys(step)  # event, frame


def rest_keys(step: Step | Rest) -> int:
    """Keys of a step behind its `tokens`, and of what is in them, that are not at their default."""
    keys = (
        (step.start is not None)
        + (step.blocks != ())
        + (step.sent != ())
        + (step.resumed != ())
        + (step.hits != ())
        + (step.drafts != ())
        + (step.reason != "")
        + (step.source is not None)
    )
    if step.observed is not NOTHING_OBSERVED:
        keys += 1 + _observed_keys(step.observed)
    if step.acts:
        keys += 1 + sum(map(_flat_keys, step.acts))
    return keys


def _observed_keys(observed: Observed) -> int:
    read = msgspec.structs.astuple(observed)
    return len(read) - read.count(None)


def _flat_keys(one: Act | Line) -> int:
    read, defaults = _FLAT[type(one)]
    unusual: Iterator[bool] = map(ne, read(one), defaults)
    return 1 + sum(unusual)  # its kind, and what is not at its default


def _deliver_keys(deliver: Deliver) -> int:
    keys = (
        2
        + (deliver.requests != ())
        + (deliver.tokens != ())
        + (deliver.accepted is not None)
        + (deliver.disposition is not None)
        + (deliver.emitted is not None)
        + (deliver.proposed is not None)
        + (deliver.source is not None)
    )
    if deliver.acts:
        keys += 1 + sum(map(_flat_keys, deliver.acts))
    return keys
