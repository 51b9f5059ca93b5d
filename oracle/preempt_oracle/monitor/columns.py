"""The cohort side by side: what its members are granted in a step, as whole columns."""

from __future__ import annotations


class Columns:
    """Columns over the members, in running order.

    `ids`, `ones` (one token each) and `starts` are what a step that lets all of them decode says, to be compared as
    wholes; `streams` are the known tokens a delivery appends to. A column that changes is another object from then on:
    frames in flight keep the one they left with.

    `told`: the cohort's clock behind the latest step that told where each of them started; nobody came or left since.
    """

    __slots__ = ("bases", "ids", "ones", "streams", "told")

    def __init__(self) -> None:
        """Nobody."""
        self.ids: tuple[str, ...] = ()
        self.ones: tuple[int, ...] = ()
        self.streams: list[list[int]] = []
        self.bases: tuple[int, ...] = ()  # computed tokens, the clock's apart
        self.told = -1

    def starts(self, clock: int) -> tuple[int, ...]:
        """Where each of them starts in the next step."""
        return tuple([clock + base for base in self.bases])

    def add(self, request: str, stream: list[int], base: int) -> None:
        """One more, at the end."""
        self.ids += (request,)
        self.ones += (1,)
        self.streams = [*self.streams, stream]
        self.bases += (base,)
        self.told = -1

    def drop(self, i: int) -> None:
        """The i-th leaves."""
        self.ids = (*self.ids[:i], *self.ids[i + 1 :])
        self.ones = self.ones[1:]
        self.streams = [*self.streams[:i], *self.streams[i + 1 :]]
        self.bases = (*self.bases[:i], *self.bases[i + 1 :])
        self.told = -1
