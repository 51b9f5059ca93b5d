"""How far a campaign is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic


class Progress:
    """A line on standard error that is rewritten while the run goes on; nothing if that is no terminal."""

    def __init__(self, what: str) -> None:
        """`what` is counted, besides workloads and seconds."""
        self._what = what

    def __enter__(self) -> Callable[[int, float, int], None]:
        """Where to report to."""
        self._stream = sys.stderr
        self._live = self._stream.isatty()
        self._shown = -1.0
        return self._report

    def _report(self, workloads: int, seconds: float, found: int) -> None:
        if self._live and seconds - self._shown > 0.2:
            self._shown = seconds
            self._stream.write(f"\r\x1b[K{workloads} workloads, {seconds:.0f} s, {found} {self._what}")
            self._stream.flush()

    def __exit__(self, *_: object) -> None:
        if self._shown >= 0:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


class Ticker:
    """The same for a known number of tasks: how many are done, what was the last, how many went wrong.

    Where there is no terminal, a line every ten seconds: whoever reads a log wants to see that something moves.
    """

    EVERY = 10.0

    def __init__(self, of: int, what: str) -> None:
        """`of` so many tasks, called `what`."""
        self._of, self._what = of, what
        self._done = self._wrong = 0

    def __enter__(self) -> Callable[[str, bool], None]:
        """Where to report to: what is done, and whether something is wrong with it."""
        self._stream = sys.stderr
        self._live = self._stream.isatty()
        self._began = self._shown = monotonic()
        return self._report

    def _report(self, last: str, wrong: bool) -> None:
        self._done += 1
        self._wrong += wrong
        now = monotonic()
        if now - self._shown < (0.1 if self._live else self.EVERY):
            return
        self._shown = now
        line = f"{self._done} of {self._of} {self._what}, {now - self._began:.0f} s, {self._wrong} wrong; last {last}"
        self._stream.write(f"\r\x1b[K{line[:100]}" if self._live else f"{line}\n")
        self._stream.flush()

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
