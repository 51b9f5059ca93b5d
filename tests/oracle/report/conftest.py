"""Judged inputs to render: one that broke a rule with hostile words, one that held, one that could not be read; and a
browser to look at what was rendered."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from preempt_oracle.divergence import Compared, Divergence
from preempt_oracle.report.judged import Judged
from preempt_oracle.trace import wire
from preempt_oracle.verdict import Failure, Tally, Verdict
from preempt_spec.policies.profiles.vllm import VLLM_PRIORITY
from preempt_spec.rules import Violation

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--virtual-time-budget=4000"),
    *("--enable-logging=stderr", "--v=0"),
)
HOSTILE = "[red]b[/red] \x1b[31m\x00\ufffe"


@pytest.fixture(autouse=True)
def no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The width is ours, whatever the tests run in."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def violated() -> Judged:
    tally = Tally("eng\x07ine", "1.0", "vllm-priority", frozenset({"place"}), 3, 10, 20, 2, 1)
    tally.exercised = Counter({"queue/front": 2, "output/stream": 9})
    tally.times = Counter({"queue/front": 2})
    tally.deviations = VLLM_PRIORITY.deviations
    books = (
        Compared("b: index in waiting", "1", "0", True),
        Compared("running", None, "[a]"),
        Compared("request b", None, "waiting; 3 known; 0 computed; table []"),
    )
    events = (wire.Step(4, ("a",), (1,)), wire.EngineError("engine", "E", HOSTILE))
    violation = Violation("queue/front", f"{HOSTILE} was requeued at 1")
    divergence = Divergence("the requeue of b", books)
    replay = "preempt-oracle replay f.toml"
    tally.failures.append(Failure(violation, "f.toml, event 9", 4, events, replay, divergence, "note"))
    return Judged("eng==1", tally, seed=7, workloads=3, outside={HOSTILE: 1})


@pytest.fixture
def unreadable() -> Judged:
    return Judged("x\x1b.jsonl", None, "x.jsonl:3: tokens: cut off", Verdict.UNREADABLE)


@pytest.fixture
def hung() -> Judged:
    return Judged("cmd", None, "cmd did not answer step within 60 s\n  | last words", Verdict.BROKEN)


@pytest.fixture
def opened() -> Callable[..., tuple[str, list[str]]]:
    """Opens a page: its text after its script ran, and what the console says. `more`: words for the browser."""
    return _opened


def _opened(file: Path, profile: Path, *more: str, fragment: str = "") -> tuple[str, list[str]]:
    """The text of the page after its script ran, and what the console says."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *more, "--dump-dom", f"{file.as_uri()}{fragment}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    body = re.sub(r"<(style|script)[^>]*>.*?</\1>", "", done.stdout, flags=re.S)
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body)).replace("&amp;", "&")
    return text, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
