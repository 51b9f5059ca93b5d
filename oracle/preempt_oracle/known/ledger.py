"""Which known failures were seen in a command's runs, and which are stale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping

from attrs import Factory, frozen, mutable

from preempt_oracle.known.entry import Known, Scene


@frozen
class Line:
    """One rule of one entry, after the runs. `stale`: it describes what does not happen any more."""

    entry: Known
    rule: str
    seen: int  # runs that broke the rule as described
    kept: int  # runs of the family that were judged to their end, rule included, and broke nothing

    @property
    def stale(self) -> bool:
        """So many runs of the family, and none broke the rule.

        A run that ended at another violation, in which the rule could not be observed, or out of contract, says
        nothing about it and does not count; neither does an entry become stale that describes none of the runs.
        """
        return not self.seen and self.kept >= self.entry.within

    def __str__(self) -> str:
        """What is wrong with a stale entry, with its place in the file."""
        e, n = self.entry, self.kept
        runs = f"{n:,} run{'' if n == 1 else 's'} of its family ({e.family}) held the rule, none broke it"
        return f"{e.place}: rules: {self.rule}: stale: {runs}"


@mutable
class Ledger:
    """The entries, and what the runs of one command showed of them."""

    entries: tuple[Known, ...]
    _seen: Counter[tuple[int, str]] = Factory(Counter)
    _kept: Counter[tuple[int, str]] = Factory(Counter)

    def known(self, scene: Scene, broken: Iterable[str]) -> dict[str, Known]:
        """Those of the broken rules that are known to break in such a run, with the first entry that says so."""
        found: dict[str, Known] = {}
        for rule in broken:
            for entry in self.entries:
                if rule in entry.rules and entry.describes(scene):
                    found.setdefault(rule, entry)
        return found

    def note(
        self, scene: Scene, violated: Iterable[str], advised: Iterable[str], tested: Container[str]
    ) -> Mapping[str, Known]:
        """Take down a run inside the contract. Returns what is known of what it broke, advisory rules included.

        `violated`: the rules it ended at; `advised`: the advisory ones it broke on its way; `tested`: the rules that
        could be judged in it.
        """
        violated, advised = {*violated}, {*advised}
        for i, entry in enumerate(self.entries):
            if entry.describes(scene):
                for rule in entry.rules:
                    if rule in violated | advised:
                        self._seen[i, rule] += 1
                    elif not violated and rule in tested:
                        self._kept[i, rule] += 1
        return self.known(scene, violated | advised)

    def absorb(self, other: Ledger) -> None:
        """Count the runs of another process too, of the same entries."""
        self._seen.update(other._seen)
        self._kept.update(other._kept)

    @property
    def lines(self) -> tuple[Line, ...]:
        """Every rule of every entry, in the order of the file."""
        return tuple(
            Line(entry, rule, self._seen[i, rule], self._kept[i, rule])
            for i, entry in enumerate(self.entries)
            for rule in entry.rules
        )

    @property
    def stale(self) -> tuple[Line, ...]:
        """Those that make the command fail."""
        return tuple(line for line in self.lines if line.stale)
