"""From the engine's thread to the process that keeps its records: bounded, and never waited for.

Records are gathered and sent in batches over a socket that does not block. What the keeper cannot take yet waits in
this process, up to a limit; when that is reached, what follows could not be judged, and the recording stops there.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from preempt_oracle.record import records

LOGGER = logging.getLogger("preempt_oracle.record")
BATCH = 1 << 16  # bytes that are sent at once, whenever it is
RECORDS = 64  # that are sent at once behind a decision, however little they say
BUFFER = 1 << 20  # bytes that the socket is asked to hold
START = 120.0  # seconds that a keeper has to come to life
PATIENCE = 10.0  # seconds that the end of the engine waits for the keeper
OVER = b"over\n"  # the keeper's word that it has said itself why nothing more is taken
_encode = records.ENCODER.encode
_NOW = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)


class CannotStart(Exception):
    """The keeper did not come to life, or refuses; `str()` says why."""


class Channel:
    """A keeper's process and the way to it. See `capture.Channel`."""

    def __init__(self, begun: records.Begun, limit: int) -> None:
        """Start a keeper, and wait until it is ready. `limit`: bytes that may wait here. Raises CannotStart."""
        self.stopped = False
        self.place = ""  # where the keeper writes
        self._limit = limit
        self._gathered: list[bytes] = []  # records, and their size
        self._size = 0
        self._sending = bytearray()  # what the keeper could not take yet
        self._owner = os.getpid()
        self._closed = False
        ours, theirs = socket.socketpair()
        self._socket = ours
        try:
            for end, option in ((ours, socket.SO_SNDBUF), (theirs, socket.SO_RCVBUF)):
                end.setsockopt(socket.SOL_SOCKET, option, BUFFER)
            # What can be imported here can be imported there, however it came to be on the path.
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
            self._keeper = subprocess.Popen(
                [sys.executable, "-P", "-m", "preempt_oracle.record.keeper", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # an interrupt at the terminal is for the engine
                env=env,
            )
        except OSError as error:
            ours.close()
            raise CannotStart(f"the recorder's process cannot be started: {error}") from None
        finally:
            theirs.close()
        try:
            self.place = self._greeted(begun)
        except BaseException:
            self._socket.close()
            self._keeper.kill()
            self._keeper.wait()
            raise
        atexit.register(self._at_exit)

    def _greeted(self, begun: records.Begun) -> str:
        data = _encode(begun)
        self._socket.settimeout(START)
        try:
            self._socket.sendall(len(data).to_bytes(records.LENGTH, "little") + data)
            answer = b""
            while not answer.endswith(b"\n"):
                some = self._socket.recv(4096)
                if not some:
                    raise CannotStart("the recorder's process ended at once; its standard error says why")
                answer += some
        except OSError as error:
            raise CannotStart(f"the recorder's process does not answer: {error}") from None
        self._socket.settimeout(None)
        word, _, rest = answer.decode("utf-8", "replace").strip().partition(" ")
        if word != "ready":
            raise CannotStart(rest)
        return rest

    def put(self, record: records.Record) -> None:
        """One record. Raises what an encoder raises, and then it is not sent."""
        if self.stopped:
            return
        data = _encode(record)
        self._gathered.append(data)
        self._size += len(data)
        # Behind a decision the model runs, and this thread waits for it: then the keeper is in nobody's way.
        if (len(self._gathered) >= RECORDS and type(record) is records.Stepped) or self._size >= BATCH:
            self.flush()
            if self._size + len(self._sending) > self._limit and type(record) is not records.Stop:
                why = f"{self._limit >> 20} MB wait to be written: the disk or the processor is too slow"
                self.put(records.Stop(why))
                self.stopped = True

    def flush(self) -> None:
        """Send what is gathered, as far as the keeper takes it now."""
        sending = self._sending
        for data in self._gathered:
            sending += len(data).to_bytes(records.LENGTH, "little")
            sending += data
        self._gathered.clear()
        self._size = 0
        try:
            while sending:
                del sending[: self._socket.send(sending, _NOW)]
        except BlockingIOError:
            return
        except OSError as error:
            self._gone(str(error.strerror or error))

    def _gone(self, why: str) -> None:
        """There is nobody at the other end any more."""
        self._sending.clear()
        if self.stopped and self._closed:
            return
        self.stopped = True
        try:
            said = self._socket.recv(64, _NOW)
        except OSError:
            said = b""
        if said != OVER:
            LOGGER.warning("the recording is over, its end is missing: the recorder's process is gone (%s)", why)

    def close(self, last: records.Record, lost: Callable[[], int]) -> None:
        """Send the last record, and wait at most `PATIENCE` seconds until the keeper is done."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        if os.getpid() != self._owner:  # a fork of the engine: the keeper is not its own
            self._socket.close()
            return
        self.put(last)
        until = time.monotonic() + PATIENCE
        if not (self._drained(until) and self._heard_out(until)):
            LOGGER.warning("the disk did not answer within %g s: the end of the recording may be missing", PATIENCE)
        self._socket.close()
        try:
            self._keeper.wait(max(0.0, until - time.monotonic()) + 1.0)
        except subprocess.TimeoutExpired:
            self._keeper.returncode = 0  # it ends by itself, when the disk lets it: nobody waits for it
        if count := lost():
            LOGGER.warning("%d calls of the scheduler behind the end of the recording were not recorded", count)

    def _drained(self, until: float) -> bool:
        self.flush()
        while self._sending and (left := until - time.monotonic()) > 0:
            select.select([], [self._socket], [], left)
            self.flush()
        return not self._sending

    def _heard_out(self, until: float) -> bool:
        """Wait for the keeper to close its end."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            while (left := until - time.monotonic()) > 0:
                self._socket.settimeout(left)
                if not self._socket.recv(64):
                    return True
        except ConnectionError:
            return True
        except OSError:
            pass
        return False

    def _at_exit(self) -> None:
        """The engine ends without having shut its scheduler down."""
        self.close(records.Bye(), lambda: 0)
