"""The page in a real browser: what it says in words, and that its script runs without a complaint."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from preempt_oracle.cli.main import cli
from preempt_oracle.report.cause import CAUSES, CONSEQUENCES
from preempt_spec.rules import RULES

pytestmark = pytest.mark.browser
#: Known-bad schedulers, and the rule that each breaks: five kinds of fault.
ZOO = {
    "RequeuesAtTheBack": "queue/front",
    "KeepsComputedTokens": "victim/reset",
    "LeaksAtPreemption": "pool/conserve",
    "ChecksTheFirstChunkOnly": "queue/admission",
    "RepeatsATokenAfterResume": "output/stream",
}


@pytest.mark.parametrize("scheduler", ZOO)
def test_a_page_says_what_broke_and_what_comes_of_it(opened, scheduler, tmp_path, monkeypatch):
    from click.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    name = f"faulty_{scheduler.lower()}"
    (tmp_path / f"{name}.py").write_text(
        "from preempt_oracle.adapters.reference import ReferenceEngine\n"
        "from preempt_properties.known_bad import ZOO\n\n\n"
        "class Faulty(ReferenceEngine):\n"
        f"    scheduler = next(v for v in ZOO if v.__name__ == {scheduler!r})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = ["fuzz", "--adapter", f"{name}:Faulty", "--policy", "vllm-fcfs", "--seed", "1", "--workloads", "300", "-x"]
    result = CliRunner().invoke(cli, [*words, "--html", "page.html"])
    assert result.exit_code == 1, result.output
    text, console = opened(tmp_path / "page.html", tmp_path / "profile")
    assert console == []
    rule = ZOO[scheduler]
    said = [rule, RULES[rule].sentence, CAUSES[rule], CONSEQUENCES[rule]]
    said += ["The shortened run that breaks", "a rule breaks here", "running: ", "waiting: "]
    for words_of in said:
        assert " ".join(words_of.split()) in text, words_of
    assert re.search(r"What happened\. .*\b[a-g]\b", text)  # which request
    assert re.search(r"in step \d+", text)


def test_a_page_of_many_steps_opens(opened, tmp_path, monkeypatch):
    import sys

    from click.testing import CliRunner

    root = Path(__file__).parents[3]
    monkeypatch.setattr(sys, "path", [*sys.path, str(root / "bench")])
    from decode_trace import generate  # type: ignore[import-not-found]

    monkeypatch.chdir(tmp_path)
    generate(Path("long.jsonl"), 2000)
    assert CliRunner().invoke(cli, ["check", "long.jsonl", "--html", "page.html"]).exit_code == 0
    assert (tmp_path / "page.html").stat().st_size < 4_000_000
    text, console = opened(tmp_path / "page.html", tmp_path / "profile")
    assert console == []
    assert "step 1999" in text
    assert "1560 blocks of 16" in text
