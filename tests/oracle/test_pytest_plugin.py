"""The conformance suite inside of pytest, run as somebody else's project runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
PLUGIN = "preempt_oracle.pytest_plugin"
ADAPTER = ("--preempt-adapter", "adapter:Adapter", "--preempt-policy", "vllm-fcfs", "--preempt-workloads", "20")
FAULT = ("self.waiting.insert(0, victim)", "self.waiting.append(victim)")  # breaks queue/front


def environment() -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COLUMNS"))}
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    return env


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    installed = any(found.value == PLUGIN for found in entry_points(group="pytest11"))
    plugin = () if installed else ("-p", PLUGIN)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin, *words]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def project(tmp_path):
    """A small correct scheduler and its adapter, without any test."""
    for name in ("adapter.py", "scheduler.py"):
        (tmp_path / name).write_text((files("preempt_oracle") / "scaffold" / "python" / name).read_text())
    return tmp_path


def break_it(project: Path, right: str = FAULT[0], wrong: str = FAULT[1]) -> None:
    source = (project / "scheduler.py").read_text()
    assert source.count(right) == 1
    (project / "scheduler.py").write_text(source.replace(right, wrong))


def test_unused_it_imports_nothing_heavy():
    heavy = "{'msgspec', 'click', 'rich', 'hypothesis', 'preempt_spec', 'preempt_properties'}"
    code = f"import sys, {PLUGIN}; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True, timeout=60)


def test_a_rule_is_a_test_and_what_was_not_tested_is_no_pass(project):
    done = run(project, *ADAPTER, "-rs", "-v")
    assert done.returncode == 0, done.stdout
    assert "preempt::queue/front[plain] PASSED" in done.stdout
    assert "preempt::conclusive PASSED" in done.stdout
    assert "preempt::resume/publish SKIPPED" in done.stdout
    assert "preempt::victim/minimal[plain] SKIPPED" in done.stdout
    assert "seed 0, 20 workloads a family" in done.stdout
    assert "collected 35 items" in done.stdout


def test_a_broken_rule_fails_with_its_sentence_its_state_and_a_command(project):
    break_it(project)
    done = run(project, *ADAPTER, "--junitxml=out.xml")
    assert done.returncode == 1
    assert "1 failed" in done.stdout
    for told in (
        "FAILED queue/front (POLICY): A victim re-enters the queue where the profile says.",
        "vllm-fcfs puts it at 0",
        "preempt-oracle replay preempt-oracle-failures/",
        "shortest in these bounds",
    ):
        assert told in done.stdout
    assert "Traceback" not in done.stdout
    assert len([*(project / "preempt-oracle-failures").iterdir()]) == 1
    cases = ET.parse(project / "out.xml").getroot().iter("testcase")
    failed = [case.get("name") for case in cases if case.find("failure") is not None]
    assert failed == ["queue/front[plain]"]


def test_rules_can_be_selected_and_left_out(project):
    (project / "test_own.py").write_text("def test_own(): pass\n")
    assert "2 passed" in run(project, *ADAPTER, "-k", "queue/front or test_own").stdout
    assert "1 passed, 35 deselected" in run(project, *ADAPTER, "-m", "not preempt").stdout
    one = run(project, *ADAPTER, "test_own.py::test_own").stdout
    assert "1 passed" in one
    assert "collected 1 item" in one


def test_workers_share_them_out(project):
    break_it(project)
    done = run(project, *ADAPTER, "-n", "2")
    assert done.returncode == 1
    assert "1 failed, 25 passed, 9 skipped" in done.stdout


def known(project: Path, rule: str, reason: str = "reason = 'issue 17'") -> tuple[str, str]:
    text = f"""[[known]]
rules = ["{rule}"]
engine = "my-scheduler"
versions = ["1"]
policy = "vllm-fcfs"
where = {{}}
{reason}
"""
    (project / "known.toml").write_text(text)
    return "--preempt-known-failures", "known.toml"


def test_a_known_failure_is_expected_to_fail(project):
    break_it(project)
    done = run(project, *ADAPTER, *known(project, "queue/front"), "-rx")
    assert done.returncode == 0, done.stdout
    assert "preempt::queue/front[plain] - known: issue 17" in done.stdout
    assert "1 xfailed" in done.stdout


def test_one_that_does_not_happen_is_an_error(project):
    done = run(project, *ADAPTER, *known(project, "queue/front"))
    assert done.returncode == 1
    assert "1 failed" in done.stdout
    assert "known.toml:1: rules: queue/front: stale" in done.stdout


@pytest.mark.parametrize(
    ("rule", "reason", "told"),
    [
        ("queue/frnt", "reason = 'x'", "queue/frnt"),
        ("queue/front", "", "reason"),
        ("queue/front", "reason=''", "reason"),
    ],
)
def test_a_file_with_a_mistake_is_refused(project, rule, reason, told):
    done = run(project, *ADAPTER, *known(project, rule, reason))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "known.toml" in done.stderr
    assert told in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--preempt-adapter", "nowhere:Adapter"), "nowhere"),
        (("--preempt-adapter", "adapter"), "MODULE:CLASS"),
        (("--preempt-adapter", "adapter:Adapter", "--preempt-policy", "fifo"), "'fifo' is unknown"),
        (("--preempt-stdio", "/no/such/program"), "/no/such/program"),
        (("--preempt-engine", "reference", "--preempt-adapter", "adapter:Adapter"), "name one engine"),
        (("--preempt-adapter", "adapter:Adapter", "--preempt-workloads", "0"), "preempt-workloads"),
    ],
)
def test_what_cannot_be_driven_is_a_usage_error(project, words, told):
    done = run(project, *words)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_too_little_for_a_verdict_is_no_pass(project):
    source = (project / "adapter.py").read_text()
    (project / "adapter.py").write_text(source.replace('"demote", ', "", 1))
    done = run(project, *ADAPTER)
    assert done.returncode == 1
    assert "1 failed" in done.stdout
    assert "inconclusive" in done.stdout


def test_a_broken_adapter_accuses_nobody(project):
    source = (project / "adapter.py").read_text()
    (project / "adapter.py").write_text(
        source.replace("after, supply, before =", "raise KeyError\n        after, supply, before =")
    )
    done = run(project, *ADAPTER)
    assert done.returncode == 1
    assert "harness broken" in done.stdout
    assert "FAILED live/survives" not in done.stdout


def test_a_crash_of_the_scheduler_is_its_own(project):
    break_it(project, "        self.running.remove(victim)\n", "        self.running.remove(None)\n")
    done = run(project, *ADAPTER)
    assert "FAILED live/survives (MUST)" in done.stdout
    assert "ValueError in scheduler.py" in done.stdout
