"""The step being planned, mutable and lazy: what a clause does not ask for is never made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

from preempt_oracle.monitor.content import Held


class Granted(Mapping[str, tuple[int, int]]):
    """The standing grants of a step: [0, upto) of its parallel arrays, read on demand, then those entered by hand."""

    __slots__ = ("_read", "_upto", "entered", "ids", "start", "tokens", "upto")

    def __init__(self) -> None:
        self.entered: dict[str, tuple[int, int]] = {}
        self.ids: Sequence[str] = ()
        self.tokens: Sequence[int] = ()
        self.start: Sequence[int] = ()
        self._read: dict[str, tuple[int, int]] = {}
        self._upto = self.upto = 0

    def enter(self, request: str, start: int, tokens: int) -> None:
        """One more grant. From the first one on, the arrays stay as they are."""
        self.entered[request] = (start, tokens)

    def _arrays(self) -> dict[str, tuple[int, int]]:
        if self._upto < (n := self.upto):
            grants = zip(self.start[:n], self.tokens[:n], strict=True)
            self._read = dict(zip(self.ids[:n], grants, strict=True))
            self._upto = n
        return self._read

    def __getitem__(self, request: str) -> tuple[int, int]:
        return self.entered[request] if request in self.entered else self._arrays()[request]

    def __contains__(self, request: object) -> bool:
        return request in self.entered or request in self.ids[: self.upto]

    def __iter__(self) -> Iterator[str]:
        return chain(self._arrays(), self.entered)

    def __len__(self) -> int:
        return self.upto + len(self.entered)


class Plan:
    """The step being planned: see `PlanView`.

    Most steps leave most of it as it is, so what is here is shared by all plans and never changed, but replaced.
    """

    granted = Granted()
    drafts: Mapping[str, int] = MappingProxyType({})
    pending: Mapping[str, tuple[int, int]] = MappingProxyType({})
    spent = spent_running = 0
    admitted: tuple[str, ...] = ()
    anew = 0
    swept = False
    demoted: tuple[str, ...] = ()
    displaced: tuple[tuple[str, str], ...] = ()
    requeued: tuple[str, ...] = ()
    skipped: Mapping[str, str] = MappingProxyType({})
    served: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    torn: tuple[str, ...] = ()
    fenced = self_preempted = False
    incoming: tuple[tuple[int, int, Held], ...] = ()  # what swaps bring to (group, block) before the frame runs

    def __init__(
        self,
        frame: int,
        entered: Sequence[str],
        granted: Granted | None = None,
        published: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.frame, self.entered, self.published = frame, entered, published
        if granted is not None:  # a plan without it is one between steps: nobody can be granted anything
            self.granted = granted
