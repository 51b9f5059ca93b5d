"""Choose a value for every name, so that no set of choices that is known not to go together is among them. Pure.

A search that learns: where no value of a name is left, what ruled them out is itself a set that does not go together,
without that name. It is kept, and the search goes back to the last name that it names.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from attrs import define, field

Choice = tuple[str, Hashable]
Nogood = frozenset[Choice]


@define(eq=False)
class Nogoods:
    """Sets of choices that do not go together."""

    domains: Mapping[str, Sequence[Hashable]]
    known: dict[Nogood, None] = field(factory=dict, init=False)
    #: A choice, and what does not go together with it.
    _rests: dict[Choice, list[Nogood]] = field(factory=dict, init=False)

    def add(self, nogood: Nogood) -> None:
        """These do not go together."""
        if nogood in self.known:
            return
        self.known[nogood] = None
        for choice in nogood:
            self._rests.setdefault(choice, []).append(nogood - {choice})

    def allowed(self, preferred: Mapping[str, Hashable], fixed: Mapping[str, Hashable]) -> dict[str, Hashable] | None:
        """A choice for every name, with the fixed ones; the preferred ones as far as that goes. None: there is none."""
        if frozenset() in self.known:
            return None
        # What is fixed comes first, so that what is learned below it names it where it hangs on it, and holds for good.
        order = [*fixed, *(name for name in self.domains if name not in fixed)]
        chosen: set[Choice] = set()
        if self._choose(order, chosen, preferred, fixed) is not None:
            return None
        found = dict(chosen)
        return {name: found[name] for name in self.domains}

    def _choose(
        self,
        order: Sequence[str],
        chosen: set[Choice],
        preferred: Mapping[str, Hashable],
        fixed: Mapping[str, Hashable],
    ) -> Nogood | None:
        """Choose for the names behind those chosen. Returns None, or which of those are to blame."""
        if len(chosen) == len(order):
            return None
        name = order[len(chosen)]
        if name in fixed:
            values: list[Hashable] = [fixed[name]]
        else:
            values = sorted(self.domains[name], key=lambda v: v != preferred[name])
        blame: set[Choice] = set()
        for value in values:
            choice = (name, value)
            against = next((rest for rest in self._rests.get(choice, ()) if rest <= chosen), None)
            if against is None:
                chosen.add(choice)
                against = self._choose(order, chosen, preferred, fixed)
                if against is None:
                    return None
                chosen.remove(choice)
                if choice not in against:
                    return against
            blame |= against - {choice}
        learned = frozenset(blame)
        if name not in fixed:
            self.add(learned)
        return learned
