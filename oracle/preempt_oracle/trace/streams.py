"""From a file to its lines in constant memory: opening, gzip and zstd, the line length limit.

The compressed formats are unpacked here, not by `gzip` and `ZstdFile`, for one reason: a stream that stops early, or is
followed by something else, must be an error that names what happened, for each of any number of concatenated members.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from backports.zstd import ZstdDecompressor, ZstdError

from .errors import Fault

CHUNK: Final = 1 << 16  # bytes read, and bytes unpacked, at a time: as much as stays in a core's cache
LINE_LIMIT: Final = 64 << 20  # bytes

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = b"\x2a\x4d\x18"  # behind a byte 0x50 to 0x5f; some packers start a file with such a frame


@contextmanager
def opened(source: str | os.PathLike[str] | BinaryIO) -> Iterator[BinaryIO]:
    """The binary stream of a path, of "-" (standard input) or of an open file, which is left open. Raises OSError."""
    if not isinstance(source, str | os.PathLike):
        yield source
    elif source == "-":
        if sys.stdin is None:
            raise OSError("standard input is closed")
        yield sys.stdin.buffer
    else:
        try:
            stream = Path(source).open("rb", buffering=0)  # noqa: SIM115 - closed below
        except ValueError as error:  # a NUL in the name
            raise OSError(str(error)) from None
        with stream:
            yield stream


def display_name(source: str | os.PathLike[str] | BinaryIO) -> str:
    """How error messages call `source`."""
    if isinstance(source, str | os.PathLike):
        return "<stdin>" if source == "-" else os.fspath(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) and name else "<stream>"


def unpacked(stream: BinaryIO) -> Iterator[bytes]:
    """The chunks of `stream`, unpacked if its first bytes are those of gzip or zstd. Raises Fault, OSError."""
    chunks = _chunks(stream)
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= 4:
            break
    if not head:
        return iter(())
    rest = _chain(head, chunks)
    if head.startswith(_GZIP):
        return _gunzip(rest)
    if head.startswith(_ZSTD) or (0x50 <= head[0] <= 0x5F and head[1:4] == _ZSTD_SKIPPABLE):
        return _unzstd(rest)
    return rest


class Lines:
    """The lines of some chunks, without their newline.

    `number` is the line being handed out or, while the next one is being read, that one. The last line needs no
    newline. Raises Fault if a line is longer than `limit` bytes, and what the chunks raise.
    """

    def __init__(self, chunks: Iterable[bytes], limit: int = LINE_LIMIT) -> None:
        """Nothing is read yet."""
        self.number = 1
        self._chunks = chunks
        self._limit = limit

    def __iter__(self) -> Iterator[bytes]:
        """One pass over the lines."""
        parts: list[bytes] = []
        size = 0
        for chunk in self._chunks:
            start, end = 0, chunk.find(b"\n")
            while end >= 0:  # splitting would look at every byte by itself
                piece = chunk[start:end]
                if size + len(piece) > self._limit:
                    self._too_long()
                if parts:
                    parts.append(piece)
                    piece = b"".join(parts)
                    parts.clear()
                    size = 0
                yield piece
                self.number += 1
                start, end = end + 1, chunk.find(b"\n", end + 1)
            if start < len(chunk):
                parts.append(chunk[start:])
                size += len(chunk) - start
                if size > self._limit:
                    self._too_long()
        if parts:
            yield b"".join(parts)
            self.number += 1

    def _too_long(self) -> None:
        raise Fault("", f"the line is longer than {self._limit} bytes")


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    # read1 returns what a pipe has, so that a live trace is seen line by line; read would wait for a full chunk.
    read: Callable[[int], bytes | None] = getattr(stream, "read1", stream.read)
    while True:
        chunk = read(CHUNK)
        if chunk is None:
            raise OSError("a non-blocking stream had no data")
        if not chunk:
            return
        yield chunk


def _chain(head: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from rest


def _gunzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    member = None
    members = 0
    for data in chunks:
        pending = True
        while data or pending:
            if member is None:
                if not data:
                    break
                member = zlib.decompressobj(wbits=31)  # gzip wrapper: checks the sum and the length at its end
            try:
                out = member.decompress(data, CHUNK)
            except zlib.error as error:
                raise Fault("", _corrupt("gzip", members, str(error))) from None
            if out:
                yield out
            if member.eof:
                data, member, members = member.unused_data, None, members + 1
            else:
                # All input may be taken while output is still held back by the limit of CHUNK: ask again.
                data, pending = member.unconsumed_tail, len(out) == CHUNK
    if member is not None:
        raise Fault("", "the gzip stream is cut off")


def _unzstd(chunks: Iterator[bytes]) -> Iterator[bytes]:
    frame = None
    frames = 0
    for data in chunks:
        pending = True
        while data or pending:
            if frame is None:
                if not data:
                    break
                frame = ZstdDecompressor()
            try:
                out = frame.decompress(data, CHUNK)
            except ZstdError as error:
                raise Fault("", _corrupt("zstd", frames, str(error))) from None
            if out:
                yield out
            if frame.eof:
                data, frame, frames = frame.unused_data, None, frames + 1
            else:
                data, pending = b"", not frame.needs_input
    if frame is not None:
        raise Fault("", "the zstd stream is cut off")


def _corrupt(kind: str, whole: int, error: str) -> str:
    behind = f", or something else follows its {whole} whole part{'s' * (whole > 1)}" if whole else ""
    return f"the {kind} stream is corrupt{behind}: {error}"
