"""What is kept of a hunt: who is alive and why that is right (`argued.toml`), and the score (`score.toml`).

An argument is for one mutant, under its name. `open` has those that are alive and that nobody has argued for yet: they
count as not killed, and the list may only get shorter.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from attrs import frozen

ARGUED = Path(__file__).with_name("argued.toml")
SCORE = Path(__file__).with_name("score.toml")
ENDS = ("evidence", "monitor", "test", "argued", "open")


@frozen
class Argued:
    """The content of `argued.toml`."""

    reasons: Mapping[str, str]  # mutant -> why it changes nothing that anybody could see
    open: frozenset[str]


@frozen
class Row:
    """A mutant, whose it is, and how it ended: one of `ENDS`, or "" if it should not be alive."""

    mutant: str
    rules: tuple[str, ...]  # or the module of the monitor
    end: str


def argued(file: Path = ARGUED) -> Argued:
    """What the file holds. Raises OSError, ValueError, KeyError: it ships with us."""
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    reasons = {mutant: data["why"].get(why, why) for mutant, why in data["argued"].items()}
    return Argued(reasons, frozenset(data["open"]))


#: rules or monitor -> rule or module -> end -> mutants.
Score = Mapping[str, Mapping[str, Mapping[str, int]]]


def score(file: Path = SCORE) -> tuple[Score, Mapping[str, int]]:
    """The score; and of how many mutants one was hunted for it. It ships with us: OSError, ValueError, KeyError."""
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    return data, data.pop("one-of")


def scored(rows: Iterable[Row]) -> dict[str, dict[str, int]]:
    """Ends per rule or module. A mutant of a function that several rules share counts for each of them."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for rule in row.rules or ("(called by none)",):
            counts[rule][row.end] += 1
    return {rule: {end: counts[rule][end] for end in ENDS} for rule in sorted(counts)}


def dump_score(score: Score, one_of: Mapping[str, int]) -> str:
    """The content of the file."""
    lines = ["# Written by `python -m preempt_oracle.rule_mutants --write`: mutants by how they ended."]
    lines += ["", "# One of how many mutants was hunted.", "[one-of]", *(f"{what} = {n}" for what, n in one_of.items())]
    for what, rows in score.items():
        lines += ["", f"[{what}]"]
        for rule, ends in rows.items():
            lines.append(f"{json.dumps(rule)} = {{ {', '.join(f'{end} = {n}' for end, n in ends.items())} }}")
    return "\n".join([*lines, ""])
