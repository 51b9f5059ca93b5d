"""Where among the grants of a step each act happened.

The engine's thread sees acts and not grants: who was granted what is known behind the step, from what the worker is
told. Each preemption says how many grants there were by then, and which of them it takes back; a hash is published for
the request that was just granted, and withdrawn from a block that the next grant appends.
"""

from __future__ import annotations

from attrs import frozen

from preempt_oracle.engines.vllm_steps import Grant
from preempt_oracle.record import records
from preempt_oracle.record.mirror import Mirror


@frozen
class Made:
    """A grant that was made, and may have been taken back."""

    request: str
    tokens: int
    stands: bool


def segments(scheduled: list[tuple[str, int]], demotions: list[records.Demoted]) -> list[list[Made]]:
    """The grants made before the first demotion, between it and the next, …, behind the last.

    A plan keeps its order, and loses its victims: so what stood at a demotion is a prefix of what stands at the next.
    """
    line = [Made(name, tokens, True) for name, tokens in scheduled]
    found = []
    for demoted in reversed(demotions):
        short = demoted.short
        planned = 0 if short is None else short.planned - (short.place is not None)
        found.append(line[planned:])
        del line[planned:]
        if short is not None and short.place is not None:
            line.insert(short.place, Made(demoted.request, short.tokens, False))
    found.append(line)
    return found[::-1]


class Step:
    """Plays one step to a mirror: its grants, and what happened between them."""

    def __init__(self, mirror: Mirror, told: records.Stepped, scheduled: list[tuple[str, int]]) -> None:
        self._mirror = mirror
        self._told = told
        demotions = [one for one in told.happened if isinstance(one, records.Demoted)]
        self._segments = segments(scheduled, demotions)
        self._starts = {one.request: one.start for one in demotions}
        self._rolled = {one.request: one.freed[::-1] for one in told.happened if isinstance(one, records.Requeued)}
        self._grown = {one.request: one for one in told.grown}
        self._hits = dict(told.hits)

    def play(self, starts: dict[str, int]) -> None:
        """Append everything to the mirror's timeline. `starts`: of the grants that stand."""
        self._starts = starts | self._starts
        number = at = 0
        owners: dict[int, str] | None = None
        for one in self._told.happened:
            segment = self._segments[number]
            if isinstance(one, records.Demoted):
                self._grant(segment[at:])
                number, at, owners = number + 1, 0, None
            elif isinstance(one, (records.Published, records.Withdrawn)):
                if isinstance(one, records.Published):
                    name: str | None = one.request
                else:
                    if owners is None:  # of those who share a block, the first took it from the pool
                        owners = {block: made.request for made in segment[::-1] for block in self._blocks(made)}
                    name = owners.get(one.block)
                index = next((i for i in range(at, len(segment)) if segment[i].request == name), None)
                if index is not None:
                    until = index + isinstance(one, records.Published)
                    self._grant(segment[at:until])
                    at = until
            self._mirror.happened(one)
        self._grant(self._segments[number][at:])

    def _grant(self, some: list[Made]) -> None:
        mirror = self._mirror
        for made in some:
            name = made.request
            blocks = self._blocks(made)
            if blocks:
                mirror.tables.setdefault(name, []).extend(blocks)
            start = self._starts.get(name, 0)
            mirror.timeline.append(Grant(name, start, made.tokens, blocks, self._hits.pop(name, None)))

    def _blocks(self, made: Made) -> list[int]:
        """What a grant appended to its request's table."""
        known = len(self._mirror.tables.get(made.request, ()))
        if not made.stands:
            return self._rolled.get(made.request, [])[known:]
        grown = self._grown.get(made.request)
        # A table that was cut short meanwhile is another one: the comparison behind the step tells of it.
        return [] if grown is None or grown.kept != known else grown.blocks
