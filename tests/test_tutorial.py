"""The tutorial is so: its scheduler has the faults it tells of, its commands print what it shows, its fixes mend it.

`python tests/test_tutorial.py` writes the outputs anew.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tutorial.md"
FIRST = ROOT / "examples" / "tutorial" / "scheduler.py"
COMMAND = (sys.executable, "-m", "preempt_oracle")
CONFORM = ("conform", "--adapter", "adapter:Adapter", "--policy", "vllm-fcfs", "--seed", "0", "--workloads", "100")
PART = re.compile(r"<!-- (output: \S+|fix) -->\n```(?:text|diff)\n(.*?)```\n", re.S)


def run(folder: Path, *words: str, fine: bool = True) -> str:
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")}
    # PYTHONPATH: where this repository is not installed, its folders are on the path of the tests.
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode == 0) is fine, done.stdout + done.stderr
    return "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())


def scaffold(folder: Path) -> Path:
    run(folder, *COMMAND, "new-adapter", "mine")
    return folder / "mine"


def said_by_pytest(mine: Path) -> str:
    """What pytest says, without its times and versions."""
    installed = any(found.value == "preempt_oracle.pytest_plugin" for found in entry_points(group="pytest11"))
    plugin = () if installed else ("-p", "preempt_oracle.pytest_plugin")
    out = run(mine, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin)
    shown = out[out.index("collected") :]
    return re.sub(r"=+ (.*?) in .*s =+\n", r"\1\n", shown)


def failure(out: str, rule: str) -> str:
    found = re.search(rf"^FAILED {rule} .*?\n(?=\n)", out, re.M | re.S)
    assert found, out
    return found[0]


def mended(source: str, diff: str) -> str:
    """The source with one hunk of the page applied."""
    lines = diff.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] in " -")
    new = "".join(line[1:] for line in lines if line[0] in " +")
    assert source.count(old) == 1, old
    return source.replace(old, new)


def body(file: Path) -> str:
    """Without its docstring."""
    return file.read_text().partition("from __future__")[2]


def told(folder: Path, see: Callable[[str, str], None]) -> None:
    """Follow the page. `see(marker, output)` is told of each output, in order."""
    mine = scaffold(folder)
    scheduler = mine / "scheduler.py"
    right = body(scheduler)
    out = ""
    for marker, text in PART.findall(PAGE.read_text()):
        what = marker.removeprefix("output: ")
        if what == "pytest":
            see(marker, said_by_pytest(mine))
            scheduler.write_text(FIRST.read_text())
            out = run(mine, *COMMAND, *CONFORM, fine=False)
        elif what == "fix":
            scheduler.write_text(mended(scheduler.read_text(), text))
            out = run(mine, *COMMAND, *CONFORM, fine=body(scheduler) == right)
        elif what == "verdict":
            found = re.search(r"^CONFORMS.*?\n(?=\n)", out, re.M | re.S)
            assert found, out
            see(marker, found[0])
        else:
            see(marker, failure(out, what))
    assert body(scheduler) == right, "the mended scheduler is not the one that new-adapter writes"


def shown() -> list[tuple[str, str]]:
    return [(marker, text) for marker, text in PART.findall(PAGE.read_text()) if marker != "fix"]


@pytest.mark.long
def test_the_commands_print_what_the_page_shows(tmp_path):
    seen: list[tuple[str, str]] = []
    told(tmp_path, lambda marker, output: seen.append((marker, output)))
    assert seen == shown()


def test_the_commands_that_are_run_are_those_of_the_page():
    page = PAGE.read_text()
    for words in (("new-adapter", "mine"), CONFORM):
        assert f"\n$ preempt-oracle {shlex.join(words)}\n" in page


def test_every_fault_it_tells_of_is_another():
    rules = [marker for marker, _ in shown()]
    assert len({*rules}) == len(rules) == 7


if __name__ == "__main__":
    import tempfile

    def write(marker: str, output: str) -> None:
        before = rf"(<!-- {re.escape(marker)} -->\n```text\n).*?(```\n)"
        PAGE.write_text(re.sub(before, lambda m: m[1] + output + m[2], PAGE.read_text(), count=1, flags=re.S))

    with tempfile.TemporaryDirectory() as folder:
        told(Path(folder), write)
