"""The step being planned and the frame in flight, mutable and lazy: what a clause does not ask for is never made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType


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
    pending: Mapping[str, tuple[int, int]] = MappingProxyType({})
    spent = spent_running = 0
    admitted: tuple[str, ...] = ()
    demoted: tuple[str, ...] = ()
    requeued: tuple[str, ...] = ()
    skipped: Mapping[str, str] = MappingProxyType({})
    served: tuple[str, ...] = ()
    fenced = self_preempted = False
    published: tuple[tuple[int, int], ...] = ()

    def __init__(self, frame: int, entered: Sequence[str], granted: Granted | None = None) -> None:
        self.frame, self.entered = frame, entered
        if granted is not None:  # a plan without it is one between steps: nobody can be granted anything
            self.granted = granted


class Flight(Mapping[str, bool]):
    """A frame in flight. `ends` None: every request of it reached the end of its known tokens.

    `streams` (token lists in the order of `ids`) and `loose` (those outside the cohort) serve the fast delivery; they
    are good as long as nobody was forgotten since (`epoch`).
    """

    __slots__ = ("ends", "epoch", "ids", "loose", "streams")

    def __init__(
        self,
        ids: Sequence[str],
        ends: dict[str, bool] | None,
        streams: Sequence[list[int]] = (),
        loose: Sequence[str] = (),
        epoch: int = -1,
    ) -> None:
        self.ids, self.ends, self.streams, self.loose, self.epoch = ids, ends, streams, loose, epoch

    def _all(self) -> dict[str, bool]:
        if self.ends is None:
            self.ends = dict.fromkeys(self.ids, True)
        return self.ends

    def __getitem__(self, request: str) -> bool:
        return self._all()[request]

    def __contains__(self, request: object) -> bool:
        return request in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self.ids)
