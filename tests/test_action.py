"""The GitHub action and workflows that are handed out: valid by published schemas, and the action's script runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ACTION = ROOT / "examples" / "github-action" / "action.yml"
WORKFLOW = ACTION.with_name("workflow.yml")
SCAFFOLDS = sorted((ROOT / "oracle" / "preempt_oracle" / "scaffold").glob("*/.github/workflows/*.yml"))


def read(file: Path) -> dict[str, Any]:
    data = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert isinstance(data, dict)
    return data


@pytest.mark.parametrize(
    ("schema", "file"),
    [("github-actions", ACTION), ("github-workflows", WORKFLOW), *(("github-workflows", s) for s in SCAFFOLDS)],
    ids=lambda x: x if isinstance(x, str) else x.relative_to(ROOT).as_posix(),
)
def test_it_is_valid_by_the_published_schema(schema, file):
    words = ("-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(file))
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(SCAFFOLDS) == 2


def test_every_input_is_declared_and_used_and_none_is_part_of_a_script():
    action = read(ACTION)
    steps = action["runs"]["steps"]
    assert all("shell" in step for step in steps if "run" in step)
    assert not any("${{" in step.get("run", "") for step in steps)
    used = set(re.findall(r"\$\{\{ inputs\.([a-z-]+) \}\}", ACTION.read_text()))
    assert used == set(action["inputs"])
    assert all(("default" in i) is not i.get("required", False) for i in action["inputs"].values())
    [given] = [s["with"] for s in read(WORKFLOW)["jobs"]["preemption"]["steps"] if s["uses"].startswith("./")]
    assert set(given) <= used


def judge(folder: Path, command: str, *arguments: str) -> tuple[int, str, str]:
    """Run the action's script as a runner does. Returns exit code, standard output and the step's outputs."""
    [script] = [s["run"] for s in read(ACTION)["runs"]["steps"] if s.get("id") == "judge"]
    (folder / "bin").mkdir()
    program = folder / "bin" / "preempt-oracle"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m preempt_oracle "$@"\n')
    program.chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "COMMAND": command,
        "ARGUMENTS": "\n".join((*arguments, "")),
        "GITHUB_OUTPUT": str(folder / "outputs"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
    }
    shell = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
    done = subprocess.run(shell, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    outputs = folder / "outputs"
    return done.returncode, done.stdout, outputs.read_text() if outputs.exists() else ""


@pytest.mark.long
def test_the_script_judges_and_leaves_its_reports(tmp_path):
    trace = ROOT / "oracle/preempt_oracle/vectors/traces/fault-unwritten-pages.vllm-0.33.0.jsonl"
    code, said, outputs = judge(tmp_path, "check", str(trace), "$(touch hit); touch hit", "`touch hit`")
    assert (code, outputs) == (2, "exit-code=2\n")  # two of these are no traces, and nothing else
    assert not (tmp_path / "hit").exists()
    assert "::error title=preempt-oracle resume/publish::" in said
    reports = tmp_path / "preempt-oracle-report"
    assert {p.name for p in reports.iterdir()} == {"junit.xml", "report.json", "page.html"}
    assert json.loads((reports / "report.json").read_text())["exit_code"] == 2
    assert len(ET.parse(reports / "junit.xml").getroot()) == 3
    assert "resume/publish" in (tmp_path / "summary").read_text()


@pytest.mark.long
@pytest.mark.parametrize("command", ["conform", "fuzz"])
def test_the_script_drives_an_engine(tmp_path, command):
    words = ("reference", "--policy", "vllm-fcfs", "--seed", "0", "--workloads", "30")
    code, _, outputs = judge(tmp_path, command, *words)
    assert (code, outputs) == (0, "exit-code=0\n")


def test_the_script_refuses_another_command(tmp_path):
    assert judge(tmp_path, "engines; true")[0] == 2
