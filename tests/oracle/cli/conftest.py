"""The command line in this process, small traces made on the fly, and adapters that misbehave."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from preempt_oracle.cli.main import cli

Run = Callable[..., Result]

#: Adapters for --adapter. `Back` breaks queue/front, and only that.
ADAPTERS = """
    import itertools
    from preempt_oracle.adapters.reference import ReferenceEngine
    from preempt_oracle.engines.child import Refused
    from preempt_properties.known_bad.queues import RequeuesAtTheBack

    class Back(ReferenceEngine):
        scheduler = RequeuesAtTheBack

    class Raises(ReferenceEngine):
        def step(self):
            raise RuntimeError("[bold]boom[/bold] \\x1b[31m\\nin two lines")

    class RaisesLate(Back):
        starts = itertools.count()
        def start(self, config):
            self.late = next(self.starts) > 60
            return super().start(config)
        def step(self):
            if self.late:
                raise RuntimeError("late")
            return super().step()

    class Refuses(ReferenceEngine):
        def start(self, config):
            raise Refused("only on Sundays")

    class RefusesMost(ReferenceEngine):
        def start(self, config):
            if config["max_running"] != 4:
                raise Refused("max_running must be 4")
            return super().start(config)

    class Interrupted(Back):
        steps = itertools.count()
        def step(self):
            if next(self.steps) == 400:
                raise KeyboardInterrupt
            return super().step()

    class Lies(ReferenceEngine):
        def step(self):
            return {**super().step(), "tokens": ["many"]}
"""


@pytest.fixture
def run() -> Run:
    """Run a command line; the result has `exit_code`, `stdout`, `stderr` and `output`. A traceback fails the test."""

    def invoke(*words: object, input: bytes | None = None) -> Result:
        result = CliRunner().invoke(cli, [str(w) for w in words], input=input, prog_name="preempt-oracle")
        assert "Traceback" not in result.output
        assert isinstance(result.exception, SystemExit | None), result.exception
        return result

    return invoke


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in; no engine is installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREEMPT_ORACLE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COLUMNS", raising=False)
    return tmp_path


@pytest.fixture
def adapters(here: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a module with the classes of `ADAPTERS`; a fresh one, with counters of its own."""
    name = f"adapters_{abs(hash(request.node.nodeid))}"
    (here / f"{name}.py").write_text(textwrap.dedent(ADAPTERS))
    monkeypatch.syspath_prepend(here)
    return name


SHORT = '''
policy = "vllm-fcfs"
blocks = 4
page_size = 2
max_running = 3
budget = 16
max_length = 8
script = """
add a prompt=1,2,3 max=5
add b prompt=4,5 max=5
add c prompt=6,7 max=5
"""
'''


@pytest.fixture
def scenario(here: Path) -> Path:
    """A scenario in which a victim must go in front of a request that waits."""
    (here / "short.toml").write_text(SHORT)
    return here / "short.toml"


@pytest.fixture
def good(here: Path, scenario: Path, run: Run) -> Path:
    """A trace of the reference that conforms by itself."""
    assert run("record", "reference", "--scenario", scenario, "-o", "good.jsonl").exit_code == 0
    return here / "good.jsonl"


@pytest.fixture
def idle(here: Path, scenario: Path, run: Run) -> Path:
    """A trace in which nobody is preempted."""
    (here / "one.toml").write_text("".join(x for x in SHORT.splitlines(True) if x[:5] not in ("add b", "add c")))
    assert run("record", "reference", "--scenario", "one.toml", "-o", "idle.jsonl").exit_code == 0
    return here / "idle.jsonl"


@pytest.fixture
def bad(here: Path, adapters: str, scenario: Path, run: Run) -> Path:
    """A trace that breaks queue/front."""
    result = run("record", "--adapter", f"{adapters}:Back", "--scenario", scenario, "-o", "bad.jsonl")
    assert result.exit_code == 0
    assert "queue/front breaks" in result.stderr
    return here / "bad.jsonl"
