"""The command as a process: closed pipes, signals, faults of our own, orphans."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from preempt_oracle.cli import main as entry

COMMAND = [sys.executable, "-c", "import sys; from preempt_oracle.cli.main import main; main()"]


def test_a_closed_pipe_is_neither_a_verdict_nor_a_traceback(good):
    # `head` ends after a line; the rest of the report has nobody to go to.
    traces = [str(good)] * 200
    with subprocess.Popen([*COMMAND, "check", *traces], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        err = child.stderr.read()
        assert child.wait(60) == entry.PIPE_CLOSED
    assert err == b""


def test_a_terminal_of_ascii_gets_codes(good):
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([*COMMAND, "rules", "pool/conserve"], capture_output=True, env=env)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([*COMMAND, "check", str(good)], capture_output=True, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def gone(pid: int) -> bool:
    until = time.monotonic() + 10
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pid)


HANGS = """
    import os, pathlib, subprocess, sys, time
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path(sys.argv[1] + ".new").write_text(f"{os.getpid()} {grandchild.pid}")
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    time.sleep(600)
"""


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_command_leaves_no_process_of_the_engine(here: Path, number: int):
    (here / "hangs.py").write_text(textwrap.dedent(HANGS))
    words = ["conform", "--stdio", f"{sys.executable} hangs.py pids", "--seed", "1"]
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        until = time.monotonic() + 30
        while not (here / "pids").exists() and time.monotonic() < until:
            time.sleep(0.02)
        child.send_signal(number)
        _, err = child.communicate(timeout=30)
    assert child.returncode == 128 + number
    assert b"Traceback" not in err
    assert all(gone(int(pid)) for pid in (here / "pids").read_text().split())


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_a_fault_of_our_own_says_so_and_is_exit_3(run, good, monkeypatch):
    monkeypatch.setattr("preempt_oracle.check.check", raising(KeyError("\x1b[31mfault\nline")))
    result = run("check", good)
    assert result.exit_code == 3
    assert "this is a fault of preempt-oracle, please report it: KeyError: " in result.stderr
    assert "(--debug shows where)" in result.stderr
    assert "\x1b" not in result.stderr


def test_debug_shows_where(good, monkeypatch):
    from click.testing import CliRunner

    monkeypatch.setattr("preempt_oracle.check.check", raising(KeyError("fault")))
    result = CliRunner().invoke(entry.cli, ["--debug", "check", str(good)])
    assert result.exit_code == 3
    assert "Traceback" in result.stderr


def test_an_absent_extra_is_named(run, good, monkeypatch):
    monkeypatch.setattr("preempt_oracle.check.check", raising(ModuleNotFoundError("no z3", name="z3")))
    result = run("check", good)
    assert result.exit_code == 2
    assert "pip install 'preempt-oracle[properties]'" in result.stderr
