"""The process beside the engine: takes records, makes events of them, hashes, writes and judges.

`python -m preempt_oracle.record.keeper DESCRIPTOR`, started by `channel`. It ends when the engine does: with its word,
or without it, and then the last file ends with a footer that says that events are missing. Log lines go to standard
error, which is the engine's own.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from preempt_oracle.record import content as contents
from preempt_oracle.record import records
from preempt_oracle.record.channel import OVER
from preempt_oracle.record.online import Online
from preempt_oracle.record.parts import Parts, Stopped
from preempt_oracle.record.replay import Replay
from preempt_oracle.record.sink import Sink
from preempt_oracle.verdict import UnknownPolicy
from preempt_spec.micro import Malformed

Log = Callable[[str], None]
POLL = 0.02  # seconds between two looks for records
FLUSH = 50  # looks without a record after which what is gathered is written though it is little
SILENT = "the engine ended without a word"


class Refusal(Exception):
    """What is asked for cannot be kept, found at start; `str()` says why."""


class Keeper:
    """Records in, files and log lines out. Raises nothing that a record or a disk could cause, once it is built."""

    def __init__(self, begun: records.Begun, log: Log) -> None:
        """Raises Refusal."""
        try:
            online = Online(begun.header, log) if begun.online else None
        except (UnknownPolicy, Malformed) as error:
            raise Refusal(f"this scheduler cannot be judged: {error}") from None
        try:
            parts = None
            if begun.directory is not None:
                parts = Parts(Path(begun.directory), begun.header, part=begun.part, limit=begun.limit)
        except Stopped as error:
            raise Refusal(str(error)) from None
        self.place = "" if parts is None else str(parts.path)
        self.sink = Sink(contents.content(begun.header.content), parts, online, log)
        self._replay = Replay(begun, self.sink.take)
        self._log = log
        self.closed = False

    @property
    def idle(self) -> bool:
        """Whether nobody listens any more."""
        return self.closed or self.sink.idle

    def take(self, record: records.Record) -> None:
        """One record of the engine's."""
        if self.closed:
            return
        try:
            self._replay.take(record)
        except Exception as error:  # ours, whatever it is
            self.stop(f"the recorder failed: {describe(error)}")
            return
        if isinstance(record, records.Stop):
            self.stop(record.why)
        elif isinstance(record, records.Bye):
            self.closed = True
            self.sink.close()

    def stop(self, why: str) -> None:
        """Events are missing from here on."""
        if not self.closed:
            self.closed = True
            try:
                self._replay.finish()
            except Exception as error:
                self._log(f"the last delivery is missing: {describe(error)}")
            self.sink.stop(why, 1)


def describe(error: BaseException) -> str:
    """An exception of ours in one line of a log."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" ({trace.tb_frame.f_code.co_name}, line {trace.tb_lineno})"
    return f"{type(error).__name__}: {error}{where}"


def framed(stream: socket.socket, silence: Callable[[], bool]) -> Iterator[memoryview]:
    """The records of a stream, until it ends; `silence` is called when nothing comes, and may end it.

    The stream is looked at now and then. Whoever waits in it has to be woken by the sender, and that costs the engine
    more than to read and encode what it sends.
    """
    stream.setblocking(False)
    pending = bytearray()
    looks = 0
    while True:
        try:
            some = stream.recv(1 << 20)
        except BlockingIOError:
            looks += 1
            if looks % FLUSH == 0 and silence():
                return
            time.sleep(POLL)
            continue
        except OSError:
            return
        if not some:
            return
        pending += some
        at, length = 0, records.LENGTH
        view = memoryview(bytes(pending))
        while at + length <= len(view):
            end = at + length + int.from_bytes(view[at : at + length], "little")
            if end > len(view):
                break
            yield view[at + length : end]
            at = end
        del pending[:at]


def serve(stream: socket.socket, log: Log) -> None:
    """Keep what comes, until the engine ends."""
    parent = os.getppid()
    keeper: Keeper | None = None

    def silence() -> bool:
        if keeper is not None:
            keeper.sink.flush()
        return os.getppid() != parent  # somebody else may still hold the other end open

    for data in framed(stream, silence):
        if keeper is None:
            try:
                keeper = Keeper(records.FIRST.decode(data), log)
                answer = f"ready {keeper.place}\n"
            except Refusal as refused:
                stream.sendall(f"refused {refused}\n".encode())
                return
            stream.sendall(answer.encode())
            continue
        keeper.take(records.DECODER.decode(data))
        if keeper.idle:
            break
    if keeper is not None and not keeper.idle:
        keeper.stop(SILENT)
    with suppress(OSError):  # nobody listens
        stream.send(OVER)
    stream.close()


def main(descriptor: int) -> None:
    """Be the keeper."""
    # The engine's end is what ends this process, also where a signal is sent to everybody.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(asctime)s [%(name)s] %(message)s")
    logging.raiseExceptions = False
    with suppress(OSError):
        os.nice(5)  # the engine comes first
    serve(socket.socket(fileno=descriptor), logging.getLogger("preempt_oracle.record").warning)


if __name__ == "__main__":
    main(int(sys.argv[1]))
