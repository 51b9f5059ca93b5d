"""A live request of the mutable shadow state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from preempt_spec.view import Place

if TYPE_CHECKING:
    from preempt_oracle.monitor.shadow import Shadow


class Req:
    """A live request: see `RequestView`.

    While it is `steady`, what changes in every step is read off the cohort's clock: it is granted one token in each
    step, and has promised, in flying frames, just what its computed tokens are ahead of its known ones.
    """

    __slots__ = (
        "_last", "_peak", "_placeholders", "apart", "arrival", "astray", "base", "drafts", "due", "final", "goal", "id",
        "joined", "limit", "max_tokens", "noted", "place", "plain", "preempted", "priority", "prompt",
        "reach", "resting", "salt", "shadow", "since", "steady", "suspect", "tables", "tokens",
    )  # fmt: skip

    def __init__(self, shadow: Shadow, id: str, prompt: Sequence[int], groups: int) -> None:
        self.shadow, self.id, self.prompt, self.tokens = shadow, id, len(prompt), list(prompt)
        self.max_tokens = self.priority = self.arrival = 0
        self.salt = ""
        self.goal = 0
        self.since = (-1, 0)
        self.limit = 0  # tokens it may have, outputs included
        self.place = Place.WAITING
        self.base = self._peak = self.noted = 0  # noted: positions whose KV writes are recorded in memory
        self._placeholders = self.drafts = 0
        self._last = -1
        self.reach = 0  # the furthest it was written ahead of its known tokens
        self.astray = False  # what was written ahead may stand in blocks that are not its own any more
        self.joined = -1  # the clock at which it joined the cohort
        self.due = self.final = -1  # the clock at which its table must have grown; at which its last output flies
        self.steady = self.preempted = self.suspect = self.resting = False
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

    def rejoin(self) -> None:
        """What it was told may be just the tables again."""
        if self.apart == self.tables:
            self.apart = None

    @property
    def computed(self) -> int:
        """Tokens whose KV is resident."""
        return self.base + self.shadow.clock if self.steady else self.base

    @property
    def placeholders(self) -> int:
        """Outputs promised by flying frames."""
        return self.base + self.shadow.clock + 1 - len(self.tokens) if self.steady else self._placeholders

    def promised(self, more: int) -> None:
        """More (or fewer) outputs are promised; not of a steady one."""
        self._placeholders += more

    @property
    def last(self) -> int:
        """The frame that brought its last token."""
        if self.steady and self.shadow.back[1] > self.joined:
            return self.shadow.back[0]
        return self._last

    def brought(self, frame: int) -> None:
        """A frame brought its last token."""
        self._last = frame

    def flies_last(self) -> bool:
        """Whether its last output flies, so that it has nothing to compute; not of a steady one."""
        return 0 < self._placeholders >= self.limit - len(self.tokens)

    def freeze(self) -> None:
        """Plain numbers again, as they are now."""
        self._placeholders, self._last = self.placeholders, self.last
        self.base += self.shadow.clock
        self.reach = max(self.reach, self.base)
        self.steady = False

    @property
    def peak(self) -> int:
        """High-water mark of computed tokens before this step. A steady request is always at it."""
        return max(self._peak, self.computed - self.shadow.ticked) if self.steady else self._peak

    def set_peak(self, tokens: int) -> None:
        """Raise the high-water mark."""
        if tokens > self._peak:
            self._peak = tokens
