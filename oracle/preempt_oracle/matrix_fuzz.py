"""A search of a row of the version matrix: so many seconds of `fuzz`, the same for every engine."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from preempt_oracle.adapters.protocol import HarnessError, Session
from preempt_oracle.campaign import Budget, Origin, campaign
from preempt_oracle.fuzz.search import Search
from preempt_oracle.reduce import Reduced


class Broken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule that a search broke."""

    seconds: float  # until it broke for the first time, what was spent on making others short included
    actions: int  # of the scenario as it was made short


class Searched(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a search tried and found. It is a matter of time: another run of it finds more, or less."""

    asked: float  # seconds
    workloads: int
    steps: int
    preemptions: int
    states: int  # abstract ones that were reached
    broken: dict[str, Broken]  # by rule


def search(
    connect: Callable[[], Session],
    policy: str,
    seed: int,
    seconds: float,
    spec: str,
    progress: Callable[[int, float, int], None],
) -> Searched:
    """Search for so long. Raises HarnessError, NoStart, and KeyboardInterrupt if it was interrupted."""
    searches: list[Search] = []

    def source(can: frozenset[str]) -> Search:
        searches.append(Search(seed, policy, can))
        return searches[-1]

    def see(violation: object, reduced: Reduced, origin: Origin, run: object) -> tuple[str, str]:
        return "", ""  # the row's own workloads and the findings' scenarios are what shows a fault again

    made = campaign(connect, policy, seed, Budget(None, seconds), see, progress, spec=spec, source=source)
    if made.broken:
        raise HarnessError(made.broken)
    if made.interrupted:
        raise KeyboardInterrupt
    broken = {r: Broken(round(made.first[r], 1), made.found[r].actions) for r in sorted(made.found)}
    tally, (found,) = made.tally, searches
    return Searched(seconds, made.workloads, tally.steps, tally.preemptions, len(found.states), broken)
