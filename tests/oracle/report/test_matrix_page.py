"""The page of a matrix: its structure, what is behind a cell, and that nothing of an engine is ever markup."""

from __future__ import annotations

import re
import sys

import pytest
from attrs import evolve
from click.testing import CliRunner

from preempt_oracle import matrix as job
from preempt_oracle.cli.main import cli
from preempt_oracle.found import listed
from preempt_oracle.matrix import TRACES, VECTORS, Expected, Key, Matrix, Outcome
from preempt_oracle.report.matrix_page.page import page
from preempt_oracle.report.matrix_page.sheet import Sheet, of_matrix, of_versions
from preempt_oracle.report.rulebook import families
from preempt_oracle.version_matrix import Replay, Result, Row, VersionMatrix, Wanted
from preempt_spec.rules import RULES

TRACE = VECTORS / "traces" / "fault-unwritten-pages.vllm-0.33.0.jsonl"
KEY = Key(TRACES, "vllm", "0.33.0", "vllm-priority")
EXPECTED = Expected({KEY: Outcome("violates", ("resume/publish",))}, {})


def traced(expected: Expected = EXPECTED) -> Matrix:
    return job.run(expected, {"one.jsonl": TRACE}, (), lambda _: None)


def versions(**changed: object) -> VersionMatrix:
    """Two versions, of which one could not be run; the other broke a rule, as a finding says."""
    finding = next(f for f in listed("vllm") if "resume/publish" in f.rules and "vllm-priority" in f.policies)
    marks = dict.fromkeys(families(), "ok") | {"resume": "FAIL"}
    given: dict[str, object] = {
        **{"form": 2, "code": "", "spec": "1.0", "engine": "vllm", "version": "0.33.0", "policy": "vllm-priority"},
        **{"seed": 1, "workloads": 300, "date": "2026-11-30", "seconds": 1.0, "verdict": "violates"},
        **{"families": marks, "broken": {"resume/publish": 3}},
        **{"first": {"resume/publish": ("block 5 is findable", "preempt-oracle conform vllm==0.33.0 --seed 3")}},
        **{"replays": (Replay(finding.name, "resume/publish"),), "steps": 9, "preemptions": 2, "resumes": 1},
        **{"outside": {}, "can": (), "deviations": ()},
    }
    result = Result(**{**given, **changed})  # type: ignore[arg-type]
    ran = Row(Wanted("vllm", "0.33.0", "vllm-priority"), result, ("resume/publish",))
    absent = Row(Wanted("vllm", "0.31.0", "vllm-priority"), None, (), (), "vllm==0.31.0 is not installed")
    return VersionMatrix("vllm", (ran, absent), (finding,), False)


def panel(html: str, id: str) -> str:
    found = re.search(rf'<section [^>]*id="{id}".*?</section>', html, re.S)
    assert found, id
    return found[0]


def test_the_structure(snapshot):
    html = page(of_matrix(traced()))
    body = re.sub(r"<style>.*?</style>", "<style>…</style>", html, flags=re.S)
    # Neither where this checkout is nor how it was installed is part of the structure.
    body = re.sub(r"sha256-[\w+/=]+|(?<=content=\"preempt-oracle )[^\"]+", "…", body)
    assert re.sub(r"\S*(?=/traces/)", "vectors", body) == snapshot


def test_a_cell_leads_to_its_rules_findings_and_reproducers():
    html = page(of_matrix(traced()))
    links = re.findall(r'<td><a class="\w+" href="#([\w-]+)"', html)
    assert links == [f"r1-{family}" for family in families()]
    for link in links:
        family = link.removeprefix("r1-")
        told = re.findall(r"<h4><code>([a-z/-]+)</code>", panel(html, link))
        assert sorted(told) == sorted(r.id for r in RULES.values() if r.family == family)
    broken = panel(html, "r1-resume")
    assert broken.index("resume/publish") < broken.index("resume/message")  # what broke comes first
    for words in (
        "violated in 1 run",
        "block 5 is findable by a hash whose KV was never written",
        "preempt-oracle check -- ",
        "<strong>Finding F1.</strong>",
        "preempt-oracle replay oracle/preempt_oracle/vectors/scenarios/",
        " vllm==0.33.0</bdi>",
    ):
        assert words in broken
    assert "Finding" not in panel(html, "r1-pool")
    assert "1 of 1 verdict as recorded" in html


def test_what_is_not_as_expected_is_marked_and_told():
    html = page(of_matrix(traced(Expected({KEY: Outcome("conforms")}, {"gone.jsonl": "queue/front"}))))
    assert '<tr class="odd">' in html
    assert "expected: conforms" in html
    assert "Not as expected: violates resume/publish; expected conforms." in html
    assert "gone.jsonl: gone.jsonl: the file is missing; expected queue/front" in html
    nothing = page(of_matrix(job.run(EXPECTED, {}, (), lambda _: None)))
    assert "nothing to judge" in nothing
    assert f'<td colspan="{len(families())}"></td>' in nothing


def test_versions_have_the_same_page():
    sheet = of_versions([versions()])
    html = page(sheet)
    assert [line.verdict for line in sheet.lines] == ["violates", "not run"]
    broken = panel(html, "r1-resume")
    assert "violated in 3 runs" in broken
    assert "Its scenario: <bdi>broke resume/publish</bdi>." in broken
    assert "vllm==0.31.0 is not installed" in html
    assert "1 of 2 verdicts" in html


def test_the_page_needs_nothing_from_outside_and_runs_nothing():
    html = page(of_matrix(traced()))
    assert "default-src &#39;none&#39;" in html
    assert "<script" not in html
    assert not re.search(r"""src\s*=|href="[^#]|url\(|@import|https?:""", html)


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", "</style><b>", "\u202eabc", "\x1b[31m", "'\"&"])
def test_nothing_of_an_engine_is_markup(hostile):
    def tags(sheet: Sheet) -> list[str]:
        return re.findall(r"</?\w+", page(sheet))

    found = traced()
    [row] = found.rows
    judged = row.judged
    assert judged is not None
    assert judged.tally is not None
    [failure] = judged.tally.failures
    broken = evolve(failure, violation=evolve(failure.violation, message=hostile), replay=hostile)
    judged.tally.failures[:] = [broken]
    bad = evolve(found, rows=(evolve(row, key=evolve(row.key, engine=hostile), judged=judged, size=2),))
    calm = evolve(found, rows=(evolve(row, key=evolve(row.key, engine="nobody"), size=2),))
    assert tags(of_matrix(bad)) == tags(of_matrix(calm))
    told = of_versions([versions(version=hostile, date=hostile, first={"resume/publish": (hostile, hostile)})])
    assert tags(told) == tags(of_versions([versions()]))
    for html in (page(of_matrix(bad)), page(told)):
        assert "\u202e" not in html
        assert "\x1b" not in html


@pytest.mark.parametrize("words", [(), ("vidur",)], ids=["matrix", "matrix vidur"])
def test_a_page_that_cannot_be_made_is_told_of_before_anything_runs(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREEMPT_ORACLE_CACHE", str(tmp_path / "cache"))
    for file in ("-", "no/such/folder.html"):
        refused = CliRunner().invoke(cli, ["matrix", *words, "--html", file])
        assert (refused.exit_code, refused.stdout) == (2, "")
    monkeypatch.delitem(sys.modules, "preempt_oracle.report.timeline.page", raising=False)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = CliRunner().invoke(cli, ["matrix", *words, "--html", "page.html"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pip install 'preempt-oracle[report]'" in result.stderr


def test_the_command_writes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREEMPT_ORACLE_CACHE", str(tmp_path / "cache"))  # no engine is installed
    result = CliRunner().invoke(cli, ["matrix", "vidur", "--versions", "0.0.26", "--html", "page.html"])
    assert result.exit_code == 3
    assert "vidur==0.0.26 is not installed" in (tmp_path / "page.html").read_text()


@pytest.mark.browser
def test_in_a_browser_a_cell_opens_its_panel_without_a_complaint(opened, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page(of_matrix(traced())), encoding="utf-8")
    for fragment in ("", "#r1-resume"):
        text, console = opened(file, tmp_path / "profile", fragment=fragment)
        assert console == []
        assert "vllm 0.33.0" in text
        assert RULES["resume/publish"].sentence in text.replace("&#39;", "'")
