"""What an edit of a trace is made of: finding the lines it changes.

A trace is edited as plain data, one object per line, header first, without its footer: an edit says in a few words
what a scheduler that did wrong would have told. Fields at their default are left out, as on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import getdoc
from typing import Any, TypeAlias

from attrs import frozen

Line: TypeAlias = dict[str, Any]
Trace: TypeAlias = list[Line]


@frozen
class Edit:
    """A named way to break a trace: `change` edits a copy of `base` in place, which must then break `rule` alone."""

    name: str
    rule: str
    base: str  # a trace, by the stem of its file
    says: str  # one sentence: what the scheduler did wrong
    change: Callable[[Trace], None]


EDITS: dict[str, Edit] = {}


def edit(rule: str, base: str) -> Callable[[Callable[[Trace], None]], Callable[[Trace], None]]:
    """Register a function as an edit: its name is the edit's, its docstring says what the scheduler did wrong."""

    def register(change: Callable[[Trace], None]) -> Callable[[Trace], None]:
        name = change.__name__.replace("_", "-")
        if name in EDITS:
            raise ValueError(f"edit {name} is defined twice")
        EDITS[name] = Edit(name, rule, base, (getdoc(change) or "").replace("\n", " "), change)
        return change

    return register


def step(trace: Trace, frame: int) -> Line:
    """The step of that frame."""
    return next(e for e in trace if e["event"] == "step" and e["frame"] == frame)


def deliver(trace: Trace, frame: int) -> Line:
    """The delivery of that frame."""
    return next(e for e in trace if e["event"] == "deliver" and e["frame"] == frame)


def event(trace: Trace, kind: str, request: str) -> Line:
    """The first event of that kind about the request."""
    return next(e for e in trace if e["event"] == kind and e["request"] == request)


def acts(line: Line, request: str) -> list[Line]:
    """What happened to the request inside the step, in order."""
    return [a for a in line["acts"] if a.get("request") == request]


def act(line: Line, kind: str, request: str) -> Line:
    """The first act of that kind about the request."""
    return next(a for a in acts(line, request) if a["act"] == kind)


def behind(line: Line, one: Line, *new: Line) -> None:
    """Put acts behind another one."""
    at = line["acts"].index(one) + 1
    line["acts"][at:at] = new


def record(line: Line, field: str, request: str) -> list[Any]:
    """The request's record in `blocks`, `sent`, `hits` or `resumed` of a step: an array, the request in front."""
    found: list[Any] = next(r for r in line[field] if r[0] == request)
    return found


def column(line: Line, request: str) -> int:
    """Where the request stands in the step's parallel arrays."""
    return int(line["requests"].index(request))


def without(line: Line, request: str) -> None:
    """Take the request's grant out of a step, and all that came with it."""
    at = column(line, request)
    for field in ("requests", "tokens", "start"):
        del line[field][at]
    for field in ("blocks", "sent", "hits", "resumed"):
        line[field] = [r for r in line.get(field, []) if r[0] != request]
    for a in line.get("acts", []):
        a["after"] = min(a.get("after", 0), len(line["requests"]))


def give(
    line: Line, request: str, start: int, tokens: int, blocks: list[int], hit: int = 0, known: int | None = None
) -> None:
    """Admit a request at the end of a step. `known`: it resumes with so many tokens."""
    line["requests"].append(request)
    line["tokens"].append(tokens)
    line["start"].append(start)
    for field, row in (
        ("blocks", [request, 0, blocks]),
        ("sent", [request, 0, blocks, True]),
        ("hits", [request, hit]),
    ):
        line.setdefault(field, []).append(row)
    if known is not None:
        line.setdefault("resumed", []).append([request, known])


def rename(line: Line, old: str, new: str) -> None:
    """Let everything that happened to one request have happened to another."""
    for a in acts(line, old):
        a["request"] = new
