"""A frame in flight: what it owes its requests, spelled out only for those of which somebody asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve

from preempt_spec.view import Due, Fate

if TYPE_CHECKING:
    from preempt_oracle.monitor.request import Req


class Flight(Mapping[str, Due]):
    """What a frame owes each request it granted.

    The first `members` of `ids` decode steadily: one token each, behind what frame `after` brings; `own`
    has what is owed to the others, and what changed since. `tick`: the cohort's clock behind it.

    For the fast delivery: `owed` (who gets a token), `streams` (their token lists), `loose` (those of them who are not
    of the cohort, or joined it later) and `fast` (each gets at most one token, which is appended).
    """

    __slots__ = ("after", "bases", "fast", "ids", "loose", "members", "owed", "own", "streams", "tick")

    def __init__(
        self,
        ids: tuple[str, ...],
        own: dict[str, Due],
        streams: list[list[int]],
        loose: list[Req],
        tick: int,
        bases: Sequence[int] = (),
        after: int | None = None,
    ) -> None:
        """`bases` has an entry per member: computed tokens, the clock's apart; `streams` has one per id."""
        self.ids, self.own, self.loose, self.tick = ids, own, loose, tick
        self.bases, self.after, self.members = bases, after, len(bases)
        self.owed, self.streams, self.fast = ids, streams, True
        if own:
            self.fast = all(due.outputs < 2 for due in own.values())
            idle = {r for r, due in own.items() if not due.outputs}
            if idle:
                self.owed = tuple([r for r in ids if r not in idle])
                self.streams = [x for x, r in zip(streams, ids, strict=True) if r not in idle]

    def __getitem__(self, request: str) -> Due:
        due = self.own.get(request)
        if due is not None:
            return due
        try:
            i = self.ids.index(request, 0, self.members)
        except ValueError:
            raise KeyError(request) from None
        return Due(1, self.bases[i] + self.tick, 1, self.after)

    def __contains__(self, request: object) -> bool:
        return request in self.ids

    def __iter__(self) -> Iterator[str]:
        for i, r in enumerate(self.ids[: self.members]):
            if r not in self.own:
                self.own[r] = Due(1, self.bases[i] + self.tick, 1, self.after)
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def fated(self, request: str, fate: Fate) -> None:
        """What becomes of the request's output is fixed, unless it is that of an earlier request of the same id."""
        if request in self.ids and (due := self[request]).fate is not Fate.GONE:
            self.own[request] = Due(due.tokens, due.position, due.outputs, due.after, fate)
            self.fast = self.fast and fate is Fate.DELIVER

    def shift(self, request: str, fate: Fate, back: int) -> None:
        """The request's outputs of this fate stand further in front, as drafts before them were rejected."""
        if request in self.ids and self[request].fate is fate:
            self.own[request] = evolve(self[request], position=self[request].position - back)
