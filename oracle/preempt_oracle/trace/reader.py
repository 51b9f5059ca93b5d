"""Reading a trace: a stream of checked events, or a TraceError that says what is wrong where.

Never anything between: a trace that is cut off, unpacked in part, out of order or ambiguous (a duplicate key) is
refused even if every event of it makes sense.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO, Final, cast

import msgspec

from .errors import Fault, TraceError
from .raw import ANY_VERSION, OBSERVES
from .repeats import LineDecoder
from .steady import Steady, SteadyDeliver, SteadyStep
from .streams import LINE_LIMIT, Lines, display_name, opened, unpacked
from .strict import refuse_duplicate_keys
from .structure import Structure
from .wire import DECODER, VERSION, Footer, Header, Line

_UTF8_BOM: Final = b"\xef\xbb\xbf"
_UTF16_BOMS: Final = (b"\xff\xfe", b"\xfe\xff")


def read(
    source: str | os.PathLike[str] | BinaryIO, *, name: str | None = None, limit: int = LINE_LIMIT
) -> Iterator[tuple[int, Line]]:
    """The lines of a trace with their numbers, from 1: the header, the events, the footer.

    `source` is a path, "-" for standard input or a binary file, which is left open; plain, gzip or zstd is told by its
    first bytes. `name` replaces its name in messages. `limit` is the longest line accepted, in bytes; memory use is a
    small multiple of the longest line. The footer is handed out only when nothing follows it. Raises TraceError, at the
    first `next()` if the source cannot be opened.
    """
    return cast(Iterator[tuple[int, Line]], _read(source, name, limit, steadily=False))


def read_steadily(source: str | os.PathLike[str] | BinaryIO) -> Iterator[tuple[int, Line | Steady]]:
    """`read`, for who knows what to do with lines of which little is new: those are handed out as what is new."""
    return _read(source, None, LINE_LIMIT, steadily=True)


def _read(
    source: str | os.PathLike[str] | BinaryIO, name: str | None, limit: int, steadily: bool
) -> Iterator[tuple[int, Line | Steady]]:
    file = display_name(source) if name is None else name
    lines = None
    try:
        with opened(source) as stream:
            lines = Lines(unpacked(stream), limit)
            yield from _checked(lines, steadily)
    except Fault as fault:
        raise TraceError(file, lines.number if lines else 1, fault.field, fault.reason) from None
    except OSError as error:
        raise TraceError(file, 0, "", f"cannot read: {error.strerror or error}") from None


def parse(raw: bytes) -> Line:
    """The event of one line, without its newline: types and duplicate keys checked, structure not. Raises Fault."""
    try:
        event = DECODER.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _explained(raw, error) from None
    refuse_duplicate_keys(raw, event)
    return event


def _checked(lines: Lines, steadily: bool) -> Iterator[tuple[int, Line | Steady]]:
    structure: Structure | None = None
    footer: Footer | None = None
    decode = LineDecoder(steadily).decode
    for raw in lines:
        if footer is not None:
            raise Fault("", "something follows the footer")
        if structure is None:
            header = _header(raw)
            structure = Structure(header)
            yield 1, header
            continue
        try:
            event = decode(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise _explained(raw, error) from None
        if isinstance(event, (SteadyStep, SteadyDeliver)):  # nearly always
            structure.steady(event)
            yield lines.number, event
        elif isinstance(event, Footer):
            structure.footer(event, lines.number)
            footer = event
        elif isinstance(event, Header):
            raise Fault("event", "a second header")
        else:
            structure.check(event)
            yield lines.number, event
    if structure is None:
        raise Fault("", "the file is empty: no header")
    lines.number -= 1  # blame the last line there is
    if footer is None:
        raise Fault("", "the trace is cut off: this is the last line, and it is no footer")
    yield lines.number, footer


def _header(raw: bytes) -> Header:
    if raw.startswith(_UTF8_BOM):
        raise Fault("", "starts with a byte order mark: a trace is UTF-8 without one")
    if raw.startswith(_UTF16_BOMS) or b"\0" in raw:
        raise Fault("", "not a trace: binary data (or UTF-16) instead of JSON lines")
    try:
        found = ANY_VERSION.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass  # parse says what is wrong
    else:
        if found.event == "header" and found.trace != VERSION:
            raise Fault("trace", f"version {found.trace} is not supported, only version {VERSION}")
    event = parse(raw)
    if not isinstance(event, Header):
        raise Fault("event", "the first line must be the header")
    if len(OBSERVES.decode(raw).observes) != len(event.observes):
        raise Fault("observes", "a name stands there twice")
    return event


def _explained(raw: bytes, error: Exception) -> Fault:
    """A Fault for what decoding `raw` raised."""
    if isinstance(error, RecursionError):
        return Fault("", "nested too deeply")
    if not raw.strip():
        return Fault("", "blank line")
    reason = str(error)
    if isinstance(error, msgspec.ValidationError):
        reason, at, path = reason.rpartition(" - at `$") if reason.endswith("`") else (reason, "", "")
        if not at:
            reason, path = path or reason, ""
        field = path.removesuffix("`").removeprefix(".")
        if reason.startswith(("Object contains unknown field", "Object missing required field")):
            key = reason.partition("`")[2].removesuffix("`")
            field = f"{field}.{key}" if field else key
        if reason.startswith("Expected `str` matching regex"):  # the one pattern there is
            reason = "not a request id: 1 to 128 characters, none whitespace, control, invisible or one of <>&\"'`"
        return Fault(field, reason)
    if reason == "Input data was truncated":
        surrogate = ", or a lone surrogate" if b"\\ud" in raw.lower() else ""
        return Fault("", f"cut off: the line ends in the middle of its JSON{surrogate}")
    for word in (b"NaN", b"Infinity"):
        if word in raw:
            return Fault("", f"{reason} (is {word.decode()} meant as a number? JSON has none)")
    return Fault("", reason)
