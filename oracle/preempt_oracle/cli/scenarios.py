"""Scenario files: read with errors that name them, written with a comment that says what they show."""

from __future__ import annotations

import re
from pathlib import Path

from attrs import evolve

from preempt_oracle.campaign import Origin
from preempt_oracle.cli.errors import unusable
from preempt_oracle.cli.files import read_text, write
from preempt_oracle.cli.target import Target
from preempt_oracle.drive import Run
from preempt_oracle.reduce import Reduced
from preempt_oracle.trace.errors import visible
from preempt_properties.scenario import Scenario, ScenarioError, dumps, loads
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.rules import RULES, Violation


def read(path: str) -> Scenario:
    """A scenario file. Raises ClickException naming file and field."""
    try:
        scenario = loads(read_text(path))
    except ScenarioError as e:
        raise unusable(f"{path}: {e}") from None
    if scenario.config.policy not in PROFILES:
        raise unusable(f"{path}: policy: {scenario.config.policy!r} is unknown; profiles are {', '.join(PROFILES)}")
    if scenario.rule and scenario.rule not in RULES:
        raise unusable(f"{path}: rule: there is no rule {scenario.rule!r}")
    return scenario


def save(
    folder: str, target: Target, violation: Violation, reduced: Reduced, origin: Origin, run: Run
) -> tuple[str, str]:
    """Write a failure's scenario. Returns its file and the command that replays it. Raises ClickException."""
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{violation.rule} {target.label} {origin.tag}").strip("-")
    file = str(Path(folder) / f"{name[:120]}.toml")
    command = target.command("replay", file) if not target.key else f"preempt-oracle replay {_quoted(file)}"
    rule = RULES[violation.rule]
    comment = [
        f"{rule.id}: {rule.sentence}",
        f"Here: {visible(violation.message, 400)}",
        f"On {visible(target.label, 200)}, from {origin.words}; {reduced.note}.",
        f"Replay: {visible(command)}",
    ]
    scenario = evolve(reduced.scenario, engine=target.key, rule=rule.id, options=dict(target.options))
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise unusable(f"cannot make the folder {folder}: {e.strerror}") from None
    write(file, dumps(scenario, "\n".join(comment)).encode())
    return file, command


def _quoted(file: str) -> str:
    import shlex

    return shlex.quote(file)
