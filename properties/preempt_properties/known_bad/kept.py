"""What is kept of each known-bad scheduler: a scenario that shows its fault, and how soon a search comes upon it.

`scenes/A.toml` and so on hold, for each scheduler of the group, the shortest scenario known in which the monitor names
its rule; `found.toml`, which clauses of the rule find something there (where several do, none stands in for another);
`kills.toml`, how many workloads of seed 0 the kill matrix needs under each profile. All are written by
`python -m preempt_oracle.zoo_kept`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from preempt_properties.scenario import Scenario, dumps, of_table

SCENES = Path(__file__).with_name("scenes")
KILLS = Path(__file__).with_name("kills.toml")
FOUND = Path(__file__).with_name("found.toml")
HEAD = "# Written by `python -m preempt_oracle.zoo_kept`; see kept.py.\n"


def scenes(folder: Path = SCENES) -> dict[str, Scenario]:
    """The scenario of each known-bad scheduler, by name. They ship with us: OSError, ValueError, ScenarioError."""
    found = {}
    for file in sorted(folder.glob("*.toml")):
        for name, table in tomllib.loads(file.read_text(encoding="utf-8")).items():
            found[name] = of_table(table)
    return found


def kills(file: Path = KILLS) -> dict[str, dict[str, int]]:
    """Workloads until caught, by name and profile. Raises OSError, ValueError: it ships with us."""
    return {name: dict(row) for name, row in tomllib.loads(file.read_text(encoding="utf-8")).items()}


def found(file: Path = FOUND) -> dict[str, list[str]]:
    """Names of the clauses that find something in the scenario of each. It ships with us: OSError, ValueError."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


def dump_found(found: Mapping[str, list[str]]) -> str:
    """The content of the file."""
    rows = (f"{name} = {json.dumps(clauses)}" for name, clauses in found.items())
    note = "# Known-bad scheduler: clauses of its rule that find something in its scenario."
    return "\n".join([HEAD, note, *rows, ""])


def dump_scenes(scenes: Mapping[str, Scenario]) -> str:
    """The content of one file."""
    return "\n".join([HEAD, *(f"[{name}]\n{dumps(scene)}" for name, scene in scenes.items())])


def dump_kills(kills: Mapping[str, Mapping[str, int]]) -> str:
    """The content of the file."""
    rows = (f"{name} = {{ {', '.join(f'{p} = {n}' for p, n in row.items())} }}" for name, row in kills.items())
    return "\n".join([HEAD, "# Known-bad scheduler: profile: workloads until it is caught.", *rows, ""])
