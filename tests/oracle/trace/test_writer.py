"""What stands under a trace's name is whole, the same for the same events, and readable by the reader."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_wire
from preempt_oracle.trace.errors import TraceError
from preempt_oracle.trace.reader import read
from preempt_oracle.trace.writer import create
from preempt_spec import events as e

HEADER = e.Header("demo", "1", "p", e.Limits(1, 1, 1), pools=(e.Pool(total=4),))


class Boom(Exception):
    pass


def write(target: Any, spec_trace: Any) -> None:
    header, events = spec_trace
    with create(target, header) as trace:
        for event in events:
            trace.write(event)


@pytest.mark.parametrize(
    ("name", "unpack"), [("t.jsonl", bytes), ("t.jsonl.gz", gzip.decompress), ("t.zst", zstd.decompress)]
)
def test_format_by_suffix_and_same_bytes_for_same_events(
    tmp_path: Path, lines: list[bytes], spec_trace: Any, name: str, unpack: Any
):
    path = tmp_path / name
    write(path, spec_trace)
    content = path.read_bytes()
    assert unpack(content).splitlines() == lines
    assert len(list(read(path))) == len(lines)
    write(str(path), spec_trace)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_wire_events_and_their_source(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    with create(path, to_wire(HEADER)) as trace:
        trace.write(wire.Step(0, source="worker"))
        trace.write(e.Step(1))
    assert [line for _, line in read(path)][1:] == [
        wire.Step(0, source="worker"),
        wire.Step(1),
        wire.Footer(4, 2, 0, 0),
    ]


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.jsonl.zst"])
def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path: Path, name: str):
    path = tmp_path / name
    path.write_bytes(b"old")
    with pytest.raises(Boom), create(path, HEADER) as trace:  # noqa: PT012
        trace.write(e.Step(0))
        assert path.read_bytes() == b"old"
        raise Boom
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError), create(path, HEADER):
        raise FileNotFoundError("the caller's own, not turned into a TraceError")


def test_a_symbolic_link_stays(tmp_path: Path):
    (tmp_path / "link").symlink_to("real.jsonl")
    with create(tmp_path / "link", HEADER):
        pass
    assert (tmp_path / "link").is_symlink()
    assert len(list(read(tmp_path / "real.jsonl"))) == 2


def test_a_device_is_not_replaced():
    with create("/dev/null", HEADER) as trace:
        trace.write(e.Step(0))
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_standard_output_and_streams(monkeypatch: pytest.MonkeyPatch, lines: list[bytes], spec_trace: Any):
    stream = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stream))
    write("-", spec_trace)
    assert stream.getvalue().splitlines() == lines
    cut = io.BytesIO()
    with pytest.raises(Boom), create(cut, HEADER):
        raise Boom
    with pytest.raises(TraceError, match="cut off"):
        list(read(io.BytesIO(cut.getvalue())))


def test_places_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(TraceError, match="folder: cannot write: Is a directory"), create(tmp_path / "folder", HEADER):
        pass
    missing = tmp_path / "no" / "t.jsonl"
    with pytest.raises(TraceError, match="cannot write: No such file or directory"), create(missing, HEADER):
        pass
    with pytest.raises(TraceError, match=r"cannot write: .*embedded null"), create("a\0", HEADER):
        pass
    closed = io.BytesIO()
    closed.close()
    with pytest.raises(TraceError, match="cannot write: I/O operation on closed file"), create(closed, HEADER):
        pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk():
    full = "/dev/full: cannot write: No space left on device"
    with pytest.raises(TraceError, match=full), create("/dev/full", HEADER) as trace:
        trace.write(e.Step(0, reason="x" * 100_000))
    with pytest.raises(TraceError, match=full), create("/dev/full", HEADER):
        pass  # found out when the file is closed


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (e.Step(-1), "2: frame: Expected `int` >= 0"),
        (e.Step(0, ("a",)), "2: tokens: 0 elements for 1 requests"),
        (e.Step(0, ("a",), (1.0,)), "2: tokens[0]: Expected `int`, got `float`"),  # type: ignore[arg-type]
        (e.Step(0, ("a",), (True,)), "2: tokens[0]: Expected `int`, got `bool`"),
        (e.Step(0, reason="\ud800"), "2: cannot be encoded"),
        (e.Step(0, reason=object()), "2: cannot be encoded"),  # type: ignore[arg-type]
        (e.Arrive("a b", (1,), 1), "2: request: not a request id"),
        (e.Arrive("a", (2**80,), 1), "2: "),
        (e.Step(0, blocks=(e.Delta("a", 0, (4,)),)), "2: blocks[0]: block 4 is outside"),
        (e.Control("reset", (e.Demote("a", cause="whim"),)), "2: acts[0].cause: Invalid enum value 'whim'"),
        (wire.Footer(1, 1, 1, 1), "2: event: header and footer are not written as events"),
    ],
)
def test_what_the_reader_would_refuse_is_not_written(tmp_path: Path, event: Any, message: str):
    path = tmp_path / "t.jsonl"
    with pytest.raises(TraceError) as caught, create(path, HEADER, name="out") as trace:
        trace.write(event)
    assert str(caught.value).startswith(f"out:{message}")
    assert not path.exists()


def test_after_a_refused_event_the_trace_can_go_on(tmp_path: Path):
    with create(tmp_path / "t", HEADER) as trace:
        with pytest.raises(TraceError):
            trace.write(e.Step(-1))
        with pytest.raises(TraceError):
            trace.write(e.Step(0, ("a",), (1,), acts=(e.Demote("a", 0), e.Demote("a", 5))))
        trace.write(e.Step(0))
    assert next(reversed([line for _, line in read(tmp_path / "t")])) == wire.Footer(3, 1, 0, 0)


def test_a_bad_header(tmp_path: Path):
    header = e.Header("demo", "1", "p", e.Limits(1, 1, 1))
    with pytest.raises(TraceError, match="1: pools: no device pool of group 0"), create(tmp_path / "t", header):
        pass
    assert list(tmp_path.iterdir()) == []
