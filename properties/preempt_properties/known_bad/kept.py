"""What is kept of each known-bad scheduler: a scenario that shows its fault, and how soon a search comes upon it.

`scenes/A.toml` and so on hold, for each scheduler of the group, the shortest scenario known in which the monitor names
its rule; `kills.toml` holds how many workloads of seed 0 the kill matrix needs under each profile. Both are written by
`python -m preempt_oracle.zoo_kept`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from preempt_properties.scenario import Scenario, dumps, of_table

SCENES = Path(__file__).with_name("scenes")
KILLS = Path(__file__).with_name("kills.toml")
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


def dump_scenes(scenes: Mapping[str, Scenario]) -> str:
    """The content of one file."""
    return "\n".join([HEAD, *(f"[{name}]\n{dumps(scene)}" for name, scene in scenes.items())])


def dump_kills(kills: Mapping[str, Mapping[str, int]]) -> str:
    """The content of the file."""
    rows = (f"{name} = {{ {', '.join(f'{p} = {n}' for p, n in row.items())} }}" for name, row in kills.items())
    return "\n".join([HEAD, "# Known-bad scheduler: profile: workloads until it is caught.", *rows, ""])
