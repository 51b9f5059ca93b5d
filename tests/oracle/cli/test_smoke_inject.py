"""`smoke --inject`, with faults in the reference."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

ADAPTER = """
    from preempt_oracle.adapters.reference import ReferenceEngine
    from preempt_oracle.engines.faults import Fault, inject
    from preempt_properties.known_bad.queues import RequeuesAtTheBack
    from preempt_spec.reference import Reference

    def put(into, engine):
        def step(original):
            into.acted()
            return original()
        engine.scheduler = RequeuesAtTheBack
        into.wrap(engine, "step", step)

    def idle(into, engine):
        pass

    FRONT = Fault("to-the-back", "Requeues at the back.", ("queue/front",), put)

    class Front(ReferenceEngine):
        faults = (FRONT,)
        def start(self, config):
            if self.injection is not None:
                self.injection.remove()
            self.scheduler = Reference
            self.injection = inject(config, self.faults)
            if self.injection is not None:
                self.injection.put(self)
            return super().start(config)

    class Wrong(Front):
        faults = (FRONT, Fault("\\x1b[31mmisnamed", "Is meant for another rule.", ("victim/choice",), put))

    class Idle(Front):
        faults = (FRONT, Fault("idle", "Does nothing.", ("queue/front",), idle))
"""


@pytest.fixture
def faulty(here: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a module with the classes above."""
    name = f"faulty_{abs(hash(request.node.nodeid))}"
    (here / f"{name}.py").write_text(textwrap.dedent(ADAPTER))
    monkeypatch.syspath_prepend(here)
    monkeypatch.setattr("preempt_oracle.inject.LIMIT", 20)
    return name


def test_all_caught(run, faulty):
    result = run("smoke", "--adapter", f"{faulty}:Front", "--inject")
    assert result.exit_code == 0
    assert "to-the-back" in result.stdout
    assert "queue/front" in result.stdout
    assert "OK  1 of 1 fault caught by the rule that was meant" in result.stdout
    assert "no rule is broken" in result.stdout
    assert run("smoke", "--adapter", f"{faulty}:Front", "--inject").stdout == result.stdout


def test_caught_by_another_rule(run, faulty):
    result = run("smoke", "--adapter", f"{faulty}:Wrong", "--inject", "--seed", "3")
    assert result.exit_code == 1
    assert "FAILED  1 of 2 faults caught" in result.stdout
    assert "\\x1b[31mmisnamed: caught by another rule" in result.stdout
    assert "  does      Is meant for another rule." in result.stdout
    assert "  meant     victim/choice" in result.stdout
    assert "  queue/front: " in result.stdout
    assert "\x1b" not in result.stdout


def test_never_acted(run, faulty):
    result = run("smoke", "--adapter", f"{faulty}:Idle", "--inject")
    assert result.exit_code == 4
    assert "never acted" in result.stdout
    assert "INCONCLUSIVE" in result.stdout
    only = run("smoke", "--adapter", f"{faulty}:Idle", "--inject", "--fault", "to-the-back")
    assert only.exit_code == 0


def test_as_json(run, faulty, here):
    assert run("smoke", "--adapter", f"{faulty}:Wrong", "--inject", "--json", "out.json").exit_code == 1
    data = json.loads((here / "out.json").read_text())
    assert (data["verdict"], data["exit_code"]) == ("violates", 1)
    assert data["control"]["workloads"] >= 1
    assert data["control"]["alarms"] == []
    good, bad = data["faults"]
    assert good["outcome"] == "caught"
    assert good["violations"][0]["rule"] == "queue/front"
    assert good["acted"] >= 1
    assert bad["outcome"] == "caught by another rule"
    result = run("smoke", "--adapter", f"{faulty}:Front", "--inject", "--json", "-")
    assert json.loads(result.stdout)["exit_code"] == 0


def test_what_is_not_there_to_inject(run, faulty, adapters):
    for words, message in (
        (("reference", "--policy", "vllm-fcfs"), "the reference is no real engine"),
        (("--adapter", f"{adapters}:Back"), "has no faults to inject: it lists none"),
        (("--adapter", f"{faulty}:Front", "--fault", "x\x1b"), "there is no fault"),
        (("--adapter", f"{faulty}:Front", "--json", "nowhere/out.json"), "cannot write"),
    ):
        result = run("smoke", *words, "--inject")
        assert result.exit_code == 2, words
        assert message in result.stderr
        assert "\x1b" not in result.stderr


@pytest.mark.parametrize("words", [("--fault", "x"), ("--seed", "1"), ("--json", "out.json")])
def test_what_goes_with_inject_only(run, here, words):
    result = run("smoke", "reference", "--policy", "vllm-fcfs", *words)
    assert result.exit_code == 2
    assert f"{words[0]} goes with --inject" in result.stderr


def test_the_help_says_what_the_exit_codes_mean(run):
    text = " ".join(run("smoke", "--help").stdout.split())
    assert "Exit code 0: every fault was caught by the rule it was meant for" in text
    assert "4: one never acted" in text
