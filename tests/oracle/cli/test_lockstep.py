"""`lockstep`: agreement, a divergence and how it is shown, what is refused, what is broken."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

STAND_IN = "preempt_oracle.lockstep.stand_in:StandIn"
ADAPTERS = """
    from attrs import evolve
    from preempt_oracle.engines.child import Refused
    from preempt_oracle.lockstep.predicted import Predicted
    from preempt_oracle.lockstep.stand_in import StandIn
    from preempt_oracle.adapters.reference import ReferenceEngine

    class FromTheBack(StandIn):
        '''Takes the last free block instead of the first.'''
        def start(self, config):
            reply = super().start(config)
            pick = self.reference.pick_blocks
            def other(group, count, keep):
                pool = self.reference.pool
                pool.free.reverse()
                new = pick(group, count, keep)
                pool.free.reverse()
                return new
            self.reference.pick_blocks = other
            return reply

    class Raises(StandIn):
        def step(self):
            raise RuntimeError("boom")

    class Older(StandIn):
        def start(self, config):
            return {**super().start(config), "version": "0.11.0"}

    class Blind(StandIn):
        def start(self, config):
            reply = super().start(config)
            return {**reply, "observes": [o for o in reply["observes"] if o != "free-ids"]}

    class Refuses(StandIn):
        def start(self, config):
            raise Refused("only on Sundays")
"""


@pytest.fixture
def module(here: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (here / "stand_ins.py").write_text(textwrap.dedent(ADAPTERS))
    monkeypatch.syspath_prepend(here)
    return "stand_ins"


@pytest.mark.long
def test_exact(run, here):
    result = run("lockstep", "--adapter", STAND_IN, "--workloads", 56, "--json", "out.json")
    assert result.exit_code == 0, result.output
    assert "560 modes, seed 0" in result.stdout
    assert "predicted, no divergence" in result.stdout
    report = json.loads((here / "out.json").read_text())
    assert (report["format"], report["divergences"], report["first"]) == ("preempt-oracle-lockstep", 0, None)
    assert report["workloads"] == sum(m["workloads"] for m in report["modes"]) == 56
    assert report["steps"] == sum(m["steps"] for m in report["modes"]) > 1000
    assert len(report["modes"]) == 560
    assert report["reached"]["preemption"] > 20


def test_a_divergence_is_shown_as_a_diff_with_a_scenario_and_a_command(run, module):
    words = ("--mode", "sync,runner=1,no-drafts", "--workloads", 8)
    result = run("lockstep", "--adapter", f"{module}:FromTheBack", *words, "--json", "-")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["divergences"] > 1, "the campaign goes on behind the first"
    first = report["first"]
    differ = [f for f in first["fields"] if f["differs"]]
    assert {"blocks", "sent", "free_ids"} <= {f["field"] for f in differ}
    assert first["step"] == 1
    assert len([x for x in first["scenario"].splitlines() if x.startswith("add")]) == 1, "shortened"
    text = run("lockstep", "--adapter", f"{module}:FromTheBack", *words)
    assert text.exit_code == 1
    assert "DIVERGES at event 2 (step), step 1: blocks added to tables, tables as told to the worker" in text.stdout
    assert "!=  free list, next first" in text.stdout
    assert "preempt-oracle lockstep vllm==0.33.0 --policy vllm-" in text.stdout
    assert text.stdout.rstrip().splitlines()[-1].startswith("DIVERGES  in ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--mode", "caching,offload"), "offload is not predicted: KV connectors"),
        (("--mode", "fast"), "'fast' is no mode; words are async"),
        (("--mode", "pipeline,drafts"), "no modelled combination is all of pipeline,drafts"),
        (("--policy", "nano-vllm"), "nano-vllm is not predicted: vllm-fcfs and vllm-priority are"),
        (("--policy", "best"), "'best' is unknown"),
        (("--option", "v2_runner=true"), "a mode sets the options of the adapter itself"),
        (("--workloads", "0"), "0 is not in the range"),
        (("--seed", "-1"), "-1 is not in the range"),
        (("--time", "soon"), "not a duration"),
        (("--json", "no/such/folder.json"), "there is no folder"),
    ],
)
def test_bad_input(run, here, words, said):
    result = run("lockstep", "--adapter", STAND_IN, *words)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_an_engine_is_needed_and_must_be_one_that_is_predicted(run, here, module):
    assert run("lockstep").exit_code == 2
    assert "is not installed" in run("lockstep", "vllm==0.33.0").output
    assert "unknown engine" in run("lockstep", "gpt").output
    other = run("lockstep", "--adapter", f"{module}:ReferenceEngine", "--mode", "sync,runner=1", "--workloads", 1)
    assert other.exit_code == 2
    assert "reference" in other.output
    assert "is not predicted; vllm 0.31.0 and 0.33.0 are" in other.output
    older = run("lockstep", "--adapter", f"{module}:Older")
    assert older.exit_code == 2
    assert "vllm 0.11.0 is not predicted" in older.output


def test_a_harness_that_is_broken(run, module):
    blind = run("lockstep", "--adapter", f"{module}:Blind")
    assert blind.exit_code == 3
    assert "lockstep needs to observe free-ids" in blind.output


def test_an_engine_that_raises_diverges(run, module):
    result = run("lockstep", "--adapter", f"{module}:Raises", "--workloads", 1)
    assert result.exit_code == 3, "an adapter that raises is a broken harness"
    assert "RuntimeError" in result.output


def test_nothing_compared_is_inconclusive(run, module):
    result = run("lockstep", "--adapter", f"{module}:Refuses", "--workloads", 3)
    assert result.exit_code == 4
    assert "refused by the engine: 3 workloads: only on Sundays" in result.output
    assert "INCONCLUSIVE" in result.output
