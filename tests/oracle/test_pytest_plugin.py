"""The conformance suite inside of pytest, run as somebody else's project runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib.metadata import entry_points
from importlib.resources import files

import pytest

pytestmark = pytest.mark.long
PLUGIN = "preempt_oracle.pytest_plugin"
ADAPTER = ("--preempt-adapter", "adapter:Adapter", "--preempt-policy", "vllm-fcfs", "--preempt-workloads", "20")
FAULT = ("self.waiting.insert(0, victim)", "self.waiting.append(victim)")  # breaks queue/front


def environment() -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COLUMNS"))}
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    return env


INSTALLED = any(found.value == PLUGIN for found in entry_points(group="pytest11"))


class Project:
    """A small correct scheduler and its adapter, without any test."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.path, self.pytester = pytester.path, pytester
        for name in ("adapter.py", "scheduler.py"):
            (self.path / name).write_text((files("preempt_oracle") / "scaffold" / "python" / name).read_text())

    def run(self, *words: str, alone: bool = False) -> pytest.RunResult:
        """In this process, which is quicker than a new one; or in one of its own."""
        plugin = () if INSTALLED else ("-p", PLUGIN)
        run = self.pytester.runpytest_subprocess if alone else self.pytester.runpytest_inprocess
        return run("-p", "no:cacheprovider", "-p", "no:hypothesispytest", *plugin, *words)

    def change(self, file: str, right: str, wrong: str) -> None:
        source = (self.path / file).read_text()
        assert right in source
        (self.path / file).write_text(source.replace(right, wrong, 1))


@pytest.fixture
def project(pytester):
    return Project(pytester)


def test_unused_it_imports_nothing_heavy():
    heavy = "{'msgspec', 'click', 'rich', 'hypothesis', 'preempt_spec', 'preempt_properties'}"
    code = f"import sys, {PLUGIN}; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True, timeout=60)


def test_a_rule_is_a_test_and_what_was_not_tested_is_no_pass(project):
    done = project.run(*ADAPTER, "-rs", "-v")
    assert done.ret == 0, done.stdout.str()
    assert "preempt::queue/front[plain] PASSED" in done.stdout.str()
    assert "preempt::conclusive PASSED" in done.stdout.str()
    assert "preempt::resume/publish SKIPPED" in done.stdout.str()
    assert "preempt::victim/minimal[plain] SKIPPED" in done.stdout.str()
    assert "seed 0, 20 workloads a family" in done.stdout.str()
    assert "collected 35 items" in done.stdout.str()


def test_a_broken_rule_fails_with_its_sentence_its_state_and_a_command(project):
    project.change("scheduler.py", *FAULT)
    done = project.run(*ADAPTER, "--junitxml=out.xml")
    assert done.ret == 1
    assert "1 failed" in done.stdout.str()
    for told in (
        "FAILED queue/front (POLICY): A victim re-enters the queue where the profile says.",
        "vllm-fcfs puts it at 0",
        "preempt-oracle replay preempt-oracle-failures/",
        "shortest in these bounds",
    ):
        assert told in done.stdout.str()
    assert "Traceback" not in done.stdout.str()
    assert len([*(project.path / "preempt-oracle-failures").iterdir()]) == 1
    cases = ET.parse(project.path / "out.xml").getroot().iter("testcase")
    failed = [case.get("name") for case in cases if case.find("failure") is not None]
    assert failed == ["queue/front[plain]"]


def test_rules_can_be_selected_and_left_out(project):
    (project.path / "test_own.py").write_text("def test_own(): pass\n")
    assert "2 passed" in project.run(*ADAPTER, "-k", "queue/front or test_own").stdout.str()
    assert "1 passed, 35 deselected" in project.run(*ADAPTER, "-m", "not preempt").stdout.str()
    one = project.run(*ADAPTER, "test_own.py::test_own").stdout.str()
    assert "1 passed" in one
    assert "collected 1 item" in one


def test_workers_share_them_out(project):
    project.change("scheduler.py", *FAULT)
    # Not in this process, which may be a worker itself.
    done = project.run(*ADAPTER, "-n", "2", alone=True)
    assert done.ret == 1
    assert "1 failed, 24 passed, 10 skipped" in done.stdout.str()


def known(project: Project, rule: str, reason: str = "reason = 'issue 17'") -> tuple[str, str]:
    text = f"""[[known]]
rules = ["{rule}"]
engine = "my-scheduler"
versions = ["1"]
policy = "vllm-fcfs"
where = {{}}
{reason}
"""
    (project.path / "known.toml").write_text(text)
    return "--preempt-known-failures", "known.toml"


def test_a_known_failure_is_expected_to_fail(project):
    project.change("scheduler.py", *FAULT)
    done = project.run(*ADAPTER, *known(project, "queue/front"), "-rx")
    assert done.ret == 0, done.stdout.str()
    assert "preempt::queue/front[plain] - known: issue 17" in done.stdout.str()
    assert "1 xfailed" in done.stdout.str()


def test_one_that_does_not_happen_is_an_error(project):
    done = project.run(*ADAPTER, *known(project, "queue/front"))
    assert done.ret == 1
    assert "1 failed" in done.stdout.str()
    assert "known.toml:1: rules: queue/front: stale" in done.stdout.str()


@pytest.mark.parametrize(
    ("rule", "reason", "told"),
    [
        ("queue/frnt", "reason = 'x'", "queue/frnt"),
        ("queue/front", "", "reason"),
        ("queue/front", "reason=''", "reason"),
    ],
)
def test_a_file_with_a_mistake_is_refused(project, rule, reason, told):
    done = project.run(*ADAPTER, *known(project, rule, reason))
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "known.toml" in done.stderr.str()
    assert told in done.stderr.str()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--preempt-adapter", "nowhere:Adapter"), "nowhere"),
        (("--preempt-adapter", "adapter"), "MODULE:CLASS"),
        (("--preempt-adapter", "adapter:Adapter", "--preempt-policy", "fifo"), "has no policy fifo"),
        (("--preempt-adapter", "adapter:Adapter", "--preempt-seed", "-1"), "preempt-seed"),
        (("--preempt-engine", "reference"), "--policy is needed"),
        (("--preempt-stdio", "/no/such/program"), "/no/such/program"),
        (("--preempt-engine", "reference", "--preempt-adapter", "adapter:Adapter"), "name one engine"),
        (("--preempt-adapter", "adapter:Adapter", "--preempt-workloads", "0"), "preempt-workloads"),
    ],
)
def test_what_cannot_be_driven_is_a_usage_error(project, words, told):
    done = project.run(*words)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert told in done.stderr.str()
    assert "Traceback" not in done.stderr.str()


def test_too_little_for_a_verdict_is_no_pass(project):
    project.change("adapter.py", '"demote", ', "")
    done = project.run(*ADAPTER)
    assert done.ret == 1
    assert "1 failed" in done.stdout.str()
    assert "inconclusive" in done.stdout.str()


def test_a_broken_adapter_accuses_nobody(project):
    project.change("adapter.py", "after, supply, before =", "raise KeyError\n        after, supply, before =")
    done = project.run(*ADAPTER)
    assert done.ret == 1
    assert "harness broken" in done.stdout.str()
    assert "FAILED live/survives" not in done.stdout.str()


def test_a_crash_of_the_scheduler_is_its_own(project):
    project.change("scheduler.py", "        self.running.remove(victim)\n", "        self.running.remove(None)\n")
    done = project.run(*ADAPTER)
    assert "FAILED live/survives (MUST)" in done.stdout.str()
    assert "ValueError in scheduler.py" in done.stdout.str()
