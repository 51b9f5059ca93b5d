"""A child process that does everything wrong: a clear error each time, never a verdict, never a process left behind."""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from preempt_oracle.adapters import stdio
from preempt_oracle.adapters.protocol import HarnessError, Refused, Session, Started
from preempt_oracle.adapters.stdio import Stdio
from preempt_properties.scenario import Add, Config

CONFIG = Config("vllm-fcfs", 8, 4, 4, 64, 32)

#: `answer(n)` is a good reply to command n, and `out` writes bytes; scripts say what they do instead.
PREAMBLE = """
import json, os, sys, time
def out(data): os.write(1, data if isinstance(data, bytes) else data.encode())
def answer(n, **more):
    return json.dumps({"id": n, "event": "header", "engine": "e", "version": "1", "policy": "vllm-fcfs",
        "limits": {"max_running": 4, "budget": 64, "max_length": 32}, "pools": [{"total": 8}], **more}) + "\\n"
def command(): return json.loads(sys.stdin.readline())
"""
Start = Callable[..., Session]


@pytest.fixture
def child() -> Iterator[Start]:
    """Start a script; its process group must be gone at the end, whoever ended it."""
    transports: list[Stdio] = []

    def start(script: str, patience: float = 10) -> Session:
        words = [sys.executable, "-c", PREAMBLE + textwrap.dedent(script)]
        transports.append(Stdio(words, "child", patience=patience, start_patience=patience))
        return Session(transports[-1])

    yield start
    for transport in transports:
        transport.close()
        transport.close()  # twice is once
        # A killed process takes a moment to go, longer on a busy machine.
        deadline = time.monotonic() + 10
        while members(transport._child.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not members(transport._child.pid)


def members(group: int) -> list[int]:
    """Processes of a group that still run; zombies, which wait for whoever adopted them, do not."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, pgrp = stat.read_text().rsplit(")", 1)[1].split()[:3]
            if int(pgrp) == group and state != "Z":
                found.append(int(stat.parent.name))
    return found


def broken(session: Session) -> str:
    with pytest.raises(HarnessError) as raised:
        session.start(CONFIG)
    text = str(raised.value)
    assert text.startswith("child")
    assert all(line.isprintable() for line in text.splitlines())
    return text


def test_one_that_is_right(child: Start):
    started = child("n = command(); out(answer(n['id'], capabilities=['abort']))").start(CONFIG)
    assert isinstance(started, Started)
    assert started.capabilities == {"abort"}


def test_one_that_refuses(child: Start):
    refused = child("n = command(); out(json.dumps(dict(id=n['id'], event='refused', reason='no')) + '\\n')")
    assert refused.start(CONFIG) == Refused("no")


def test_one_that_dies_at_once(child: Start):
    text = broken(child("sys.stderr.write('last \\x1b[31mwords\\n'); sys.exit(7)"))
    assert "(exit 7)" in text
    assert "  | last \\x1b[31mwords" in text


def test_one_that_dies_after_the_command(child: Start):
    text = broken(child("command(); os._exit(9)"))
    assert "child ended without answering start" in text


def test_one_that_is_killed(child: Start):
    assert "ended without answering" in broken(child("command(); os.kill(os.getpid(), 9)"))


def test_one_that_hangs(child: Start):
    began = time.monotonic()
    text = broken(child("command(); time.sleep(600)", patience=0.3))
    assert "did not answer start within 0.3 s" in text
    assert time.monotonic() - began < 5


def test_one_that_does_not_read(child: Start):
    session = child("time.sleep(600)", patience=0.3)
    with pytest.raises(HarnessError, match=r"did not take the command add within 0\.3 s"):
        session.add(Add("a", tuple(range(100_000)), 1))  # more than a pipe holds


def test_one_that_floods_before_it_is_asked(child: Start):
    session = child("out(b'x' * 30_000); n = command(); out(answer(n['id']))")
    assert "not JSON" in broken(session)


def test_one_that_floods_stdout_without_end(child: Start, monkeypatch):
    monkeypatch.setattr(stdio, "MAX_REPLY", 1 << 20)
    assert "more than 1048576 bytes in one line" in broken(child("command()\nwhile True: out(b'x' * 65536)"))


def test_one_that_floods_stderr(child: Start):
    script = "n = command(); sys.stderr.write('x' * 3_000_000); sys.stderr.flush(); out(answer(n['id']))"
    assert isinstance(child(script).start(CONFIG), Started)  # nobody waits for it to be read


def test_one_that_answers_out_of_order(child: Start):
    assert "answered 2 to command 1 (start)" in broken(child("n = command(); out(answer(n['id'] + 1))"))


@pytest.mark.parametrize("number", ["None", "'1'", "1.5", "[1]", "True + 1"])
def test_one_with_a_wrong_id(child: Start, number):
    assert "to command 1 (start)" in broken(child(f"command(); out(answer({number}))"))


def test_one_that_answers_twice(child: Start):
    session = child("n = command(); out(answer(n['id']) * 2); command(); time.sleep(600)")
    assert isinstance(session.start(CONFIG), Started)
    with pytest.raises(HarnessError, match="before it was asked"):
        session.step()


@pytest.mark.parametrize(
    "reply",
    ["nonsense", "", "{", "[]", "null", "17", '"text"', "NaN", "\\x00\\x01", "[" * 20_000],
    ids=lambda text: text[:8] or "blank",
)
def test_one_that_answers_with_no_object(child: Start, reply):
    assert "answered start with something that is not" in broken(child(f"command(); out(b'{reply}' + b'\\n')"))


def test_one_whose_bytes_are_no_text(child: Start):
    assert "not JSON" in broken(child("command(); out(bytes(range(128, 200)) + b'\\n')"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("event=None", "the reply to start has no event"),
        ("event=7", "the reply to start has no event"),
        ("policy=3", "Expected `str`, got `int` - at `$.policy`"),
        ("pools=[]", "no device pool of group 0"),
        ("pools=[{'total': -1}]", "$.pools[0].total"),
        ("observes=['everything']", "unknown: everything"),
        ("extra=1", "unknown field `extra`"),
        ("capabilities=3", "capabilities: expected a list of names"),
        ("capabilities=[3]", "capabilities: expected a list of names"),
        ("trace=2", "version 2 is not supported"),
        ("limits={'max_running': 2.5, 'budget': 1, 'max_length': 1}", "$.limits.max_running"),
    ],
)
def test_one_with_nonsense_types(child: Start, change, said):
    assert said in broken(child(f"n = command(); out(answer(n['id'], **dict({change})))"))


def test_one_that_answers_another_question(child: Start):
    session = child("n = command(); out(answer(1)); n = command(); out(answer(2))")
    session.start(CONFIG)
    with pytest.raises(HarnessError, match="answered 'header' to step"):
        session.step()


def test_one_that_dies_and_leaves_a_child_with_its_stdout(child: Start):
    began = time.monotonic()
    session = child(
        """
        import subprocess
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        command(); os._exit(1)
        """
    )
    assert "ended without answering start (exit 1)" in broken(session)
    assert time.monotonic() - began < 8  # not the whole patience


def test_one_that_cannot_be_started():
    with pytest.raises(HarnessError, match="cannot start '/no/such/program': No such file"):
        Stdio(["/no/such/program"], "child")


def test_its_environment_is_what_was_given(monkeypatch):
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")  # what an engine's environment leaves out on purpose must stay out
    script = PREAMBLE + "n = command(); out(answer(n['id'], engine=str(sys.flags.optimize)))"
    transport = Stdio([sys.executable, "-c", script], "child", env={"PATH": os.environ["PATH"]})
    try:
        started = Session(transport).start(CONFIG)
        assert isinstance(started, Started)
        assert started.header.engine == "0"
    finally:
        transport.close()
