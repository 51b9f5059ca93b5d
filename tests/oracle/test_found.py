"""What was found in vLLM, and the errors of a list that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from preempt_oracle.engines.environments import ENGINES
from preempt_oracle.found import findings, rules
from preempt_oracle.matrix import VECTORS, ExpectedError

VERSIONS = ENGINES["vllm"].versions
LISTED = findings("vllm", VERSIONS)
SCENARIOS = VECTORS / "scenarios"


def test_every_scenario_of_an_older_version_is_a_finding_and_is_told_on_the_page():
    page = (Path(__file__).parents[2] / "docs" / "findings.md").read_text(encoding="utf-8")
    assert {f"older/{p.stem}" for p in (SCENARIOS / "older").glob("*.toml")} <= {f.name for f in LISTED}
    for finding in LISTED:
        line = next(line for line in page.splitlines() if finding.file in line)
        assert line.startswith(f"| {finding.id} | ")
        assert finding.scenario.rule in line
        named = finding.scenario.engine.partition("==")[2]
        assert named in finding.versions
        assert f"{finding.file} vllm=={named}`" in line


def test_every_fault_of_the_traces_is_a_finding():
    faults = {
        p.stem for p in SCENARIOS.glob("*.toml") if 'engine = "vllm==' in p.read_text() and "\nrule" in p.read_text()
    }
    assert faults <= {f.name for f in LISTED}


def test_the_rules_of_a_version():
    assert rules("vllm==0.11.0", "vllm-fcfs") == {"queue/order", "victim/reset"}
    assert rules("vllm==0.33.0", "vllm-fcfs") == frozenset()
    assert rules("vllm==0.33.0", "vllm-priority") == {"live/no-thrash", "resume/publish"}
    assert rules("vllm==9.9.9", "vllm-priority") == frozenset()
    assert rules("vidur==0.0.26", "vidur-vllm") == {"live/survives"}
    assert rules("vidur==0.0.26", "vidur-vllm", {"repair": True}) == frozenset()
    nano = {"output/stream", "queue/one-place", "resume/hit", "victim/choice"}
    assert rules("nano-vllm-fork==20260210", "nano-vllm") == nano
    assert rules("nano-vllm-fork==20260210", "nano-vllm", {"repair": True}) == frozenset()
    assert rules("reference", "vllm-fcfs") == frozenset()
    assert rules("", "vllm-fcfs") == frozenset()


def test_what_generated_workloads_leave_out_is_expected_of_none():
    """Else the control of `smoke --inject` would pass over a false alarm by the same rule."""
    apart = {f.name for f in LISTED if not f.generated}
    assert apart == {"fault-draft-padding-asserts", "fault-draft-padding-starves"}
    assert {"live/progress", "live/survives"}.isdisjoint(rules("vllm==0.33.0", "vllm-priority"))


def test_what_wants_options_is_expected_with_those_only():
    connectors = {f"connector/{p.stem}" for p in (SCENARIOS / "connector").glob("*.toml")}
    assert connectors == {f.name for f in LISTED if f.scenario.options.get("connector")}
    assert rules("vllm==0.33.0", "vllm-fcfs", {}) == frozenset()
    assert rules("vllm==0.33.0", "vllm-fcfs", {"connector": "nixl"}) == frozenset()
    for connector in ("offloading", "simple"):
        options = {"connector": connector, "lazy_offload": True}
        assert rules("vllm==0.33.0", "vllm-fcfs", options) == {"live/progress"}
        assert rules("vllm==0.30.0", "vllm-fcfs", options) == {"queue/front"}


ROW = '[[finding]]\nid = "F1"\nscenario = "one"\nversions = ["0.33.0"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("finding = [", "findings-vllm.toml"),
        (ROW.replace('id = "F1"\n', ""), "finding 1: wants id, scenario, versions"),
        (ROW + 'generated = "no"\n', "finding 1: generated: must be true or false, not 'no'"),
        (ROW + 'beside = ["no/rule"]\n', "finding 1: beside: there is no rule 'no/rule'"),
        (ROW + "extra = 1\n", "finding 1: wants id, scenario, versions"),
        (ROW.replace("0.33.0", "0.1.0"), "finding 1: versions: '0.1.0' is none of 0.11.0"),
        (ROW.replace("one", "two"), "finding 1: scenario: "),
        (ROW.replace("one", "bad"), "finding 1: scenario: "),
        (ROW.replace("one", "calm"), "names no rule that it breaks"),
        ("nonsense = 1\n", "nonsense: unknown field"),
    ],
)
def test_a_list_that_cannot_be_read(tmp_path, text, message):
    (tmp_path / "scenarios").mkdir()
    known = (SCENARIOS / "fault-livelock.toml").read_text()
    (tmp_path / "scenarios" / "one.toml").write_text(known)
    (tmp_path / "scenarios" / "bad.toml").write_text("blocks = 1\n")
    (tmp_path / "scenarios" / "calm.toml").write_text(known.replace('rule = "live/no-thrash"\n', ""))
    (tmp_path / "findings-vllm.toml").write_text(text)
    with pytest.raises(ExpectedError) as raised:
        findings("vllm", VERSIONS, tmp_path)
    assert message in str(raised.value)
