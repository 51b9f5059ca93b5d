"""The cohort side by side: what its members are granted in a step, as whole columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count


class Columns:
    """Columns over the members, in running order.

    `ids`, `ones` (one token each) and `starts()` are what a step that lets all of them decode says, to be compared as
    wholes; `streams` are the known tokens a delivery appends to.
    """

    __slots__ = ("_rising", "_starts", "ids", "ones", "streams")

    def __init__(self) -> None:
        """Nobody."""
        self.ids: tuple[str, ...] = ()
        self.ones: tuple[int, ...] = ()
        self.streams: list[list[int]] = []
        # Everybody starts one token further in each step: counters side by side are rows of starts, made in C.
        self._rising: list[Iterator[int]] = []
        self._starts: Iterator[tuple[int, ...]] | None = None

    def starts(self) -> tuple[int, ...]:
        """Where each of them starts in the next step: to be asked exactly once a step."""
        if self._starts is None:
            self._starts = zip(*self._rising, strict=False)
        return next(self._starts, ())

    def add(self, request: str, stream: list[int], start: int) -> None:
        """One more, at the end."""
        self.ids += (request,)
        self.ones += (1,)
        self.streams = [*self.streams, stream]  # anew: frames in flight keep the one they left with
        self._rising.append(count(start))
        self._starts = None

    def drop(self, i: int) -> None:
        """The i-th leaves."""
        self.ids = (*self.ids[:i], *self.ids[i + 1 :])
        self.ones = self.ones[1:]
        self.streams = [*self.streams[:i], *self.streams[i + 1 :]]
        del self._rising[i]
        self._starts = None
