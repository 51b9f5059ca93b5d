"""docs/findings.md: every fault it lists has a scenario, and the light engines still show theirs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from preempt_oracle.adapters.protocol import Refused, Session
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.drive import drive
from preempt_oracle.engines.environments import ENGINES, ready
from preempt_oracle.vectors.catalogue import FOLDER
from preempt_oracle.vectors.make import REFERENCE
from preempt_properties.scenario import dumps, loads
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.rules import RULES

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "findings.md"
READ = {path.stem: loads(path.read_text(encoding="utf-8")) for path in sorted((FOLDER / "scenarios").glob("*.toml"))}
#: Those of the reference scheduler show no fault.
SCENARIOS = {name: s for name, s in READ.items() if s.engine != REFERENCE}
FAULTS = {name: s for name, s in SCENARIOS.items() if s.rule}
LIGHT = {name: s for name, s in SCENARIOS.items() if not s.engine.startswith("vllm==")}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_names_what_exists_and_reads_back(name):
    scenario = SCENARIOS[name]
    engine, _, version = scenario.engine.partition("==")
    assert version in ENGINES[engine].versions
    assert scenario.config.policy in ENGINES[engine].policies
    assert scenario.config.policy in PROFILES
    assert not scenario.rule or scenario.rule in RULES
    assert loads(dumps(scenario)) == scenario


@pytest.mark.parametrize("name", sorted(READ.keys() - SCENARIOS.keys()))
def test_a_scenario_of_the_reference_reads_back(name):
    assert READ[name].config.policy in PROFILES
    assert not READ[name].rule
    assert loads(dumps(READ[name])) == READ[name]


def test_every_fault_has_its_command_and_every_command_its_file():
    text = PAGE.read_text(encoding="utf-8")
    commands = re.findall(r"`preempt-oracle replay (\S+)( \S+)?`", text)
    folder = "oracle/preempt_oracle/vectors/scenarios/"
    told = {Path(file).stem for file, _ in commands}
    for file, engine in commands:
        assert file.startswith(folder)
        assert (ROOT / file).is_file()
        name, _, version = engine.strip().partition("==")
        assert not name or version in ENGINES[name].versions
    assert told >= set(FAULTS) | set(LIGHT)
    for name, scenario in FAULTS.items():
        row = next(line for line in text.splitlines() if f"{folder}{name}.toml" in line)
        assert scenario.rule in row


@pytest.mark.light
@pytest.mark.parametrize("name", LIGHT)
def test_a_light_engine_still_shows_it(name):
    scenario = LIGHT[name]
    engine, _, version = scenario.engine.partition("==")
    found = ready(engine, version)
    if found is None:
        pytest.skip(f"needs `preempt-oracle engines install {scenario.engine}`")
    session = Session(Stdio(found.command, scenario.engine, env=found.env), scenario.options)
    try:
        run = drive(session, scenario)
    finally:
        session.close()
    assert not isinstance(run, Refused)
    broken = {v.rule for v in run.violations}
    assert scenario.rule in broken if scenario.rule else not broken
