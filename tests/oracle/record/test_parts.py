"""The files of a recording: rotation, the series they make, and disks that are full."""

from __future__ import annotations

import errno
import gzip
import os
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from preempt_oracle.check import check
from preempt_oracle.cli.main import cli
from preempt_oracle.record import parts
from preempt_oracle.trace import wire
from preempt_oracle.trace.errors import TraceError
from preempt_oracle.trace.reader import read
from preempt_oracle.trace.series import heads
from preempt_oracle.verdict import Verdict


class FullDisk:
    """A real file on a disk of `room` bytes: what does not fit is written in part, and then ENOSPC."""

    room = 0

    def __init__(self, path: Path) -> None:
        self.raw = path.open("xb", buffering=0)

    @property
    def used(self) -> int:
        return os.fstat(self.raw.fileno()).st_size

    def write(self, data: bytes) -> int:
        fits = data[: max(0, FullDisk.room - self.used)]
        if not fits:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.raw.write(fits)

    def seek(self, offset: int) -> int:
        return self.raw.seek(offset)

    def truncate(self, size: int) -> int:
        return self.raw.truncate(size)

    def close(self) -> None:
        self.raw.close()


HEADER = wire.Header("fake", "1", "vllm-fcfs", wire.Limits(2, 8, 8), pools=(wire.Pool(total=4),))


def on_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts go to a `FullDisk`."""
    defaults = parts.Parts.__init__.__kwdefaults__ or {}
    monkeypatch.setattr(parts.Parts.__init__, "__kwdefaults__", {**defaults, "opener": FullDisk})


def small(monkeypatch: pytest.MonkeyPatch, size: int, limit: int = 1 << 40) -> None:
    """Parts of a size that no setting allows."""
    original = parts.Parts.__init__

    def shrunk(self, directory, header, *, part, limit_=limit, **more):
        more.pop("limit", None)
        original(self, directory, header, part=size, limit=limit_, **more)

    monkeypatch.setattr(parts.Parts, "__init__", shrunk)


@pytest.fixture
def series(vllm, configured, monkeypatch) -> list[Path]:
    small(monkeypatch, 3000)
    directory = configured()
    recorded = vllm.Recorded()
    vllm.serve(recorded, vllm.workload(30))
    recorded.shutdown()
    return sorted(directory.iterdir())


def test_a_series_is_judged_as_one_trace_from_its_first_part(series):
    assert len(series) > 4
    for file in series:
        assert file.stat().st_size < 3000 + 1500
        assert isinstance(list(read(file))[-1][1], wire.Footer)  # each a trace by its form
    whole = check(series[0])
    assert (whole.verdict, whole.lost) == (Verdict.CONFORMS, 0)
    assert whole.steps == sum(isinstance(line, wire.Step) for file in series for _, line in read(file))


def test_a_later_part_says_which_file_to_name(series):
    with pytest.raises(TraceError, match=r"part 2 of a series cannot be judged alone: name .*\.00001\.jsonl"):
        check(series[1])


def test_all_parts_on_the_command_line_are_one_input(series):
    answer = CliRunner().invoke(cli, ["check", *map(str, series)])
    assert answer.exit_code == 0, answer.output
    assert answer.output.count("CONFORMS") == 1
    assert heads([str(f) for f in series]) == [str(series[0])]
    assert heads([str(f) for f in series[1:]]) == [str(f) for f in series[1:]]
    assert heads(["-", "x.jsonl"]) == ["-", "x.jsonl"]


def test_packed_parts_are_found(series):
    for file in series[::2]:
        with file.open("rb") as raw, gzip.open(f"{file}.gz", "wb") as packed:
            shutil.copyfileobj(raw, packed)
        file.unlink()
    assert check(f"{series[0]}.gz").verdict is Verdict.CONFORMS


def test_a_missing_part_is_named(series):
    series[2].unlink()
    with pytest.raises(TraceError, match=r"the next part, .*\.00003\.jsonl, is missing"):
        check(series[0])


def test_a_part_of_another_series_is_refused(series):
    text = series[1].read_text().replace('"budget":16', '"budget":17', 1)
    series[1].write_text(text)
    with pytest.raises(TraceError, match=r"this is not part 2 of .*: the header is another one"):
        check(series[0])


def test_a_violation_in_a_later_part_is_placed_there(vllm, configured, monkeypatch, logged):
    small(monkeypatch, 3000)
    directory = configured(ONLINE="on")
    recorded = vllm.Recorded()
    requests = vllm.workload(30)
    vllm.serve(recorded, requests[:16])
    recorded.wrong = lambda s: s.running[0]
    for request in requests[16:]:
        request.arrival_time = 0.0
    vllm.serve(recorded, requests[16:])
    recorded.shutdown()
    first, *_ = sorted(directory.iterdir())
    where = check(first).failures[0].where
    file, _, line = where.rpartition(":")
    assert not file.endswith("00001.jsonl")
    assert f"{file}, line {line}: " in logged()[0]


@pytest.mark.parametrize("room", [900, 2000, 2001, 2040, 2500, 3500, 5000, 9000])
@pytest.mark.parametrize("block", [1, 700, 1 << 16])
def test_a_full_disk_costs_the_engine_nothing_and_leaves_a_trace_that_says_so(
    vllm, configured, monkeypatch, logged, room, block
):
    monkeypatch.setattr(FullDisk, "room", room)
    monkeypatch.setattr(parts, "BLOCK", block)
    on_full_disk(monkeypatch)
    directory = configured()
    recorded, plain = vllm.Recorded(), vllm.Plain()
    assert vllm.serve(recorded, vllm.workload()) == vllm.serve(plain, vllm.workload())
    recorded.shutdown()
    (file,) = directory.iterdir()
    lines = [line for line in logged() if "stop" in line or "ends early" in line]
    assert len(lines) == 1
    assert "No space left on device" in lines[0]
    if "its end is missing too" in lines[0]:  # not even the room of one line: cut off behind a whole one
        assert file.read_bytes()[-1:] == b"\n"
        with pytest.raises(TraceError, match="cut off"):
            check(file)
    else:
        tally = check(file)
        assert tally.failures == []
        assert tally.lost >= 1
        assert file.stat().st_size <= room


def test_the_footer_finds_its_room_in_what_the_cut_gives_back(vllm, configured, monkeypatch, logged):
    """Whatever the size of the disk, as soon as a block of lines was written to it."""
    monkeypatch.setattr(parts, "BLOCK", 300)
    on_full_disk(monkeypatch)
    directory = configured()
    for room in range(3000, 3400, 7):
        monkeypatch.setattr(FullDisk, "room", room)
        recorded = vllm.Recorded()
        vllm.serve(recorded, vllm.workload())
        recorded.shutdown()
    for file in directory.iterdir():
        assert check(file).lost >= 1
    assert not [line for line in logged() if "missing too" in line]


def test_a_disk_that_is_full_at_the_next_part_ends_the_series(vllm, configured, monkeypatch, logged):
    small(monkeypatch, 3000)
    created = []

    def opener(path):
        created.append(path)
        if len(created) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return parts.create(path)

    original = parts.Parts.__init__

    def opened(self, *args, **more):
        original(self, *args, **more, opener=opener)

    monkeypatch.setattr(parts.Parts, "__init__", opened)
    directory = configured()
    recorded, plain = vllm.Recorded(), vllm.Plain()
    assert vllm.serve(recorded, vllm.workload(30)) == vllm.serve(plain, vllm.workload(30))
    recorded.shutdown()
    first, _ = sorted(directory.iterdir())
    assert check(first).failures == []
    assert logged()[0].endswith("00003.jsonl: cannot begin: No space left on device")


def test_the_limit_of_a_series_ends_it(vllm, configured, monkeypatch, logged):
    small(monkeypatch, 3000, limit=5000)
    directory = configured()
    recorded = vllm.Recorded()
    vllm.serve(recorded, vllm.workload(30))
    recorded.shutdown()
    first, _ = sorted(directory.iterdir())
    assert logged()[0] == "the recording stops: the limit of 5000 bytes is reached"
    assert check(first).lost >= 1


def test_online_goes_on_when_the_disk_is_full(vllm, configured, monkeypatch, logged):
    monkeypatch.setattr(FullDisk, "room", 1500)
    monkeypatch.setattr(parts, "BLOCK", 300)
    on_full_disk(monkeypatch)
    configured(ONLINE="on")
    recorded = vllm.Recorded()
    vllm.serve(recorded, vllm.workload())
    recorded.wrong = lambda s: s.running[0]
    vllm.serve(recorded, vllm.workload())
    recorded.shutdown()
    assert "No space left" in logged()[0]
    assert re.match(r"victim/choice is violated in step \d+: ", logged()[1])


def test_a_part_cannot_be_put_in_place_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("secrets.token_hex", lambda _: "0")
    parts.Parts(tmp_path, HEADER, part=1000).close()
    before = {f.name: f.read_bytes() for f in tmp_path.iterdir()}
    with pytest.raises(parts.Stopped, match="cannot begin: File exists"):
        parts.Parts(tmp_path, HEADER, part=1000)
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == before
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o077 == 0
