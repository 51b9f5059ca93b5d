"""What README.md and docs/ show can be done: every command in them is run, or at least understood.

The convention. A block of code with a line `$ preempt-oracle …` is run, page by page, in one folder that has
examples/ and oracle/; `$ cd` is followed. A command ends with the code that its comment names (`# exit 1`), or with 0.
A comment right above a block says what is otherwise:

    <!-- live -->            each of its commands is a test by itself, under the marker of the engine that it names
    <!-- needs: WHAT -->     what no test has (a model, a published package): its commands are only parsed
    <!-- run by: TEST -->    that test runs it, and compares its output
    <!-- generated: … -->    `python -m preempt_oracle.docs --check` runs it
    <!-- long -->            it takes more than a second: the page has the marker `long`
    <!-- output -->          what the last command above printed; `…` stands for what is left out
    <!-- file: NAME -->      a file of the repository, word for word, or else one that the reader writes
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from attrs import frozen
from click.testing import CliRunner

from preempt_oracle.cli.main import COMMANDS, cli
from preempt_oracle.engines import environments

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"(?:^<!-- ([^\n]*?) -->\n)?^```(\w*)\n(.*?)^```$", re.M | re.S)
PROMPT = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.M)
NAME = "preempt-oracle"

#: Engine → the marker of its live tests, where that is not its name.
MARKERS = {"vidur": "light", "nano-vllm-fork": "light"}


@frozen
class Block:
    """A block of code. `marker`: the comment above it."""

    marker: str
    language: str
    text: str

    @property
    def kind(self) -> str:
        """The marker's first words."""
        return self.marker.partition(":")[0]

    @property
    def shown(self) -> bool:
        """Its `$` begins no command: an output, a file, or what is run elsewhere."""
        return self.kind in ("output", "file", "figures", "fix")

    @property
    def commands(self) -> list[tuple[list[str], int]]:
        """The words of each command, and the exit code it ends with."""
        found = []
        for line in PROMPT.findall(self.text):
            said, _, comment = re.sub(r"\\\n\s*", "", line).partition("  #")
            code = re.search(r"\bexit (\d)", comment)
            found.append((shlex.split(said), int(code[1]) if code else 0))
        return found


def blocks(page: Path) -> list[Block]:
    return [Block(m[1] or "", m[2], m[3]) for m in FENCE.finditer(page.read_text(encoding="utf-8"))]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def pages() -> Iterator[object]:
    """Those that have something to run."""
    for page in PAGES:
        kinds = [b.kind for b in blocks(page) if b.commands and not b.shown]
        if {"", "long"} & {*kinds}:
            yield pytest.param(page, id=name(page), marks=[pytest.mark.long] if "long" in kinds else [])


def pattern(shown: str) -> re.Pattern[str]:
    """What an output must match. A line `…` stands for any lines, `…` in a line for any text."""
    lines = ["(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + "\n" for line in shown.splitlines()]
    return re.compile("".join(lines))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout as far as the pages use it; modules that are imported from it are forgotten."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "oracle").symlink_to(ROOT / "oracle")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    # A command that draws its seed draws this one: what a page says is so each time, or never.
    monkeypatch.setattr("secrets.randbelow", lambda _: 1)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}
    yield tmp_path
    for new in {*sys.modules} - before:
        if str(getattr(sys.modules[new], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[new]


def run(words: list[str], code: int, monkeypatch: pytest.MonkeyPatch) -> str:
    match words:
        case ["cd", where]:
            monkeypatch.chdir(where)
            return ""
        case ["pytest", *rest]:
            env = {k: v for k, v in os.environ.items() if k not in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")}
            env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
            ran = [sys.executable, "-m", "pytest", *rest]
            done = subprocess.run(ran, env=env, capture_output=True, text=True, timeout=300, check=False)
            assert done.returncode == code, done.stdout + done.stderr
            return done.stdout
        case [program, *rest] if program.rpartition("/")[2] == NAME:
            if any(word.startswith("node ") for word in rest) and shutil.which("node") is None:
                pytest.skip("node is absent")
            result = CliRunner().invoke(cli, rest, prog_name=NAME)
            assert isinstance(result.exception, SystemExit | None), result.exception
            assert result.exit_code == code, f"{shlex.join(words)}\n{result.output}"
            return "".join(line.rstrip() + "\n" for line in result.stdout.splitlines())
    raise AssertionError(f"cannot run {shlex.join(words)}: mark its block with <!-- needs: … -->")


@pytest.mark.parametrize("page", [*pages()])
def test_the_commands_of_a_page_do_what_it_says(page, folder, monkeypatch):
    printed = ""
    for block in blocks(page):
        if block.marker == "output":
            assert pattern(block.text).fullmatch(printed), f"{block.text}\nis not what was printed:\n{printed}"
        elif block.kind == "file":
            file = block.marker.removeprefix("file: ")
            if not (ROOT / file).is_file():
                Path(file).write_text(block.text)
        elif block.kind in ("", "long"):
            for words, code in block.commands:
                printed = run(words, code, monkeypatch)


def engines(words: list[str]) -> list[tuple[str, str]]:
    """The engines that a command names, with their versions."""
    return [environments.requirement(word) for word in words if word.partition("==")[0] in environments.ENGINES]


def live() -> Iterator[object]:
    """The commands of the blocks that are `live`, each once. One that names no engine is `long`."""
    seen: set[str] = set()
    for page in PAGES:
        for words, code in (c for b in blocks(page) if b.kind == "live" for c in b.commands):
            command = shlex.join(words[1:])
            if command not in seen:
                seen.add(command)
                markers = {MARKERS.get(engine, engine) for engine, _ in engines(words)} or {"long"}
                marks = [getattr(pytest.mark, marker) for marker in markers]
                yield pytest.param(words, code, id=f"{name(page)}: {command}", marks=marks)


@pytest.mark.parametrize(("words", "code"), [*live()])
def test_a_command_that_drives_an_engine_ends_as_its_page_says(words, code, folder, monkeypatch):
    for engine, version in engines(words):
        if environments.ready(engine, version) is None:
            pytest.skip(f"{engine} is absent: preempt-oracle engines install {engine}=={version}")
    run(words, code, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_of_a_page_can_be_parsed(page):
    for block in blocks(page):
        if block.shown:
            continue
        bare = [line for line in block.text.splitlines() if re.match(rf"(\S*=\S* )*(\S*/)?{NAME} ", line)]
        assert bare == [], "a command begins with `$ `"
        if block.kind == "run by":
            assert (ROOT / block.marker.removeprefix("run by: ")).is_file()
        for words, _ in block.commands:
            if words[0].rpartition("/")[2] == NAME:
                parsed(words[1:])


def parsed(words: list[str]) -> None:
    """Raises ClickException for what its command does not understand."""
    name, *rest = words
    command = cli.get_command(click.Context(cli), name)
    assert command is not None, f"there is no command {name}"
    if isinstance(command, click.Group):
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context(name, rest)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_and_file_that_a_page_names_is_there(page):
    text = page.read_text(encoding="utf-8")
    commands = re.findall(rf"`{NAME} ([a-z][a-z-]*)", text)
    assert [word for word in commands if word not in COMMANDS] == []
    plugin = (ROOT / "oracle" / "preempt_oracle" / "pytest_plugin.py").read_text(encoding="utf-8")
    assert [option for option in re.findall(r"--preempt-[a-z-]+", text) if f'"{option}"' not in plugin] == []
    for block in blocks(page):
        file = ROOT / block.marker.removeprefix("file: ")
        if block.kind == "file" and file.is_file():
            assert block.text == file.read_text(encoding="utf-8")


def test_the_bounds_are_those_of_the_code():
    from preempt_oracle.shortest import MOST, TINY

    page = (ROOT / "docs" / "bounds.md").read_text()
    assert f"More than {MOST} candidates" in page
    assert f"a pool of {TINY[0]}, {TINY[1]} or {TINY[2]} blocks" in page
