"""`new-adapter` writes a project whose tests pass (those of the Python one: tests/test_tutorial.py), over nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from preempt_oracle.cli.main import cli
from preempt_oracle.suite import broken


def write(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["new-adapter", *words])
    return result.exit_code if result.exception is None else getattr(result.exception, "code", 99), result.output


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_it_writes_a_project_for_each_kind(tmp_path):
    both = {"README.md", "pytest.ini", "test_adapter.py", ".github/workflows/preempt-oracle.yml"}
    assert write(str(tmp_path / "py"))[0] == 0
    assert files(tmp_path / "py") == both | {"adapter.py", "scheduler.py"}
    assert write(str(tmp_path / "js"), "--stdio")[0] == 0
    assert files(tmp_path / "js") == both | {"scheduler.js"}


def test_it_overwrites_nothing(tmp_path):
    (tmp_path / "scheduler.py").write_text("mine")
    code, said = write(str(tmp_path))
    assert code != 0
    assert files(tmp_path) == {"scheduler.py"}
    assert (tmp_path / "scheduler.py").read_text() == "mine"
    assert "scheduler.py exists: nothing was written" in said


def test_a_place_where_nothing_can_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    code, said = write(str(tmp_path / "file" / "inside"))
    assert code != 0
    assert "Not a directory" in said or "File exists" in said


@pytest.mark.long
def test_the_one_in_javascript_conforms_and_its_faults_are_seen(tmp_path, monkeypatch):
    if shutil.which("node") is None:
        pytest.skip("node is absent")
    assert write(str(tmp_path / "js"), "--stdio")[0] == 0
    monkeypatch.chdir(tmp_path / "js")
    assert broken(stdio="node scheduler.js", policy="vllm-fcfs", workloads=40) == frozenset()
    source = (tmp_path / "js" / "test_adapter.py").read_text()
    space: dict[str, object] = {"__file__": str(tmp_path / "js" / "test_adapter.py")}
    exec(compile(source, "test_adapter.py", "exec"), space)
    (mark,) = space["test_a_fault_is_seen"].pytestmark  # type: ignore[attr-defined]
    for number, (right, wrong, rule) in enumerate(mark.args[1]):
        (folder := tmp_path / str(number)).mkdir()
        space["test_a_fault_is_seen"](folder, right, wrong, rule)  # type: ignore[operator]
