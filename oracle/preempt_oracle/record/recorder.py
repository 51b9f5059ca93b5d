"""Between the engine's thread and the writing one: a bounded queue that never makes the engine wait.

When the queue is full, events are lost, and what follows a lost event means nothing: the recording stops there, says so
once in the log and in the file, and counts on.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from preempt_oracle.record.sink import Seen, Sink

Log = Callable[[str], None]
POLL = 0.02  # seconds after which the writing thread looks for events again
FLUSH = 50  # looks without an event after which what is gathered is written though it is little
PATIENCE = 10.0  # seconds that the end of the engine waits for the disk


class Recorder:
    """Takes events on the engine's thread. None of its methods raises, or waits for a disk; but `close`, a while."""

    def __init__(self, sink: Sink, capacity: int, log: Log) -> None:
        """`capacity`: events that may wait; 0: each is written at once, on the caller's thread."""
        self._sink = sink
        self._log = log
        self._capacity = capacity
        self._waiting: deque[Seen] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._closed = False
        self.stopped = ""  # why nothing is taken any more
        self.lost = 0  # calls of the engine's that were not told of
        self._thread: threading.Thread | None = None
        if capacity:
            self._thread = threading.Thread(target=self._run, name="preempt-oracle-recorder", daemon=True)
            self._thread.start()
        atexit.register(self.close)

    @property
    def active(self) -> bool:
        """Whether anybody wants to know of events."""
        return not self.stopped and not self._closing and not self._sink.idle

    def put(self, seen: Seen) -> None:
        """One event, which is the recorder's from now on."""
        if not self.active:
            self.lost += 1
        elif self._thread is None:
            self._sink.take(seen)
        elif len(self._waiting) >= self._capacity:
            self.stop(f"{self._capacity} events wait to be written: the disk or the processor is too slow")
        else:
            self._waiting.append(seen)  # nobody is woken: that costs the engine more than the whole event

    def stop(self, why: str) -> None:
        """What comes now cannot be told: end the recording behind what was put so far."""
        if not self.active:
            return
        self.stopped = why
        self.lost += 1
        if self._thread is None:
            self._sink.stop(why, 1)
        else:
            self._wake.set()

    def close(self) -> None:
        """End the recording. Waits at most `PATIENCE` seconds for the writing thread."""
        if self._closed:
            return
        self._closed = self._closing = True
        atexit.unregister(self.close)
        if self._thread is not None:
            self._wake.set()
            self._thread.join(PATIENCE)
            if self._thread.is_alive():
                self._log(f"the disk did not answer within {PATIENCE:g} s: the end of the recording is missing")
        else:
            self._sink.close()
        if self.lost:
            self._log(f"{self.lost} calls of the scheduler behind the end of the recording were not recorded")

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # ours, whatever it is: an engine does not die of it
            self.stopped = self.stopped or describe(error)
            self._log(f"the recording stops, its end is missing: {describe(error)}")

    def _serve(self) -> None:
        sink, waiting, wake = self._sink, self._waiting, self._wake
        looks = 0
        while True:
            wake.wait(POLL)
            wake.clear()
            # First the flags, then the queue: what was put before a flag was raised is taken before it is obeyed.
            closing, stopped = self._closing, self.stopped
            looks = 0 if waiting else looks + 1
            while waiting:
                sink.take(waiting.popleft())
            if stopped:
                sink.stop(stopped, 1)
                return
            if closing:
                sink.close()
                return
            if looks == FLUSH:
                sink.flush()


def describe(error: BaseException) -> str:
    """An exception of ours in one line of a log."""
    trace: Any = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" ({trace.tb_frame.f_code.co_name}, line {trace.tb_lineno})"
    return f"{type(error).__name__}: {error}{where}"
