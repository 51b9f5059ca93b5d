"""How far a campaign is."""

from __future__ import annotations

import sys
from collections.abc import Callable


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
