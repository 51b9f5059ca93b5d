"""Text that is safe to print, and a terminal that takes it as it is."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from rich.console import Console

from preempt_oracle.trace.errors import visible

WIDTH = 100  # columns where there is no terminal to ask


def safe(text: str, limit: int = 2000) -> str:
    """`text` on one line, with everything a terminal might obey or hide made visible."""
    return visible(text, limit)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Nobody reads any more: not rich's exit code 1, which here would say "violates"."""
        raise BrokenPipeError


def console(stream: TextIO | None = None) -> Console:
    """A console for text of any origin: no markup, no emoji codes, no highlighting. Default: standard output."""
    stream = stream or sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else WIDTH
    return _Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


def count(number: int, noun: str) -> str:
    """`1 step`, `2 steps`, `1,234 steps`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
