"""Work done in forks of this process: each may change its functions, hang or die; only its answer comes back."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NoReturn

import attrs

#: Wall seconds after which a child must have answered. Only processor time is held against what it runs (`time_left`):
#: how long that takes by the clock depends on what else the machine does.
SILENCE = 900.0


class WorkFailed(Exception):
    """A piece of work raised: the message has the child's traceback. Or it neither works nor ends."""


#: A piece of work: what is done in the child, and what is done here with its answer; None: it ran out of time.
#: What that returns is more work, put first.
Work = tuple[Callable[[], str], Callable[[str | None], "Work | None"]]


def time_left(seconds: float) -> None:
    """In a child: end it after so much processor time, unless this is called again before. Elsewhere: nothing."""
    if _child_of is not None:
        signal.setitimer(signal.ITIMER_PROF, seconds)


#: In a child: whose. The timer ends the process that it is set in, which must be none but a child.
_child_of: int | None = None


@attrs.define(eq=False)
class _Child:
    pid: int
    pipe: int
    then: Callable[[str | None], Work | None]
    since: float = attrs.Factory(time.monotonic)
    said: bytes = b""


def run(works: Iterable[Work], workers: int = 2) -> None:
    """Do all the work, `workers` at a time. Raises WorkFailed."""
    waiting, children = deque(works), dict[int, _Child]()
    try:
        while waiting or children:
            while waiting and len(children) < workers:
                child = _start(*waiting.popleft())
                children[child.pipe] = child
            readable, _, _ = select.select(list(children), [], [], 1.0)
            for pipe in readable:
                child = children[pipe]
                data = os.read(pipe, 1 << 16)
                child.said += data
                if not data:
                    del children[pipe]
                    more = child.then(_end(child))
                    if more is not None:
                        waiting.appendleft(more)
            for child in children.values():
                if time.monotonic() - child.since > SILENCE:
                    raise WorkFailed(f"no answer in {SILENCE:g} s")
    finally:
        for child in children.values():
            os.kill(child.pid, signal.SIGKILL)
            with suppress(WorkFailed):
                _end(child)


def _start(work: Callable[[], str], then: Callable[[str | None], Work | None]) -> _Child:
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        global _child_of
        _child_of = os.getppid()
        os.close(reading)
        _be_child(work, writing)
    os.close(writing)
    return _Child(pid, reading, then)


def _be_child(work: Callable[[], str], writing: int) -> NoReturn:
    code, answer = 0, ""
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        answer = work()
    except BaseException:
        code, answer = 1, traceback.format_exc()
    time_left(0)
    data = answer.encode()
    while data:
        data = data[os.write(writing, data) :]
    os._exit(code)  # nothing of the parent's is to be cleaned up here


def _end(child: _Child) -> str | None:
    os.close(child.pipe)
    _, status = os.waitpid(child.pid, 0)
    if os.WIFSIGNALED(status):
        return None
    if status:
        raise WorkFailed(child.said.decode() or f"exit {os.waitstatus_to_exitcode(status)}")
    return child.said.decode()
