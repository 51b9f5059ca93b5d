"""The process beside the engine, a real one: that it says what it finds, and that neither takes the other with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from preempt_oracle.check import check
from preempt_oracle.record import channel, scheduler
from preempt_oracle.record.channel import Channel
from preempt_oracle.trace.reader import read
from preempt_oracle.verdict import Verdict


def one(directory: Path) -> Path:
    (file,) = directory.iterdir()
    return file


def until(true, seconds=20.0):
    """Wait for what another process does."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def test_what_is_kept_conforms_and_a_violation_is_said_on_the_engines_standard_error(vllm, configured, capfd):
    directory = configured(ONLINE="on")
    recorded, plain = vllm.Beside(), vllm.Plain()
    assert vllm.serve(recorded, vllm.workload()) == vllm.serve(plain, vllm.workload())
    recorded.wrong = lambda s: s.running[0]
    vllm.serve(recorded, vllm.workload())
    keeper = recorded.capture.channel._keeper
    assert os.getsid(keeper.pid) == keeper.pid != os.getsid(0)  # an interrupt at the terminal does not reach it
    recorded.shutdown()
    assert keeper.returncode == 0
    tally = check(one(directory))
    assert (tally.verdict, tally.lost) == (Verdict.VIOLATES, 0)
    (line,) = capfd.readouterr().err.splitlines()
    failure = tally.failures[0]
    assert f"[preempt_oracle.record] {failure.violation.rule} is violated in step {failure.frame}, " in line


def served(how: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """An engine of its own, to its end and that of the process beside it, which holds the same standard error."""
    command = [sys.executable, str(Path(__file__).with_name("serving_child.py")), how]
    env = {**os.environ, "PREEMPT_ORACLE_RECORD_DIR": str(directory)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_an_engine_that_is_killed_leaves_a_series_that_can_be_read(configured):
    directory = configured()
    ended = served("kill", directory)
    assert ended.returncode == -signal.SIGKILL
    assert "the recording stops: the engine ended without a word" in ended.stderr
    tally = check(one(directory))
    assert (tally.failures, tally.lost) == ([], 1)
    assert tally.preemptions > 3


def test_an_engine_that_ends_without_a_shutdown_says_so_for_its_scheduler(configured):
    directory = configured()
    ended = served("exit", directory)
    assert (ended.returncode, ended.stderr) == (0, "")
    tally = check(one(directory))
    assert (tally.verdict, tally.lost) == (Verdict.CONFORMS, 0)


def test_a_disk_that_takes_no_more_ends_the_recording_alone(configured):
    directory = configured()
    ended = served("limit", directory)
    assert ended.returncode == 0
    assert "the recording stops: " in ended.stderr
    assert "File too large" in ended.stderr
    tally = check(one(directory))
    assert tally.failures == []
    assert tally.lost >= 1


def test_a_keeper_that_dies_takes_nothing_with_it(vllm, configured, logged, capfd):
    configured()
    recorded, plain = vllm.Beside(), vllm.Plain()
    first = vllm.serve(recorded, vllm.workload())
    keeper = recorded.capture.channel._keeper
    keeper.kill()
    until(lambda: keeper.poll() is not None)
    assert first + vllm.serve(recorded, vllm.workload(60)) == vllm.serve(plain, vllm.workload()) + vllm.serve(
        plain, vllm.workload(60)
    )
    assert recorded.capture.over
    assert "_preempt_request" not in vars(recorded)
    recorded.shutdown()
    assert logged()[0].startswith("the recording is over, its end is missing: the recorder's process is gone (")
    assert logged()[1].endswith("calls of the scheduler behind the end of the recording were not recorded")
    assert len(logged()) == 2
    assert capfd.readouterr().err == ""


def test_a_keeper_that_is_too_slow_costs_bounded_memory_and_no_time(vllm, configured, logged, capfd, monkeypatch):
    directory = configured()
    monkeypatch.setattr(channel, "BUFFER", 4096)
    narrow = scheduler.recording(vllm.Plain, lambda s: vllm.begin(s, connect=lambda begun, _: Channel(begun, 60_000)))
    recorded, plain = narrow(), vllm.Plain()
    keeper = recorded.capture.channel._keeper
    os.kill(keeper.pid, signal.SIGSTOP)
    try:
        assert vllm.serve(recorded, vllm.workload(900), 9000) == vllm.serve(plain, vllm.workload(900), 9000)
        assert recorded.capture.over
        assert len(recorded.capture.channel._sending) < 100_000
    finally:
        os.kill(keeper.pid, signal.SIGCONT)
    recorded.shutdown()
    tally = check(one(directory))
    assert (tally.failures, tally.lost) == ([], 1)
    assert tally.steps > 50
    assert "MB wait to be written: the disk or the processor is too slow" in capfd.readouterr().err
    assert logged()[-1].endswith("calls of the scheduler behind the end of the recording were not recorded")


def test_what_the_keeper_refuses_is_refused_at_start(vllm, configured, monkeypatch):
    directory = configured()
    gone = directory / "gone"
    gone.mkdir()
    monkeypatch.setenv("PREEMPT_ORACLE_RECORD_DIR", str(gone))

    def begin(s):
        def late(begun, limit):
            gone.rmdir()
            return Channel(begun, limit)

        return vllm.begin(s, connect=late)

    with pytest.raises(scheduler.CannotRecord, match="cannot begin: No such file or directory"):
        scheduler.recording(vllm.Plain, begin)()


def test_a_keeper_that_cannot_be_started_is_a_refusal(vllm, configured, monkeypatch):
    configured()
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(scheduler.CannotRecord, match="the recorder's process cannot be started"):
        vllm.Beside()


def test_a_fork_of_the_engine_does_not_end_its_recording(vllm, configured):
    directory = configured()
    recorded = vllm.Beside()
    vllm.serve(recorded, vllm.workload())
    pid = os.fork()
    if pid == 0:
        recorded.capture.close()
        os._exit(0)
    os.waitpid(pid, 0)
    vllm.serve(recorded, vllm.workload())
    recorded.shutdown()
    assert (check(one(directory)).lost, len(list(read(one(directory)))) > 100) == (0, True)
