"""The files of a recording: parts of a series, each a whole trace by its form, whatever the disk does.

Lines are gathered and written in blocks; behind each block stands what a footer would have to say there. When a write
fails (a full disk is the usual cause), the file is cut back to the last such place with room for a footer, and ends
there; the footer says that events are missing. So a failed write costs the last block or two, and never the file.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from attrs import frozen
from msgspec.structs import replace

from preempt_oracle.trace import series, wire
from preempt_oracle.trace.structure import Structure

BLOCK = 1 << 16  # bytes gathered before they are written
NO_LIMIT = 1 << 62
_PLACES = 8  # places behind blocks that are remembered; a footer is shorter than so many lines


class Stopped(Exception):
    """Nothing more can be written; `str()` says why. The file that was being written is closed."""


class File(Protocol):
    """What is needed of an open file; an unbuffered binary one has it."""

    def write(self, data: bytes, /) -> int | None:
        """Write some of `data`. Returns how many bytes; may raise OSError."""

    def seek(self, offset: int, /) -> int:
        """Go to a place."""

    def truncate(self, size: int, /) -> int:
        """Cut the file."""

    def close(self) -> None:
        """Close it."""


def create(path: Path) -> File:
    """A new file, for its owner alone: even hashed, a trace shows who shares a prefix with whom."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    return os.fdopen(descriptor, "wb", buffering=0)


@frozen
class _Place:
    """A place where a footer may stand: the size of the file up to it, and what is in it."""

    size: int
    lines: int
    steps: int
    grants: int
    preemptions: int


class Parts:
    """A series of files that grow by whole lines. Raises Stopped, once, and is not to be used behind that."""

    def __init__(
        self,
        directory: Path,
        header: wire.Header,
        *,
        part: int,
        limit: int = NO_LIMIT,
        opener: Callable[[Path], File] = create,
    ) -> None:
        """Begin the first part. `part`, `limit`: bytes of a part, of the whole series."""
        self.name = series.new_name(header.engine)
        self._directory = directory
        self._header = header
        self._part = part
        self._limit = limit
        self._open = opener
        self._written = 0  # bytes of the parts before this one
        self._gathered = bytearray()
        self._file: File | None = None
        self.number = 0
        self._begin()

    @property
    def path(self) -> Path:
        """The part that is being written."""
        return self.file(self.number)

    def file(self, number: int) -> Path:
        """Part `number`, from 1."""
        return self._directory / series.file_name(self.name, number)

    def write(self, event: wire.Event) -> None:
        """Append an event. Raises Fault if it does not belong in a trace with this header, Stopped."""
        self._structure.check(event)
        self._gathered += wire.ENCODER.encode(event) + b"\n"
        self.lines += 1
        size = self._place.size + len(self._gathered)
        if len(self._gathered) >= BLOCK or size >= self._part:
            self.flush()
        if self._written + size >= self._limit:
            self.close(lost=1)  # whatever comes next
            raise Stopped(f"the limit of {self._limit} bytes is reached")
        if size >= self._part:
            self.close()
            self._begin()

    def flush(self) -> None:
        """Write what is gathered. Raises Stopped."""
        if not self._gathered:
            return
        try:
            self._put(self._gathered)
        except OSError as error:
            raise self._cut(error) from error
        self._note(self._place.size + len(self._gathered))

    def close(self, lost: int = 0) -> None:
        """Write what is gathered, and the footer. `lost`: events that are known to be missing behind it."""
        self.flush()
        try:
            self._put(self._footer(self._place, lost))
        except OSError as error:
            raise self._cut(error) from error
        self._written += self._place.size
        self._end()

    def _begin(self) -> None:
        self.number += 1
        header = replace(self._header, assumes=(*self._header.assumes, series.mark(self.name, self.number)))
        self._structure = Structure(header)
        self._gathered = bytearray(wire.ENCODER.encode(header) + b"\n")
        self.lines = 1
        self._place = _Place(0, 0, 0, 0, 0)
        self._places: deque[_Place] = deque(maxlen=_PLACES)
        try:
            self._file = self._open(self.path)
            self._put(self._gathered)
        except OSError as error:
            if self._file is not None:  # it is ours, and no trace
                self._end()
                self._remove()
            raise Stopped(f"{self.path.name}: cannot begin: {error.strerror or error}") from error
        self._note(len(self._gathered))

    def _note(self, size: int) -> None:
        counted = self._structure
        self._place = _Place(size, self.lines, counted.steps, counted.grants, counted.preemptions)
        self._places.append(self._place)
        self._gathered.clear()

    def _put(self, data: bytes | bytearray) -> None:
        assert self._file is not None, "not used behind its end"
        rest = bytes(data)
        while rest:
            rest = rest[self._file.write(rest) or 0 :]

    def _cut(self, error: OSError) -> Stopped:
        """End the file at the last place where there is room for a footer; cutting back makes room."""
        why = f"{self.path.name}: cannot write: {error.strerror or error}"
        while self._places:
            place = self._places.pop()
            try:
                assert self._file is not None, "it was written to"
                self._file.truncate(place.size)
                self._file.seek(place.size)
                self._put(self._footer(place, max(self.lines - place.lines, 1)))
                break
            except OSError as again:
                error = again
        else:
            why += f"; its end is missing too: {error.strerror or error}"
        self._end()
        return Stopped(why)

    def _footer(self, place: _Place, lost: int) -> bytes:
        footer = wire.Footer(place.lines + 1, place.steps, place.grants, place.preemptions, lost)
        return wire.ENCODER.encode(footer) + b"\n"

    def _end(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # some file systems say only now that the disk is full; nothing is left to do
                file.close()

    def _remove(self) -> None:
        with suppress(OSError):
            self.path.unlink()
