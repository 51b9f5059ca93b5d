"""Annotations and the step summary: what a trace says is never a command of the runner, nor markup."""

from __future__ import annotations

import pytest
from attrs import evolve

from preempt_oracle.check import check
from preempt_oracle.matrix import VECTORS
from preempt_oracle.report.github import notes, summary
from preempt_oracle.report.judged import Judged
from preempt_oracle.verdict import Verdict

TRACE = VECTORS / "traces" / "fault-unwritten-pages.vllm-0.33.0.jsonl"


def judged() -> Judged:
    return Judged(TRACE.name, check(TRACE))


def test_a_broken_rule_is_an_error_with_its_sentence_and_the_command():
    [line] = notes([judged()])
    assert line.startswith("::error title=preempt-oracle resume/publish::block 5 is findable by a hash")
    assert "%0ANo published hash outlives a cancelled write" in line
    assert "%0ATo see it again: preempt-oracle check -- " in line
    text = summary([judged()])
    assert "| violates | vllm 0.33.0 | vllm-priority |" in text
    assert "### `resume/publish` broken" in text


def test_what_is_known_hides_nothing_that_is_not():
    one = judged()
    assert one.tally is not None
    [f] = one.tally.failures
    one.tally.failures[:] = [evolve(f, known="as everybody knows"), f, f]
    assert [line.split(" ")[0] for line in notes([one])] == ["::warning", "::error"]


@pytest.mark.parametrize(
    "hostile", ["a\n::error::b", "%0A::warning::c", "x\r\n| y |", "</td><script>", "[a](http://b)"]
)
def test_what_a_trace_says_stays_text(hostile):
    one = judged()
    assert one.tally is not None
    [f] = one.tally.failures
    one.tally.failures[:] = [evolve(f, violation=evolve(f.violation, message=hostile), where=hostile)]
    lines = list(notes([one]))
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert "\r" not in lines[0]
    assert "%250A" in lines[0] or "%0A::warning" not in hostile
    text = summary([evolve(one, source=hostile)])
    assert "<script>" not in text
    assert "](" not in text
    assert len(text.splitlines()) == len(summary([judged()]).splitlines())


def test_unreadable_input_and_an_inconclusive_one_are_told():
    [line] = notes([Judged("x.jsonl", error="x.jsonl:3: cut off\nmore", fault=Verdict.UNREADABLE)])
    assert line == "::error title=preempt-oracle unreadable::x.jsonl: x.jsonl:3: cut off"
    calm = Judged("calm", check(VECTORS / "traces" / "outside-lone-request.vllm-0.33.0.jsonl"))
    assert any(line.startswith("::warning title=preempt-oracle inconclusive::calm: ") for line in notes([calm]))


def test_the_commands_print_annotations_and_write_the_summary(tmp_path, monkeypatch):
    from click.testing import CliRunner

    from preempt_oracle.cli.main import cli

    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    result = CliRunner().invoke(cli, ["check", str(TRACE), "--github"])
    assert result.exit_code == 1
    assert "\n::error title=preempt-oracle resume/publish::" in result.stdout
    assert "### `resume/publish` broken" in (tmp_path / "summary.md").read_text()
    words = ["conform", "reference", "--policy", "vllm-fcfs", "--seed", "1", "--workloads", "3", "--github"]
    assert CliRunner().invoke(cli, words).exit_code in (0, 4)
    assert (tmp_path / "summary.md").read_text().count("## preempt-oracle") == 2
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "summary.md"))
    assert CliRunner().invoke(cli, ["check", str(TRACE), "--github"]).exit_code == 2
