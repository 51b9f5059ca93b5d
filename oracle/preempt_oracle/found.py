"""What was found in an engine, version by version: `vectors/findings-ENGINE.toml`, edited by hand.

[[finding]]
id = "F5"                               # as docs/findings.md has it
scenario = "older/fault-drafts-kept"    # below vectors/scenarios; it names the rule that it breaks
versions = ["0.11.0", "0.13.0"]         # those that have it; the others break nothing, or not that
also = ["vllm-priority"]                # under which it may be seen too
generated = false                       # if generated workloads leave its configuration out
beside = ["output/stream"]              # rules that break with its own, in the same act
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from preempt_oracle.engines.environments import ENGINES
from preempt_oracle.matrix import VECTORS, ExpectedError
from preempt_properties.scenario import Scenario, ScenarioError, loads
from preempt_spec.rules import RULES

#: What an entry may leave out.
_MAY = ("also", "generated", "beside")


@frozen
class Finding:
    """A fault that was found in an engine: the scenario that shows it, and the versions that have it."""

    id: str
    name: str  # of the scenario, by its path below `scenarios`
    scenario: Scenario
    versions: tuple[str, ...]
    policies: tuple[str, ...]  # under which it may be seen; the scenario's is among them
    generated: bool = True  # generated workloads may show it
    beside: tuple[str, ...] = ()  # rules that break in the same act

    @property
    def rules(self) -> tuple[str, ...]:
        """All that it breaks."""
        return (self.scenario.rule, *self.beside)

    def shows(self, version: str, policy: str) -> bool:
        """Whether a run of this version under this policy may show it."""
        return version in self.versions and policy in self.policies

    def seen_in(self, engine: str, options: Mapping[str, Any]) -> bool:
        """Whether it is of that variant of its engine: with these options, as far as variants differ in them."""
        asked, spec = self.scenario.options, ENGINES.get(engine)
        return spec is None or all(asked.get(name) == options.get(name) for name in spec.told_apart_by)

    @property
    def file(self) -> str:
        """The scenario's path in a checkout of the project."""
        return f"oracle/preempt_oracle/vectors/scenarios/{self.name}.toml"


def rules(engine: str, policy: str, options: Mapping[str, Any] | None = None) -> frozenset[str]:
    """The rules that `NAME==VERSION` is known to break in generated workloads; none if nobody keeps a list.

    `options`: what its adapter is started with. A finding whose scenario wants some is expected only with those.
    """
    name, _, version = engine.partition("==")
    given = options or {}
    return frozenset(
        rule
        for f in listed(name)
        for rule in f.rules
        if f.generated and f.shows(version, policy)
        if f.seen_in(name, given) and f.scenario.options.items() <= given.items()
    )


def listed(engine: str) -> tuple[Finding, ...]:
    """What was found in an engine; nothing if nobody keeps a list. Raises ExpectedError."""
    if not (VECTORS / f"findings-{engine}.toml").is_file():
        return ()
    return findings(engine, ENGINES[engine].versions)


def findings(engine: str, versions: Sequence[str], folder: Path = VECTORS) -> tuple[Finding, ...]:
    """Read what was found in an engine. Raises ExpectedError naming file and field."""
    file = folder / f"findings-{engine}.toml"
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise ExpectedError(f"{file}: {e}") from None
    out = []
    for i, row in enumerate(data.pop("finding", []), 1):
        where = f"{file}: finding {i}"
        if not isinstance(row, dict) or set(row).difference(_MAY) != {"id", "scenario", "versions"}:
            raise ExpectedError(f"{where}: wants id, scenario, versions, perhaps {', '.join(_MAY)}, and nothing else")
        generated = row.get("generated", True)
        if not isinstance(generated, bool):
            raise ExpectedError(f"{where}: generated: must be true or false, not {generated!r}")
        unknown = [v for v in row["versions"] if v not in versions]
        if unknown:
            raise ExpectedError(f"{where}: versions: {unknown[0]!r} is none of {', '.join(versions)}")
        try:
            text = (folder / "scenarios" / f"{row['scenario']}.toml").read_text(encoding="utf-8")
            scenario = loads(text)
        except (OSError, ScenarioError) as e:
            raise ExpectedError(f"{where}: scenario: {e}") from None
        if scenario.rule not in RULES:
            raise ExpectedError(f"{where}: scenario: names no rule that it breaks")
        beside = tuple(row.get("beside", ()))
        if strange := [rule for rule in beside if rule not in RULES]:
            raise ExpectedError(f"{where}: beside: there is no rule {strange[0]!r}")
        policies = (scenario.config.policy, *row.get("also", ()))
        name = str(row["scenario"])
        out.append(Finding(str(row["id"]), name, scenario, tuple(row["versions"]), policies, generated, beside))
    if data:
        raise ExpectedError(f"{file}: {next(iter(data))}: unknown field")
    return tuple(out)
