"""`preempt-oracle zoo`, as a user runs it: the matrix, the report, and the exit codes."""

from __future__ import annotations

import io
import json

import pytest

from preempt_oracle.cli import progress
from preempt_oracle.cli.progress import Ticker
from preempt_properties.known_bad.queues import RequeuesAtTheBack


def test_the_matrix_of_one_scheduler(run, here):
    result = run("zoo", "--only", "RequeuesAtTheBack", "--jobs", "1", "--json", "out.json")
    assert result.exit_code == 0, result.output
    rows = [line for line in result.stdout.splitlines() if line.startswith("RequeuesAtTheBack")]
    assert len(rows) == len(RequeuesAtTheBack.policies)
    assert all("queue/front" in row for row in rows)
    assert "6 of 6 searches end with the rule that is broken, for 1 scheduler" in result.stdout
    report = json.loads((here / "out.json").read_text(encoding="utf-8"))
    assert [k["profile"] for k in report["kills"]] == list(RequeuesAtTheBack.policies)
    assert {(k["rule"], tuple(k["named"]), k["group"], k["fault"]) for k in report["kills"]} == {
        ("queue/front", ("queue/front",), "G", "")
    }
    assert report["kills"][0]["reports"][0] == "vllm #41951"
    assert (report["right"], report["wrong"], report["seed"]) == ([], [], 0)


def test_another_rule_is_exit_1(run, monkeypatch):
    monkeypatch.setattr(RequeuesAtTheBack, "rule", "queue/order")
    result = run("zoo", "--only", "RequeuesAtTheBack", "--jobs", "1")
    assert result.exit_code == 1
    assert "0 of 6 searches" in result.stdout
    assert result.stdout.count("wrong: RequeuesAtTheBack") == 6


def test_json_alone(run):
    result = run("zoo", "--only", "queue/front", "--only", "RequeuesAtTheBack", "--jobs", "1", "--json", "-")
    assert result.exit_code == 0
    assert {k["rule"] for k in json.loads(result.stdout)["kills"]} == {"queue/front"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--only", "Nobody\x1b[31m"), "neither a rule nor a known-bad scheduler nor a group"),
        (("--jobs", "0"), "--jobs"),
        (("--seed", "-1"), "--seed"),
        (("--only", "I", "--json", "no/such/folder/x.json"), "there is no folder"),
    ],
)
def test_bad_input_is_exit_2(run, here, arguments, says):
    result = run("zoo", *arguments)
    assert result.exit_code == 2
    assert says in result.output
    assert "\x1b" not in result.output


def test_progress_on_no_terminal_is_a_line_now_and_then(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    now = iter([0.0, 4.0, 11.0, 12.0])
    monkeypatch.setattr(progress, "monotonic", lambda: next(now))
    with Ticker(3, "searches") as tick:
        tick("first", False)
        tick("second", True)
        tick("third", False)
    assert stream.getvalue() == "2 of 3 searches, 11 s, 1 wrong; last second\n"
