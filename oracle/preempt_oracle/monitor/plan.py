"""The step being planned, mutable and lazy: what a clause does not ask for is never made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Final

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


_NOBODY: Final = Granted()
_NO_DRAFTS: Final[Mapping[str, int]] = MappingProxyType({})
_NO_GRANTS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType({})
_NO_GUARDS: Final[Mapping[str, str]] = MappingProxyType({})


class Plan:
    """The step being planned: see `PlanView`.

    Most steps leave most of it as it is, so what is here at first is shared by all plans and never changed, but
    replaced.
    """

    __slots__ = (
        "admitted", "anew", "demoted", "displaced", "drafts", "entered", "fenced", "frame", "granted", "incoming",
        "pending", "published", "requeued", "restored", "self_preempted", "served", "skipped", "spent",
        "spent_running", "swept", "torn",
    )  # fmt: skip

    def __init__(
        self,
        frame: int,
        entered: Sequence[str],
        granted: Granted | None = None,
        published: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.frame, self.entered, self.published = frame, entered, published
        # A plan without it is one between steps: nobody can be granted anything.
        self.granted = _NOBODY if granted is None else granted
        self.drafts: Mapping[str, int] = _NO_DRAFTS
        self.pending: Mapping[str, tuple[int, int]] = _NO_GRANTS
        self.skipped: Mapping[str, str] = _NO_GUARDS
        self.spent = self.spent_running = self.anew = 0
        self.swept = self.fenced = self.self_preempted = False
        self.admitted: tuple[str, ...] = ()
        self.demoted: tuple[str, ...] = ()
        self.displaced: tuple[tuple[str, str], ...] = ()
        self.requeued: tuple[str, ...] = ()
        self.served: tuple[str, ...] = ()
        self.restored: tuple[str, ...] = ()
        self.torn: tuple[str, ...] = ()
        self.incoming: tuple[tuple[int, int, Held], ...] = ()  # what swaps bring to (group, block)
