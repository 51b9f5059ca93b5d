"""Fuzzing real schedulers: what is known of them is found from the generic strategies alone, and comes out short."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from preempt_oracle.cli.main import cli
from preempt_oracle.cli.scenarios import read
from preempt_oracle.engines import environments


def ready(name: str, version: str) -> None:
    if environments.ready(name, version) is None:
        pytest.skip(f"{name} is absent: preempt-oracle engines install {name}=={version}")


@pytest.mark.light
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nano_vllm_forks_fault_is_found_within_ten_seconds_and_six_actions(seed, tmp_path, monkeypatch):
    ready("nano-vllm-fork", "20260210")
    monkeypatch.chdir(tmp_path)
    words = ["fuzz", "nano-vllm-fork==20260210", "--time", "10s", "--seed", str(seed), "--save", "found", "-x"]
    result = CliRunner().invoke(cli, [*words, "--json", "report.json"], prog_name="preempt-oracle")
    assert result.exit_code == 1, result.output
    (told,) = json.loads((tmp_path / "report.json").read_bytes())["inputs"]
    rules = {f["rule"]: f["note"] for f in told["failures"]}
    assert rules
    for rule, note in rules.items():
        found = re.match(r"(\d+) actions, ", note)
        assert found, (rule, note)
        assert int(found[1]) <= 6, (rule, note)
    for file in (tmp_path / "found").glob("*.toml"):
        assert len(read(str(file)).script) <= 6
        again = CliRunner().invoke(cli, ["replay", str(file)], prog_name="preempt-oracle")
        assert again.exit_code == 1
        assert f"STILL FAILS  {read(str(file)).rule} on nano-vllm-fork==20260210" in again.output


@pytest.mark.vllm
def test_two_versions_of_vllm_part_where_the_profile_says(tmp_path, monkeypatch):
    """0.31.0 ends its pass at a self-preemption, 0.33.0 goes on: the deviation `after_self` of vllm-priority."""
    for version in ("0.31.0", "0.33.0"):
        ready("vllm", version)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "after-self.toml").write_text(
        'policy = "vllm-priority"\nblocks = 4\npage_size = 2\nmax_running = 3\nbudget = 4\nmax_length = 4\n'
        'script = """\nadd a prompt=0 max=3\nadd b prompt=0 max=3 priority=2\nstep\nadd c prompt=0 max=2\n"""\n'
    )
    words = ["diff", "vllm==0.31.0", "vllm==0.33.0", "--scenario", "after-self.toml"]
    result = CliRunner().invoke(cli, words, prog_name="preempt-oracle")
    assert result.exit_code == 1, result.output
    assert re.search(r"!= +grants, in order +\[a\] +\[a c\]", result.output)
