"""`vectors.toml`: every shipped trace, what it shows and how it must come out. Written by `make`, read by tests."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path

from attrs import frozen

FOLDER = Path(__file__).parent
CATALOGUE = "vectors.toml"

HEAD = """\
# Every shipped trace: where it comes from, what it shows, how it must come out.
# Written by `python -m preempt_oracle.vectors.make`; edit the scenarios and vectors/edits*.py instead.
"""


@frozen
class Vector:
    """One shipped trace. Paths are relative to this folder."""

    file: str
    shows: str  # one sentence
    scenario: str  # the scenario it was recorded from; "" of a hand-broken copy
    base: str  # the trace it is a hand-broken copy of; "" of a recorded one
    engine: str
    version: str
    policy: str
    verdict: str  # conforms, violates or inconclusive, of this trace alone
    rules: tuple[str, ...] = ()  # exactly those it breaks


def dumps(vectors: Iterable[Vector]) -> str:
    """The catalogue as TOML, sorted by file."""
    return "\n".join([HEAD, *map(_entry, sorted(vectors, key=lambda v: v.file))])


def _entry(v: Vector) -> str:
    fields = ("file", "shows", "scenario", "base", "engine", "version", "policy", "verdict", "rules")
    # TOML's basic strings and arrays of them are JSON's.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name in fields if (value := getattr(v, name))]
    return "\n".join(["[[vector]]", *lines, ""])


def load(folder: Path = FOLDER) -> tuple[Vector, ...]:
    """The catalogue of a folder. Raises OSError, ValueError, TypeError: it ships with us."""
    data = tomllib.loads((folder / CATALOGUE).read_text(encoding="utf-8"))
    return tuple(
        Vector(**{"scenario": "", "base": "", **entry, "rules": tuple(entry.get("rules", ()))})
        for entry in data["vector"]
    )
