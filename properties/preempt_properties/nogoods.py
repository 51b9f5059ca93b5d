"""Choose a value for every name, so that no set of choices that is known not to go together is among them. Pure.

A search that learns: where no value of a name is left, what ruled them out is itself a set that does not go together,
without that name. It is kept, and the search goes back to the last name that it names.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from attrs import define, field

V = TypeVar("V", bound=Hashable)
Nogood = frozenset[tuple[str, V]]


@define(eq=False)
class Nogoods:
    """Sets of choices that do not go together."""

    domains: Mapping[str, Sequence[Hashable]]
    known: dict[Nogood[Hashable], None] = field(factory=dict, init=False)
    _naming: dict[tuple[str, Hashable], list[Nogood[Hashable]]] = field(factory=dict, init=False)

    def add(self, nogood: Nogood[Hashable]) -> None:
        """These do not go together."""
        if nogood in self.known:
            return
        self.known[nogood] = None
        for choice in nogood:
            self._naming.setdefault(choice, []).append(nogood)

    def allowed(self, preferred: Mapping[str, Hashable], fixed: Mapping[str, Hashable]) -> dict[str, Hashable] | None:
        """A choice for every name, with the fixed ones; the preferred ones as far as that goes. None: there is none."""
        if frozenset() in self.known:
            return None
        # What is fixed comes first, so that what is learned below it names it where it hangs on it, and holds for good.
        order = [*fixed, *(name for name in self.domains if name not in fixed)]
        chosen: dict[str, Hashable] = {}
        return chosen if self._choose(order, chosen, preferred, fixed) is None else None

    def _choose(
        self,
        order: Sequence[str],
        chosen: dict[str, Hashable],
        preferred: Mapping[str, Hashable],
        fixed: Mapping[str, Hashable],
    ) -> Nogood[Hashable] | None:
        """Choose for the names behind those chosen. Returns None if that went well, else which of those are to blame."""
        if len(chosen) == len(order):
            return None
        name = order[len(chosen)]
        if name in fixed:
            values: list[Hashable] = [fixed[name]]
        else:
            values = sorted(self.domains[name], key=lambda v: v != preferred[name])
        blame: set[tuple[str, Hashable]] = set()
        for value in values:
            against = self._against((name, value), chosen)
            if against is None:
                chosen[name] = value
                against = self._choose(order, chosen, preferred, fixed)
                if against is None:
                    return None
                del chosen[name]
                if (name, value) not in against:
                    return against
            blame |= against - {(name, value)}
        learned = frozenset(blame)
        if name not in fixed:
            self.add(learned)
        return learned

    def _against(self, choice: tuple[str, Hashable], chosen: Mapping[str, Hashable]) -> Nogood[Hashable] | None:
        """A known set that this choice would complete."""
        for nogood in self._naming.get(choice, ()):
            if all(chosen.get(k) is v for k, v in nogood if (k, v) != choice):
                return nogood
        return None
