"""`infer`: a policy that is the profile's, one that is not, none at all; what is refused, what is broken."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import msgspec
import pytest

from preempt_oracle.inferred import FILE, kept, main, merged, page
from preempt_oracle.report.infer import Report
from preempt_properties.inference import KNOBS
from preempt_properties.scenario import loads
from preempt_spec.policies.profiles import PROFILES

ADAPTERS = """
    from attrs import evolve
    from preempt_oracle.adapters.reference import ReferenceEngine
    from preempt_oracle.engines.child import Refused
    from preempt_spec.policies.policy import Victim
    from preempt_spec.reference import Reference

    class Unjust(ReferenceEngine):
        '''Preempts by a priority that nobody should look at.'''
        @staticmethod
        def scheduler(header, contract):
            return Reference(header, evolve(contract, victim=Victim.WORST_PRIORITY))

    class ForgetsWhatItComputed(ReferenceEngine):
        def step(self):
            reply = super().step()
            return {**reply, "start": [max(0, n - 1) for n in reply["start"]]} if reply.get("start") else reply

    class Raises(ReferenceEngine):
        def step(self):
            raise RuntimeError("boom")

    class Chokes(ReferenceEngine):
        def add(self, cmd):
            if cmd["request"] == "too-long":
                raise ValueError("boom")
            return super().add(cmd)

    class Idle(ReferenceEngine):
        def add(self, cmd):
            raise Refused("only on Sundays")
"""


@pytest.fixture
def module(here: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (here / "schedulers.py").write_text(textwrap.dedent(ADAPTERS))
    monkeypatch.syspath_prepend(here)
    return "schedulers"


@pytest.mark.long
def test_the_reference_is_what_its_profile_says(run, here):
    result = run(
        *("infer", "reference", "--policy", "vllm-priority", "--seed", 1, "--workloads", 20),
        *("--json", "out.json", "--save", "told"),
    )
    assert result.exit_code == 0
    assert "AGREES  with vllm-priority: " in result.stdout
    assert "WORST_PRIORITY" in result.stdout
    report = msgspec.json.decode((here / "out.json").read_bytes(), type=Report)
    assert (report.verdict, report.workloads, report.causes) == ("conforms", 20, ("growth",))
    assert [row.knob for row in report.knobs] == [*KNOBS]
    victim = next(row for row in report.knobs if row.knob == "victim")
    assert victim.possible == ("WORST_PRIORITY",)
    assert {x.rule for x in victim.refuted} == {"victim/choice"}
    # Each value that one run refutes has a scenario that shows it.
    files = {f.stem for f in (here / "told").iterdir()}
    refuted = {(row.knob, x.value) for row in report.knobs for x in row.refuted if x.run}
    assert files == {f"{knob}-not-{value}".lower().replace("_", "-") for knob, value in refuted}
    assert all(loads((here / "told" / f"{name}.toml").read_text()).config.policy == "vllm-priority" for name in files)


@pytest.mark.long
def test_another_policy_than_the_profile_s_is_named(run, module):
    result = run("infer", "--adapter", f"{module}:Unjust", "--policy", "vllm-fcfs", "--seed", 1, "--workloads", 15)
    assert result.exit_code == 1
    assert "victim: the profile says LAST_RUNNING" in result.stdout
    assert "victim/choice: " in result.stdout
    assert "DIFFERS  from vllm-fcfs" in result.stdout


def test_what_no_policy_explains_is_no_agreement(run, module):
    result = run(
        *("infer", "--adapter", f"{module}:ForgetsWhatItComputed", "--policy", "vllm-fcfs"),
        *("--seed", 1, "--workloads", 4, "--json", "-"),
    )
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["verdict"] == "violates"
    assert report["unexplained"]


def test_a_broken_harness_and_nothing_told(run, module):
    result = run("infer", "--adapter", f"{module}:Raises", "--seed", 1, "--workloads", 3)
    assert result.exit_code == 3
    assert "HARNESS BROKEN  the workload of seed 1: " in result.stdout
    result = run("infer", "--adapter", f"{module}:Idle", "--seed", 1, "--workloads", 3)
    assert result.exit_code == 4
    assert "INCONCLUSIVE  nobody was preempted" in result.stdout


@pytest.mark.long
def test_an_engine_that_chokes_on_what_is_too_long_has_told_all_else(run, module):
    words = ("--policy", "vllm-fcfs", "--seed", 1, "--workloads", 6)
    result = run("infer", "--adapter", f"{module}:Chokes", *words)
    assert result.exit_code == 0
    assert "AGREES  with vllm-fcfs: " in result.stdout


def test_bad_input(run):
    assert run("infer").exit_code == 2
    assert run("infer", "reference").exit_code == 2
    assert run("infer", "reference", "--policy", "vllm-fcfs", "--workloads", 0).exit_code == 2
    assert run("infer", "reference", "--policy", "vllm-fcfs", "--json", "/nowhere/at/all.json").exit_code == 2
    assert run("infer", "no-such-engine").exit_code == 2


def test_what_is_kept_agrees_and_every_profile_was_run():
    reports = kept()
    assert {r.policy for r in reports if r.engine == "reference"} == set(PROFILES)
    for r in reports:
        where = (r.engine, r.version, r.policy)
        assert r.verdict == "conforms", where
        assert {rule for _, rule, _ in r.unexplained} == {*r.known}, where
        for row in r.knobs:
            assert row.expected in row.possible, (where, row.knob)
            assert row.declared == getattr(PROFILES[r.policy].contract, row.knob).name, (where, row.knob)


def test_reports_are_merged_by_engine_version_and_policy(tmp_path, monkeypatch, capsys):
    one, *rest = kept()
    newer = msgspec.structs.replace(one, seed=99)
    assert merged([one, *rest], [newer]) == (newer, *rest)
    assert any(f"### {one.engine} {one.version}, {one.policy}" == part for part in page([one]))
    file = tmp_path / "inferred.json"
    monkeypatch.setattr("preempt_oracle.inferred.FILE", file)
    (tmp_path / "one.json").write_bytes(msgspec.json.encode(one))
    assert main([str(tmp_path / "one.json")]) == 0
    assert kept(file) == (one,)
    (tmp_path / "bad.json").write_text("{")
    assert main([str(tmp_path / "bad.json")]) == 2
    assert "cannot use a report" in capsys.readouterr().err
    assert FILE.is_file()
