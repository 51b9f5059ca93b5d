"""Processes that outlive whoever started them, and calls that do not come back."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

_TASKS = Path("/proc/self/task")


class Late(BaseException):
    """A call took longer than allowed. No `Exception`: the code that hangs must not catch it."""


@contextlib.contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Raises Late in this thread, if it is the main one, after so long; never for None. Not to be nested."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(_: int, __: FrameType | None) -> NoReturn:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def children() -> frozenset[int]:
    """Processes that this one started and that still run. Empty where there is no /proc to ask."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in _TASKS.iterdir():
            found.update(map(int, (task / "children").read_text().split()))
    return frozenset(pid for pid in found if not ended(pid))


def ended(pid: int) -> bool:
    """Whether nothing but its exit code is left."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except (OSError, IndexError):
        return True


def group_lives(leader: int, grace: float = 1.0) -> bool:
    """Whether somebody of a process group is left once its leader has ended; helpers may take a moment to follow."""
    until = time.monotonic() + grace
    while True:
        try:
            os.killpg(leader, 0)
        except OSError:
            return False
        if time.monotonic() > until:
            return True
        time.sleep(0.02)


def kill(pids: frozenset[int]) -> None:
    """End them."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
