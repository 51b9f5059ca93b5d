"""A trace in several files: the parts of a series, as a recorder writes them when a file has become large.

Every part is a trace by its form, with header and footer. What it shows can be judged only behind the parts before it,
since requests live on and blocks stay filled from one to the next: so whoever reads the first part reads all, as one
trace. A part says which one it is in `assumes`, and by its file's name, `SERIES.00002.jsonl`, packed or not.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

from .errors import TraceError
from .reader import read, read_steadily
from .steady import Steady
from .streams import display_name
from .wire import Event, Footer, Header, Line

_MARK = re.compile(r"series: part ([1-9][0-9]{0,8}) of ([A-Za-z0-9_.-]+)")
_NAME = re.compile(r"(?P<series>.+)\.(?P<number>[0-9]{5,9})\.jsonl(?P<packed>\.gz|\.zst)?")
_PACKED = ("", ".gz", ".zst")


def new_name(engine: str) -> str:
    """The name of a new series: no other recorder, in this process or in another, has the same."""
    return f"{re.sub('[^A-Za-z0-9_-]+', '-', engine)[:40]}-{secrets.token_hex(6)}"


def file_name(name: str, number: int) -> str:
    """The file of a part; `number` from 1."""
    return f"{name}.{number:05}.jsonl"


def mark(name: str, number: int) -> str:
    """What `assumes` of the header of a part says."""
    return f"series: part {number} of {name}"


def part_of(header: Header) -> tuple[str, int] | None:
    """The series of a trace and which part of it it is; None if it is whole by itself."""
    for text in header.assumes:
        if found := _MARK.fullmatch(text):
            return found[2], int(found[1])
    return None


def heads(names: Sequence[str]) -> list[str]:
    """Those of some files that are to be read: later parts whose first part is among them come with that one."""

    def first(name: str) -> tuple[str, ...] | None:
        found = _NAME.fullmatch(name)
        return None if found is None else tuple(f"{found['series']}.{1:05}.jsonl{packed}" for packed in _PACKED)

    given = set(names)
    return [n for n in names if (firsts := first(n)) is None or n in firsts or given.isdisjoint(firsts)]


def read_all(
    source: str | os.PathLike[str] | BinaryIO, steadily: bool = False
) -> Iterator[tuple[str, int, Line | Steady]]:
    """The lines of a trace, of all its parts if it is a series, with file and number: one header, events, one footer.

    The footer is that of the last part. Raises TraceError: for what `read` raises it for, for a part that is not the
    first, for one that is missing, and for one that is of another trace. `steadily`: as `read_steadily` reads.
    """
    file = display_name(source)
    lines: Iterator[tuple[int, Line | Steady]] = read_steadily(source) if steadily else read(source)
    number, header = next(lines)
    assert isinstance(header, Header)  # the reader yields it first, or raises
    yield file, number, header
    told = part_of(header)
    if told is None:
        for number, line in lines:
            yield file, number, line
        return
    name, part = told
    if part != 1:
        first = file_name(name, 1)
        reason = f"part {part} of a series cannot be judged alone: name {first}, the rest is read behind it"
        raise TraceError(file, 1, "assumes", reason)
    while True:
        number, footer = yield from _events(file, lines)
        following = None if not isinstance(source, (str, os.PathLike)) else _part(file, name, part + 1)
        if following is None:
            yield file, number, footer
            return
        part, file = part + 1, following
        lines = read_steadily(file) if steadily else read(file)
        _, again = next(lines)
        assert isinstance(again, Header)  # as above
        if part_of(again) != (name, part) or _bare(again) != _bare(header):
            raise TraceError(file, 1, "", f"this is not part {part} of {name}: the header is another one")


def _events(
    file: str, lines: Iterator[tuple[int, Line | Steady]]
) -> Generator[tuple[str, int, Event | Steady], None, tuple[int, Footer]]:
    for number, line in lines:
        if isinstance(line, Footer):
            return number, line
        assert not isinstance(line, Header)  # the reader refuses a second one
        yield file, number, line
    raise AssertionError("the reader hands out a footer, or raises")


def _bare(header: Header) -> Header:
    return replace(header, assumes=tuple(text for text in header.assumes if not _MARK.fullmatch(text)))


def _part(file: str, name: str, number: int) -> str | None:
    """The file of a part; None if there is none, and none behind it. Raises TraceError if there is one behind it."""
    folder = Path(file).parent
    behind = 0
    try:
        entries = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise TraceError(file, 0, "", f"cannot look for the next part: {error.strerror or error}") from None
    for entry in entries:
        found = _NAME.fullmatch(entry)
        if found is None or found["series"] != name:
            continue
        if int(found["number"]) == number:
            return os.fspath(folder / entry)
        behind = max(behind, int(found["number"]))
    if behind > number:
        raise TraceError(file, 0, "", f"the next part, {file_name(name, number)}, is missing; there is a part {behind}")
    return None
