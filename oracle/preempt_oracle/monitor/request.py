"""A live request of the mutable shadow state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from preempt_spec.view import Place

if TYPE_CHECKING:
    from preempt_oracle.monitor.shadow import Shadow


class Req:
    """A live request: see `RequestView`."""

    __slots__ = (
        "_peak", "apart", "arrival", "base", "due", "id", "incarnation", "max_tokens", "noted", "place", "plain",
        "preempted", "priority", "prompt", "salt", "shadow", "steady", "suspect", "tables", "tokens",
    )  # fmt: skip

    def __init__(self, shadow: Shadow, id: str, prompt: Sequence[int], groups: int) -> None:
        self.shadow, self.id, self.prompt, self.tokens = shadow, id, len(prompt), list(prompt)
        self.max_tokens = self.priority = self.arrival = self.incarnation = 0
        self.salt = ""
        self.place = Place.WAITING
        self.base = self._peak = self.noted = 0  # noted: positions whose KV writes are recorded in memory
        self.due = -1  # the clock at which its table must have grown
        self.steady = self.preempted = self.suspect = False
        self.plain = True  # its next slot is nobody else's
        self.tables: list[list[int]] = [[] for _ in range(groups)]
        self.apart: list[list[int]] | None = None  # what the worker was told, where that is not just the tables

    @property
    def sent(self) -> list[list[int]]:
        """Blocks per group as the worker was told."""
        return self.tables if self.apart is None else self.apart

    def split(self) -> list[list[int]]:
        """What the worker was told, to be changed apart from the tables, or before they change."""
        if self.apart is None:
            self.apart = [[*table] for table in self.tables]
        return self.apart

    @property
    def computed(self) -> int:
        """Tokens whose KV is resident."""
        return self.base + self.shadow.clock if self.steady else self.base

    @property
    def peak(self) -> int:
        """High-water mark of computed tokens before this step. A steady request is always at it."""
        return max(self._peak, self.computed - self.shadow.ticked) if self.steady else self._peak

    def set_peak(self, tokens: int) -> None:
        """Raise the high-water mark."""
        if tokens > self._peak:
            self._peak = tokens
