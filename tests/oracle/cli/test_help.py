"""Starting: quick, and without what only the commands need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from preempt_oracle.cli.main import COMMANDS

HEAVY = {"rich", "hypothesis", "z3", "msgspec", "attrs", "attr", "backports", "preempt_spec", "preempt_properties"}
PROBE = """
import sys
from preempt_oracle.cli.main import cli
try:
    cli.main({words!r}, prog_name="preempt-oracle")
except SystemExit as end:
    assert end.code == 0, end.code
names = {{name.split(".")[0] for name in sys.modules}} | {{m for m in sys.modules if m.startswith("preempt_oracle.")}}
print("\\n" + " ".join(sorted(names)))
"""


def loaded(*words: str) -> tuple[str, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(words=list(words))], capture_output=True, text=True, check=True
    )
    *shown, names = done.stdout.rstrip().split("\n")
    return "\n".join(shown), set(names.split())


def test_help_lists_every_command_and_imports_nothing_they_need():
    shown, names = loaded("--help")
    assert all(f"  {name} " in shown for name in COMMANDS)
    assert not names & HEAVY
    assert {n for n in names if n.startswith("preempt_oracle.")} == {"preempt_oracle.cli", "preempt_oracle.cli.main"}


def test_the_help_of_a_command_imports_no_engine_and_no_terminal_library():
    _, names = loaded("conform", "--help")
    assert not names & HEAVY


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help(run, name):
    result = run(name, "--help")
    assert result.exit_code == 0
    assert "Usage: preempt-oracle" in result.stdout


def test_version_names_the_package_and_the_specification(run):
    result = run("--version")
    assert result.exit_code == 0
    assert "specification" in result.stdout


@pytest.mark.parametrize("words", [("--nonsense",), ("nonsense",), ("check",), ("conform", "--seed", "x"), ("record",)])
def test_wrong_usage_is_exit_2(run, words):
    result = run(*words)
    assert result.exit_code == 2
    assert "Error" in result.stderr
