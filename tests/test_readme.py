"""The README says what is so: its outputs are what the commands print, its links lead somewhere.

Its commands, and those of docs/, are run or parsed by test_pages.py.

`python tests/test_readme.py` writes the outputs anew (the light engines must be installed).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from preempt_oracle.cli.main import cli
from preempt_oracle.engines import environments

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
COMMAND = (sys.executable, "-m", "preempt_oracle")


def block(command: str) -> str:
    """The output that the README shows for a command."""
    found = re.search(
        rf"<!-- output: {re.escape(command)} -->\n```text\n(.*?)```\n<!-- end -->", README.read_text(), re.S
    )
    assert found, f"README shows no output of {command}"
    return found[1]


def matrix() -> str:
    env = {k: v for k, v in os.environ.items() if k != "COLUMNS"}  # as in a pipe, whoever runs the tests
    done = subprocess.run(
        [*COMMAND, "matrix"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())


@pytest.mark.light
def test_make_conform_prints_what_the_readme_shows():
    for name, version in (("vidur", "0.0.26"), ("nano-vllm-fork", "20260210")):
        if environments.ready(name, version) is None:
            pytest.skip(f"{name} is absent: preempt-oracle engines install {name}=={version}")
    assert matrix() == block("make conform")


def test_the_readme_counts_the_tests_that_make_test_runs(request):
    session, shown = request.session, block("make test")
    whole = {str(ROOT / "tests"), str(ROOT)} & {str(Path(a).resolve()) for a in session.config.args or ["tests"]}
    if not whole or "not slow" not in (session.config.option.markexpr or "") or session.config.option.keyword:
        assert re.search(r"\d+ passed", shown)
        return  # a part of the tests is run: there is nothing to count
    assert f"{len(session.items)} passed" in shown, f"make test runs {len(session.items)} tests"


def test_a_rule_can_be_looked_up_as_shown():
    result = CliRunner().invoke(cli, ["rules", "victim/choice"])
    assert result.exit_code == 0
    assert "arg-max" in result.output


def test_every_link_leads_somewhere():
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README.read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def write(command: str, output: str) -> None:
    text = README.read_text()
    old = block(command)
    README.write_text(
        text.replace(
            f"<!-- output: {command} -->\n```text\n{old}```", f"<!-- output: {command} -->\n```text\n{output}```"
        )
    )


if __name__ == "__main__":
    write("make conform", matrix())
    ran = subprocess.run(["make", "-s", "test"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    write("make test", "".join(line + "\n" for line in ran.splitlines()[-4:]))
