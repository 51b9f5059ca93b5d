"""Files, streams, compression and the order of lines: what is no whole trace is refused with file, line and reason."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_oracle.trace.errors import TraceError
from preempt_oracle.trace.reader import read
from preempt_spec import events as e

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "zstd": zstd.compress,
}


def joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def refused(content: bytes, **options: Any) -> TraceError:
    with pytest.raises(TraceError) as caught:
        list(read(io.BytesIO(content), name="t.jsonl", **options))
    assert str(caught.value).startswith("t.jsonl")
    return caught.value


def edited(lines: list[bytes], number: int, edit: Callable[[dict[str, Any]], object]) -> bytes:
    """The trace with one line, from 1, changed in place."""
    line = json.loads(lines[number - 1])
    edit(line)
    return joined([*lines[: number - 1], json.dumps(line).encode(), *lines[number:]])


@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize("how", ["path", "stream", "stdin"])
def test_all_lines_come_back(
    tmp_path: Path, lines: list[bytes], spec_trace: Any, packed: str, how: str, monkeypatch: pytest.MonkeyPatch
):
    content = PACKERS[packed](joined(lines))
    source: Any = tmp_path / "trace.any"  # the format is told by the content
    source.write_bytes(content)
    if how == "stream":
        source = io.BytesIO(content)
    elif how == "stdin":
        source = "-"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    found = list(read(source))
    assert [number for number, _ in found] == list(range(1, len(lines) + 1))
    header, events = spec_trace
    assert [to_spec(line) for _, line in found[:-1]] == [header, *events]
    assert found[-1][1] == wire.Footer(len(lines), 2, 2, 2)


def test_a_pipe_is_read_as_it_comes(lines: list[bytes]):
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as target:
        target.write(lines[0][:3])
        threading.Timer(0.05, target.write, [lines[0][3:] + b"\n" + lines[1] + b"\n"]).start()
        trace = read(source)
        assert isinstance(next(trace)[1], wire.Header)
        assert isinstance(next(trace)[1], wire.Arrive)  # though the pipe is open and the trace unfinished


def test_no_newline_behind_the_footer_and_carriage_returns_are_fine(lines: list[bytes]):
    assert len(list(read(io.BytesIO(joined(lines)[:-1])))) == len(lines)
    assert len(list(read(io.BytesIO(joined(lines).replace(b"\n", b"\r\n"))))) == len(lines)


# -- files ----------------------------------------------------------------------------------------------------------


def test_missing_file(tmp_path: Path):
    with pytest.raises(TraceError) as caught:
        next(read(tmp_path / "no.jsonl"))
    assert str(caught.value) == f"{tmp_path}/no.jsonl: cannot read: No such file or directory"
    assert caught.value.line == 0


def test_directory(tmp_path: Path):
    with pytest.raises(TraceError, match="Is a directory"):
        next(read(tmp_path))


def test_name_with_nul():
    with pytest.raises(TraceError, match=r"^a\\x00b: cannot read: embedded null byte$"):
        next(read("a\0b"))


def test_permission_denied(tmp_path: Path):
    path = tmp_path / "secret.jsonl"
    path.write_bytes(b"")
    path.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        with pytest.raises(TraceError, match="cannot read: Permission denied"):
            next(read(path))
    finally:
        if root:
            os.seteuid(0)


def test_closed_standard_input(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(TraceError, match=r"^<stdin>: cannot read: standard input is closed"):
        next(read("-"))


def test_a_stream_that_fails(lines: list[bytes]):
    class Failing(io.RawIOBase):
        def __init__(self) -> None:
            self.answers: Iterator[bytes | None] = iter([joined(lines[:2]), None])

        def read(self, size: int = -1) -> bytes | None:
            return next(self.answers)

    trace = read(Failing())  # type: ignore[arg-type]
    assert [number for number, _ in (next(trace), next(trace))] == [1, 2]
    with pytest.raises(TraceError, match="cannot read: a non-blocking stream had no data"):
        next(trace)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "t.jsonl:1: the file is empty: no header"),
        (b"\n", "t.jsonl:1: blank line"),
        (b"\xef\xbb\xbf{}", "t.jsonl:1: starts with a byte order mark"),
        ('{"event":"header"}'.encode("utf-16"), "t.jsonl:1: not a trace: binary data (or UTF-16)"),
        (b"\x7fELF\x02\x01\x01\x00\x00", "t.jsonl:1: not a trace: binary data"),
        (b"\x89PNG\r\n\x1a\n", "t.jsonl:1: JSON is malformed"),
        (b"\xff\xff\xff\xff", "t.jsonl:1: JSON is malformed"),
        (b"event: header\n", "t.jsonl:1: JSON is malformed"),
        (b"[1,2]\n", "t.jsonl:1: Expected `object`, got `array`"),
        (b"{}\n", "t.jsonl:1: event: Object missing required field `event`"),
        (b'{"event":"header","engine":"e"}', "t.jsonl:1: version: Object missing required field `version`"),
        (b'{"event":"header","eng', "t.jsonl:1: cut off: the line ends in the middle of its JSON"),
        (b'{"event":"step","frame":1}', "t.jsonl:1: event: the first line must be the header"),
        (b'{"event":"header","trace":2,"new":[]}', "t.jsonl:1: trace: version 2 is not supported, only version 1"),
        (gzip.compress(b"", mtime=0), "t.jsonl:1: the file is empty"),
        (zstd.compress(b""), "t.jsonl:1: the file is empty"),
        (gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0), "t.jsonl:1: not a trace: binary data"),
    ],
)
def test_not_a_trace(content: bytes, message: str):
    assert str(refused(content)).startswith(message)


# -- compression ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", PACKERS)
def test_every_cut_is_noticed(lines: list[bytes], packed: str):
    content = PACKERS[packed](joined(lines))
    for length in range(0, len(content) - (packed == "plain"), 3 if packed == "plain" else 1):
        refused(content[:length])
    refused(content[: -2 if packed == "plain" else -1])


@pytest.mark.parametrize("packed", ["gzip", "zstd"])
def test_members(lines: list[bytes], packed: str):
    pack = PACKERS[packed]
    first, second = pack(joined(lines[:5])), pack(joined(lines[5:]))
    assert len(list(read(io.BytesIO(first + pack(b"") + second)))) == len(lines)
    for length in range(1, len(second)):
        error = refused(first + second[:length])
        assert "cut off" in str(error) or "corrupt" in str(error)
    assert "the trace is cut off" in str(refused(first))


@pytest.mark.parametrize("packed", ["gzip", "zstd"])
@pytest.mark.parametrize("garbage", [b"\0", b"\n", b"\x1f", b"garbage", b"\0" * 512, b"\x28\xb5\x2f"])
def test_trailing_garbage(lines: list[bytes], packed: str, garbage: bytes):
    error = refused(PACKERS[packed](joined(lines)) + garbage)
    assert f"{packed} stream is" in str(error)
    assert "corrupt, or something else follows its 1 whole part" in str(error) or "cut off" in str(error)


def test_members_of_two_formats(lines: list[bytes]):
    refused(gzip.compress(joined(lines[:5])) + zstd.compress(joined(lines[5:])))


def test_a_skippable_zstd_frame(lines: list[bytes]):
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    assert len(list(read(io.BytesIO(skippable + zstd.compress(joined(lines)))))) == len(lines)


def test_a_wrong_checksum(lines: list[bytes]):
    content = bytearray(gzip.compress(joined(lines)))
    content[-6] ^= 1
    assert "gzip stream is corrupt: " in str(refused(bytes(content)))


@pytest.mark.parametrize("packed", PACKERS)
def test_memory_is_constant(packed: str):
    step = wire.ENCODER.encode(wire.Step(7, reason="x" * 5000)) + b"\n"
    limits = wire.Limits(64, 64, 64)
    header = wire.ENCODER.encode(wire.Header("e", "1", "p", limits, pools=(wire.Pool(total=4),))) + b"\n"
    pack = PACKERS[packed]

    class Long(io.RawIOBase):
        parts = iter([pack(header), *[pack(step * 100)] * 40])

        def read(self, size: int = -1) -> bytes:
            return next(self.parts, b"")

    count = 0
    tracemalloc.start()
    try:
        trace = read(Long(), name="t")  # type: ignore[arg-type]
        while count < 4001:
            next(trace)
            count += 1
        with pytest.raises(TraceError, match=r"t:4001: the trace is cut off"):
            next(trace)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20  # of 20 MB


def test_line_length_limit(lines: list[bytes]):
    longest = max(map(len, lines))
    assert len(list(read(io.BytesIO(joined(lines)), limit=longest))) == len(lines)
    error = refused(joined(lines), limit=longest - 1)
    assert str(error) == f"t.jsonl:5: the line is longer than {longest - 1} bytes"
    assert "t.jsonl:1: the line is longer than 67108864 bytes" in str(refused(zstd.compress(b" " * (65 << 20))))


# -- order ----------------------------------------------------------------------------------------------------------


def test_second_header(lines: list[bytes]):
    assert str(refused(joined([lines[0], *lines]))) == "t.jsonl:2: event: a second header"


def test_missing_footer(lines: list[bytes]):
    last = len(lines) - 1
    error = refused(joined(lines[:-1]))
    assert str(error) == f"t.jsonl:{last}: the trace is cut off: this is the last line, and it is no footer"


@pytest.mark.parametrize("more", [b"\n", b" ", b'{"event":"step","frame":9}\n', b"x"])
def test_nothing_follows_the_footer(lines: list[bytes], more: bytes):
    assert str(refused(joined(lines) + more)) == f"t.jsonl:{len(lines) + 1}: something follows the footer"


def test_two_traces_in_one_file(lines: list[bytes]):
    assert "something follows the footer" in str(refused(joined(lines) * 2))


def test_blank_line(lines: list[bytes]):
    for blank in (b"", b"  ", b"\r"):
        assert str(refused(joined([*lines[:3], blank, *lines[3:]]))) == "t.jsonl:4: blank line"


@pytest.mark.parametrize(("field", "true"), [("lines", 14), ("steps", 2), ("grants", 2), ("preemptions", 2)])
def test_footer_counts(lines: list[bytes], field: str, true: int):
    error = refused(edited(lines, len(lines), lambda line: line.update({field: 5})))
    assert str(error) == f"t.jsonl:14: {field}: the footer says 5, the trace has {true}: lines are missing or added"


def test_a_line_too_few(lines: list[bytes]):
    for number in range(2, len(lines)):
        assert "lines are missing or added" in str(refused(joined(lines[: number - 1] + lines[number:])))


def test_only_the_stream_it_opened_is_closed(lines: list[bytes]):
    stream = io.BytesIO(joined(lines))
    list(read(stream))
    assert not stream.closed


def test_preemptions_are_demote_acts_of_steps_and_controls(spec_trace: tuple[e.Header, tuple[e.Event, ...]]):
    demotes = [act for event in spec_trace[1] for act in getattr(event, "acts", ()) if isinstance(act, e.Demote)]
    assert len(demotes) == 2
