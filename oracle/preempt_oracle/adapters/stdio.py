"""A scheduler as a child process: JSON lines on stdio.

The child may die, hang, flood, or answer nonsense: each is a HarnessError that says which, with the end of its stderr,
and never leaves a process behind (the child leads a process group of its own, killed as a whole).
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, NoReturn

import msgspec

from preempt_oracle.adapters.processes import group_lives
from preempt_oracle.adapters.protocol import HarnessError
from preempt_oracle.trace.errors import visible

#: Longest reply, in bytes. A step of a thousand requests takes about 100 kB.
MAX_REPLY = 64 * 2**20
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode  # `json.dumps` would make one for each command


class Stdio:
    """A child process. `patience` and `start_patience`: seconds a reply, and the first one, may take.

    `env`: its whole environment; None: ours.
    """

    def __init__(
        self,
        command: Sequence[str],
        name: str,
        env: Mapping[str, str] | None = None,
        patience: float = 60,
        start_patience: float = 300,
    ) -> None:
        self.name = name
        self.outlived = ""  # what it leaves behind, known once it is closed
        self._patience = start_patience  # engines import for half a minute before they answer the first command
        self._later = patience
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        self._buffer = bytearray()
        try:
            self._child = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=None if env is None else dict(env),
                start_new_session=True,
                bufsize=0,
            )
        except OSError as e:
            self._stderr.close()
            raise HarnessError(f"{name}: cannot start {command[0]!r}: {e.strerror}") from None
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._in, self._out = self._child.stdin, self._child.stdout
        os.set_blocking(self._out.fileno(), False)
        os.set_blocking(self._in.fileno(), False)
        self._answers = selectors.PollSelector()
        self._answers.register(self._out, selectors.EVENT_READ)

    def exchange(self, command: dict[str, Any]) -> dict[str, Any]:
        """One command, one reply line."""
        deadline = time.monotonic() + self._patience
        if self._buffer:
            self._broken(f"said {_shown(self._buffer)} before it was asked")
        self._send(_ENCODE(command).encode() + b"\n", command["do"], deadline)
        line = self._receive(command["do"], deadline)
        self._patience = self._later
        try:
            reply = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            self._broken(f"answered {command['do']} with something that is not JSON: {_shown(line)}")
        if not isinstance(reply, dict):
            self._broken(f"answered {command['do']} with something that is not an object: {_shown(line)}")
        return reply

    def _send(self, data: bytes, do: str, deadline: float) -> None:
        while data:
            # Written at once, for there is nearly always room: of the harness's time a campaign spends much in system
            # calls. Only a child that does not read is waited for.
            try:
                data = data[os.write(self._in.fileno(), data) :]
            except BlockingIOError:
                with selectors.DefaultSelector() as ready:
                    ready.register(self._in, selectors.EVENT_WRITE)
                    if not ready.select(max(deadline - time.monotonic(), 0)):
                        self._broken(f"did not take the command {do} within {self._patience:g} s")
            except OSError:
                self._broken(f"ended before the command {do}")

    def _receive(self, do: str, deadline: float) -> bytes:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_REPLY:
                self._broken(f"answered {do} with more than {MAX_REPLY} bytes in one line")
            left = deadline - time.monotonic()
            if not self._answers.select(min(max(left, 0), 0.5)):
                if left <= 0:
                    self._broken(f"did not answer {do} within {self._patience:g} s")
                if self._child.poll() is not None:  # dead; something it started holds its stdout open
                    self._broken(f"ended without answering {do}")
                continue
            chunk = self._out.read(1 << 20)
            if chunk == b"":
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._child.wait(1)  # stdout closes a moment before the exit code is there
                self._broken(f"ended without answering {do}")
            if chunk:
                self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _broken(self, what: str) -> NoReturn:
        code = self._child.poll()
        self._kill()
        tail = self._tail()
        ended = f" (exit {code})" if code is not None else ""
        self.close()
        raise HarnessError(f"{self.name} {what}{ended}{tail}")

    def _tail(self) -> str:
        """The last lines of the child's stderr."""
        with contextlib.suppress(OSError, ValueError):
            size = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(size - 2000, 0))
            lines = self._stderr.read().decode(errors="replace").strip().splitlines()[-6:]
            if lines:
                return "\n" + "\n".join("  | " + visible(line, 300) for line in lines)
        return ""

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(10)

    def close(self) -> None:
        """End of input; a child that does not leave is killed with everything it started."""
        with contextlib.suppress(OSError):
            self._in.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            alive = self._child.poll() is None
            self._child.wait(2 if alive else 0)
            if alive and group_lives(self._child.pid):  # it left by itself, and somebody stayed
                self.outlived = "leaves processes behind, in the process group that it was started in"
        self._kill()
        self._answers.close()
        with contextlib.suppress(OSError):
            self._out.close()
        self._stderr.close()


def _shown(data: bytes | bytearray) -> str:
    return repr(bytes(data[:80]).decode(errors="replace"))
