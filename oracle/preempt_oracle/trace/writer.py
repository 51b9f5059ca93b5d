"""Writing a trace, so that whatever stands under its name is whole.

A file is written under a temporary name beside its own and renamed when the trace is complete. After an exception the
temporary file is removed and an older file of the same name is left alone: what an engine did up to its crash is an
`engine_error` event and a regular end, not half a file. Every line is read back by the reader's own checks before it is
written, so that a trace written here is one the reader takes; that costs as much as reading it.
"""

from __future__ import annotations

import gzip
import io
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, cast

from backports.zstd import CompressionParameter, ZstdFile

from preempt_spec import events as spec

from . import wire
from .convert import to_wire
from .errors import Fault, TraceError
from .fields import TaggedEvent
from .reader import parse
from .streams import CHUNK, display_name
from .structure import Structure


class Writer:
    """Lines to an open binary file, checked and counted. `create` opens the file and ends the trace."""

    def __init__(self, stream: IO[bytes], header: spec.Header | wire.Header, file: str = "<stream>") -> None:
        """Check and write the header. `file` is for messages. Raises TraceError."""
        self.lines = 0
        self._stream = stream
        self._file = file
        with self._located():
            raw, line = _read_back(to_wire(header) if isinstance(header, spec.Header) else header)
            if not isinstance(line, wire.Header):
                raise Fault("event", "the first line must be the header")
            self._structure = Structure(line)
            self._put(raw)

    def write(self, event: spec.Event | wire.Event) -> None:
        """Append one event. Raises TraceError, with line and field, if the reader would refuse it; for OSErrors too."""
        with self._located():
            raw, line = _read_back(event if isinstance(event, TaggedEvent) else to_wire(event))
            if isinstance(line, wire.Header | wire.Footer):
                raise Fault("event", "header and footer are not written as events")
            self._structure.check(line)
            self._put(raw)

    def finish(self) -> None:
        """Write the footer."""
        done = self._structure
        with self._located():
            self._put(wire.ENCODER.encode(wire.Footer(self.lines + 1, done.steps, done.grants, done.preemptions)))

    def _put(self, raw: bytes) -> None:
        self._stream.write(raw + b"\n")
        self.lines += 1

    @contextmanager
    def _located(self) -> Iterator[None]:
        try:
            yield
        except Fault as fault:
            raise TraceError(self._file, self.lines + 1, fault.field, fault.reason) from None
        except OSError as error:
            raise _unwritable(self._file, error) from None


def _read_back(line: wire.Line) -> tuple[bytes, wire.Line]:
    """The bytes of `line`, and what a reader makes of them. Raises Fault."""
    try:
        raw = wire.ENCODER.encode(line)
    except (TypeError, ValueError, OverflowError) as error:  # a type JSON has nothing for, a lone surrogate
        raise Fault("", f"cannot be encoded: {error}") from None
    return raw, parse(raw)


@contextmanager
def create(
    target: str | os.PathLike[str] | BinaryIO, header: spec.Header | wire.Header, *, name: str | None = None
) -> Iterator[Writer]:
    """A new trace: `with create(path, header) as trace: trace.write(event)`; the footer is written at the end.

    `target` is a path (gzip if it ends in .gz, zstd if in .zst, else plain), "-" for standard output, or an open binary
    file (plain, left open). The last two, and paths of devices and pipes, cannot be taken back after an exception: they
    end without a footer, hence as a cut-off trace. Equal events give equal bytes. `name` replaces the target's name in
    messages. Raises TraceError for what the reader would refuse and for every OSError of its own.
    """
    if name is None:
        name = "<stdout>" if target == "-" else display_name(target)
    raised: BaseException | None = None
    try:
        with _output(target) as stream:
            writer = Writer(stream, header, name)
            try:
                yield writer
            except BaseException as error:
                raised = error
                raise
            writer.finish()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path, a closed stream
        if error is raised:  # the caller's own
            raise
        raise _unwritable(name, error) from raised


@contextmanager
def _output(target: str | os.PathLike[str] | BinaryIO) -> Iterator[IO[bytes]]:
    if not isinstance(target, str | os.PathLike):
        yield target
        target.flush()
        return
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(target).resolve()  # a symbolic link is followed, not replaced
    if path.exists() and not path.is_file():  # a device or pipe must not be replaced by a file
        with path.open("wb") as raw, _packed(raw, path.suffix) as stream:
            yield stream
        return
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as raw, _packed(raw, path.suffix) as stream:
            yield stream
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def _packed(raw: IO[bytes], suffix: str) -> Iterator[IO[bytes]]:
    packer: io.RawIOBase
    if suffix == ".gz":
        packer = cast(io.RawIOBase, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0))
    elif suffix == ".zst":
        options: dict[int, int] = {CompressionParameter.checksum_flag: 1}  # finds damage, not only truncation
        packer = cast(io.RawIOBase, ZstdFile(raw, "w", options=options))
    else:
        yield raw
        return
    with io.BufferedWriter(packer, CHUNK) as stream:
        yield stream


def _unwritable(file: str, error: OSError | ValueError) -> TraceError:
    return TraceError(file, 0, "", f"cannot write: {getattr(error, 'strerror', None) or error}")
