"""The kinds of faults of public reports (`kinds.toml`): who has them here, and which nobody can have, and why."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from preempt_properties.known_bad import KnownBad

FILE = Path(__file__).with_name("kinds.toml")


@frozen
class Kind:
    """A kind of fault."""

    id: str  # its group's letter, and a number
    reports: tuple[str, ...]  # public ones; the first is the best
    fault: str  # what was wrong, in a sentence
    shown_by: tuple[str, ...] = ()  # names of known-bad schedulers that have it
    why: str = ""  # why there is none


@frozen
class Kinds:
    """The content of the file."""

    groups: Mapping[str, str]  # letter -> name
    kinds: tuple[Kind, ...]
    unreported: Mapping[str, tuple[str, ...]]  # letter -> names of schedulers that no report is known of

    def of(self, name: str) -> tuple[Kind, ...]:
        """The kinds that a known-bad scheduler shows."""
        return tuple(k for k in self.kinds if name in k.shown_by)

    def letter(self, name: str) -> str:
        """The group of a known-bad scheduler. KeyError if it stands nowhere."""
        for kind in self.of(name):
            return kind.id[0]
        for letter, names in self.unreported.items():
            if name in names:
                return letter
        raise KeyError(name)

    def group(self, variant: type[KnownBad]) -> str:
        """That group's name."""
        return self.groups[self.letter(variant.__name__)]


def load(file: Path = FILE) -> Kinds:
    """What the file holds. Raises OSError, ValueError, TypeError, KeyError: it ships with us."""
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    return Kinds(
        data["groups"],
        tuple(
            Kind(k["id"], tuple(k["reports"]), k["fault"], tuple(k["shown-by"]), k.get("why", "")) for k in data["kind"]
        ),
        {letter: tuple(names) for letter, names in data["unreported"].items()},
    )
