"""One input and what came of it: the common form of all reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from attrs import Factory, frozen

from preempt_oracle.campaign import Campaign
from preempt_oracle.known import Ledger
from preempt_oracle.report.rulebook import select
from preempt_oracle.verdict import Standing, Tally, Verdict, worst


@frozen
class Judged:
    """A verdict on one input, or why there is none."""

    source: str  # a trace's name, or the engine as it was named
    tally: Tally | None = None
    error: str = ""  # why there is no verdict, or none on all of it
    fault: Verdict = Verdict.CONFORMS  # BROKEN or UNREADABLE if there is an error
    seed: int | None = None
    workloads: int = 0
    outside: Mapping[str, int] = Factory(dict)  # reason -> workloads the engine refused: out of contract
    interrupted: bool = False

    @classmethod
    def of(cls, source: str, found: Campaign) -> Judged:
        """What came of a campaign."""
        fault = Verdict.BROKEN if found.broken else Verdict.CONFORMS
        return cls(
            source, found.tally, found.broken, fault, found.seed, found.workloads, found.outside, found.interrupted
        )

    @property
    def verdict(self) -> Verdict:
        """What was wrong with the run weighs more than what it showed."""
        if self.error:
            return self.fault
        return Verdict.INCONCLUSIVE if self.tally is None else self.tally.verdict


def overall(inputs: Iterable[Judged], known: Ledger | None = None) -> Verdict:
    """The verdict of several inputs, by DESIGN's precedence: 3, 2, 1, 4, 0. A stale known failure is a 2."""
    stale = [Verdict.STALE] if known is not None and known.stale else []
    return worst([*(j.verdict for j in inputs), *stale])


#: What one input showed of a rule outweighs what another could not see.
_WEIGHT = (
    Standing.VIOLATED,
    Standing.KNOWN,
    Standing.ADVISED,
    Standing.HELD,
    Standing.NOT_EXERCISED,
    Standing.NOT_OBSERVABLE,
)


def together(inputs: Iterable[Judged]) -> dict[str, tuple[Standing, int]]:
    """Standing and exercise count of every rule over all inputs that could be judged, by one specification."""
    tallies = [j.tally for j in inputs if j.tally is not None]
    standings = [t.standings for t in tallies]
    exercised: Counter[str] = Counter()
    for t in tallies:
        exercised.update(t.exercised)
    return {
        rule: (min((s[rule] for s in standings), key=_WEIGHT.index), exercised[rule])
        for rule in (r.id for r in select(None))
        if any(rule in s for s in standings)
    }
