"""The version matrix, with the reference scheduler in the place of an engine's versions."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from attrs import evolve

from preempt_oracle import version_matrix as job
from preempt_oracle.adapters.inprocess import InProcess
from preempt_oracle.adapters.protocol import HarnessError, Transport
from preempt_oracle.adapters.reference import ReferenceEngine
from preempt_oracle.found import Finding
from preempt_oracle.report import engine_matrix as engines
from preempt_oracle.report import version_matrix as report
from preempt_oracle.report.words import console
from preempt_oracle.verdict import Verdict
from preempt_oracle.version_matrix import VersionMatrix, Wanted
from preempt_properties.known_bad.queues import RequeuesAtTheBack
from preempt_properties.scenario import Scenario, loads

SHOWS = """
engine = "reference==2"
rule = "queue/front"
policy = "vllm-fcfs"
blocks = 4
page_size = 2
max_running = 3
budget = 16
max_length = 8
script = '''
add a prompt=1,2,3 max=5
add b prompt=4,5,6 max=5
add c prompt=7,8,9 max=5
'''
"""


class Back(ReferenceEngine):
    scheduler = RequeuesAtTheBack


class Started:
    """Which versions were started, in order. Version 2 is broken, 3 is not installed."""

    def __init__(self) -> None:
        self.versions: list[str] = []

    def __call__(self, wanted: Wanted) -> Transport:
        self.versions.append(wanted.version)
        if wanted.version == "3":
            raise HarnessError("reference==3 is not installed: preempt-oracle engines install reference==3\nmore")
        engine = Back() if wanted.version == "2" else ReferenceEngine()
        return InProcess(engine, f"reference=={wanted.version}", "preempt_spec")


def shown() -> Scenario:
    return loads(SHOWS)


def wanted(*versions: str, workloads: int = 15) -> list[Wanted]:
    return [Wanted("reference", v, "vllm-fcfs", 1, workloads) for v in versions]


def finding(*versions: str) -> Finding:
    return Finding("F9", "older/back", shown(), versions, ("vllm-fcfs",))


def run(keep: Path, started: Started, found: list[Finding], rows: list[Wanted]) -> tuple[VersionMatrix, list[str]]:
    said: list[str] = []
    return job.run(rows, found, started, keep, said.append), said


def test_a_version_has_what_was_found_in_it_and_the_others_do_not(tmp_path):
    matrix, said = run(tmp_path, Started(), [finding("2")], wanted("1", "2"))
    assert [row.odd for row in matrix.rows] == [(), ()]
    assert matrix.verdict is Verdict.CONFORMS
    clean, broken = (row.result for row in matrix.rows)
    assert clean is not None
    assert broken is not None
    assert (clean.verdict, broken.verdict, set(broken.broken)) == ("conforms", "violates", {"queue/front"})
    assert [r.replays[0].outcome for r in (clean, broken)] == ["holds", "queue/front"]
    assert "2/2 reference 2 vllm-fcfs: violates queue/front" in said[-1]


@pytest.mark.parametrize(
    ("found", "odd"),
    [
        ([], "breaks queue/front"),
        (["1"], "breaks queue/front, and this version is not known to have it"),
    ],
)
def test_what_nobody_knows_of_is_odd(tmp_path, found, odd):
    matrix, _ = run(tmp_path, Started(), [finding(*found)] if found else [], wanted("1", "2"))
    assert matrix.verdict is Verdict.VIOLATES
    assert any(odd in sentence for sentence in matrix.rows[1].odd)
    if found:
        assert "F9 (older/back): holds; it should break queue/front" in matrix.rows[0].odd


def test_what_was_run_is_kept_and_a_second_run_goes_on(tmp_path):
    first = Started()
    run(tmp_path, first, [], wanted("1"))
    second = Started()
    matrix, said = run(tmp_path, second, [], wanted("1", "4"))
    assert (first.versions, second.versions) == (["1"], ["4"])
    assert [row.kept for row in matrix.rows] == [True, False]
    assert "1/2 reference 1 vllm-fcfs: kept" in said[0]


@pytest.mark.long
@pytest.mark.parametrize("change", ["workloads", "code", "damage"])
def test_a_result_of_something_else_is_run_again(tmp_path, monkeypatch, change):
    run(tmp_path, Started(), [], wanted("1"))
    rows = wanted("1", workloads=16 if change == "workloads" else 15)
    if change == "code":
        monkeypatch.setattr(job, "code", lambda: "other")
    if change == "damage":
        (tmp_path / rows[0].file).write_text("{")
    again = Started()
    run(tmp_path, again, [], rows)
    assert again.versions == ["1"]


def searching(*versions: str, seconds: float = 1.5) -> list[Wanted]:
    return [evolve(row, fuzz=seconds) for row in wanted(*versions)]


@pytest.mark.long
def test_a_search_is_told_beside_the_row_and_held_to_the_same_findings(tmp_path, capsys):
    matrix, said = run(tmp_path, Started(), [finding("2")], searching("1", "2"))
    assert [row.odd for row in matrix.rows] == [(), ()]
    clean, broken = (row.result.searched if row.result else None for row in matrix.rows)
    assert clean is not None
    assert broken is not None
    assert min(clean.workloads, clean.steps, clean.preemptions, clean.states) > 10
    assert clean.broken == {}
    assert broken.broken["queue/front"].actions <= 6
    assert "15 workloads, and 1.5 s of search" in said[0]
    report.show(console(), matrix)
    assert "broken: queue/front after" in capsys.readouterr().out
    page = engines.page([matrix])
    assert "searched for 1.5 s" in page
    assert "| reference | 2 | vllm-fcfs |" in page.split("## Fuzz")[1]
    assert "`queue/front` (F9) after" in page.split("## Fuzz")[1]
    unknown = job.compare(wanted("1")[0], evolved(matrix.rows[1].result, broken={}, verdict="conforms"), [])
    assert unknown.odd == (f"a search broke queue/front, with {broken.broken['queue/front'].actions} actions",)


def evolved(result: job.Result | None, **changes: object) -> job.Result:
    assert result is not None
    return msgspec.structs.replace(result, **changes)


@pytest.mark.long
def test_a_search_that_is_kept_is_not_made_again_unless_another_is_asked_for(tmp_path):
    run(tmp_path, Started(), [], searching("1", seconds=0.3))
    for rows, versions in ((wanted("1"), []), (searching("1", seconds=0.3), []), (searching("1", seconds=0.4), ["1"])):
        again = Started()
        run(tmp_path, again, [], rows)
        assert again.versions == versions


def test_a_version_that_cannot_be_run_is_exit_3_and_keeps_the_rest(tmp_path, capsys):
    matrix, _ = run(tmp_path, Started(), [], wanted("1", "3", "4"))
    assert matrix.verdict is Verdict.BROKEN
    assert [bool(row.error) for row in matrix.rows] == [False, True, False]
    assert not (tmp_path / wanted("3")[0].file).exists()
    report.show(console(), matrix)
    out = capsys.readouterr().out
    assert "preempt-oracle engines install reference==3" in out
    assert "not run" in out


def test_an_interrupted_run_keeps_what_is_done(tmp_path):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    run(tmp_path, Started(), [], wanted("1"))
    matrix = job.run(wanted("1", "4"), [], Started(), tmp_path, lambda _: None, interrupt)
    assert matrix.interrupted
    assert len(matrix.rows) == 1
    assert matrix.verdict.exit_code == 4


def test_the_page_and_the_json_form(tmp_path):
    matrix, _ = run(tmp_path, Started(), [finding("2")], wanted("1", "2"))
    page = report.page(matrix)
    assert "| 2 | vllm-fcfs |" in page
    assert "| [F9](../oracle/preempt_oracle/vectors/scenarios/older/back.toml) | queue/front | ok | FAIL |" in page
    assert "| drafts | yes | yes |" in page
    data = json.loads(report.document(matrix))
    assert (data["format"], data["as_expected"], data["exit_code"]) == ("preempt-oracle-version-matrix", True, 0)
    assert [row["result"]["verdict"] for row in data["rows"]] == ["conforms", "violates"]


def test_the_page_of_all_engines(tmp_path):
    matrix, _ = run(tmp_path, Started(), [finding("2")], wanted("1", "2"))
    page = engines.page([matrix])
    assert "| reference | 1 | vllm-fcfs |" in page
    assert "| violates `queue/front` (F9) |" in page
    assert "| reference | `queue/front` | 2; of 2 |" in page
    unknown, _ = run(tmp_path, Started(), [], wanted("2"))
    assert "| violates `queue/front` (not known) |" in engines.page([unknown])
    assert json.loads(engines.document([matrix, unknown]))["exit_code"] == 1
    data = json.loads(engines.document([matrix]))
    assert (data["format"], data["as_expected"], data["exit_code"]) == ("preempt-oracle-engine-matrix", True, 0)


def test_variants_of_an_engine_are_rows_of_their_own(tmp_path):
    """With an option that makes another engine of it, other findings are expected, and other files kept."""
    plain, mended = (Wanted("vidur", "1", "vidur-vllm", options=o) for o in ((), (("repair", True),)))
    assert plain.file != mended.file
    assert mended.words == ("--option", "repair=true")
    scenarios = (loads(SHOWS.replace("policy", f"{o}policy", 1)) for o in ("", "options = { repair = true }\n"))
    of_plain, of_mended = (Finding("F9", "x", s, ("1",), ("vidur-vllm",)) for s in scenarios)
    assert [w.expects(f) for w in (plain, mended) for f in (of_plain, of_mended)] == [True, False, False, True]


def test_a_kept_result_says_what_it_is(tmp_path):
    (row,) = wanted("1")
    run(tmp_path, Started(), [], [row])
    kept = msgspec.json.decode((tmp_path / row.file).read_bytes())
    assert (kept["engine"], kept["version"], kept["policy"], kept["seed"]) == ("reference", "1", "vllm-fcfs", 1)
