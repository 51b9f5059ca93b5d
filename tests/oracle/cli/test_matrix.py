"""The main job: verdicts beside the expected ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from preempt_oracle import matrix as job
from preempt_oracle.adapters.inprocess import InProcess
from preempt_oracle.adapters.protocol import HarnessError, Session
from preempt_oracle.adapters.reference import ReferenceEngine
from preempt_oracle.matrix import Expected, Key, LiveEngine, Matrix, Outcome
from preempt_oracle.report import matrix as report
from preempt_oracle.report.words import console
from preempt_oracle.verdict import Verdict
from preempt_spec import SPEC_VERSION

TRACES = Key("traces", "reference", SPEC_VERSION, "vllm-fcfs")
LIVE = Key("live", "reference", SPEC_VERSION, "vllm-fcfs")
CONFORMS = Outcome("conforms")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "WORKLOADS", 20)


@pytest.fixture
def vectors(here: Path, good: Path, bad: Path, idle: Path) -> dict[str, Path]:
    folder = here / "vectors"
    (folder / "broken").mkdir(parents=True)
    shutil.copy(good, folder / "good.jsonl")
    shutil.copy(idle, folder / "idle.jsonl")
    shutil.copy(bad, folder / "broken" / "back.jsonl")
    return job.shipped(folder)


def reference() -> Session:
    return Session(InProcess(ReferenceEngine(), "reference", "preempt_spec"))


def judge(expected: Expected, vectors: dict[str, Path], *live: LiveEngine) -> Matrix:
    return job.run(expected, vectors, live, lambda _: None)


def shown(matrix: Matrix, capsys: pytest.CaptureFixture[str]) -> str:
    report.show_matrix(console(), matrix)
    return capsys.readouterr().out


def test_all_as_expected_is_exit_0_and_fits_100_columns(vectors, capsys):
    expected = Expected({TRACES: CONFORMS, LIVE: CONFORMS}, {"broken/back.jsonl": "queue/front"})
    matrix = judge(expected, vectors, LiveEngine(LIVE, reference))
    assert matrix.verdict is Verdict.CONFORMS
    text = shown(matrix, capsys)
    table = text.split("ok conforms")[0]
    assert max(map(len, table.splitlines())) <= 100
    assert table.count("(conforms)") == 2
    assert "2 traces" in table  # several traces are one row: what one lacks another has
    assert "20 workloads" in table
    assert "hand-broken copies: 1 of 1 break exactly the rule" in text
    assert text.endswith("2 of 2 verdicts as recorded in vectors/expected.toml: all as expected\n")


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        (Expected({TRACES: Outcome("violates", ("queue/front",))}), "conforms; expected violates queue/front"),
        (Expected({}), "conforms; expected nothing: add a row"),
        (Expected({TRACES: CONFORMS, LIVE: CONFORMS}), "nothing to judge; expected conforms"),
    ],
)
def test_what_is_not_as_expected_is_exit_1(vectors, capsys, expected, said):
    expected = Expected(expected.rows, {"broken/back.jsonl": "queue/front"})
    matrix = judge(expected, vectors)
    assert matrix.verdict is Verdict.VIOLATES
    text = shown(matrix, capsys)
    assert said in text
    assert "EXPECTED" in text
    assert text.endswith("NOT as expected\n")


def test_a_violation_may_be_expected_but_not_another_rule(vectors, capsys):
    one = {"broken/back.jsonl": vectors["broken/back.jsonl"]}
    assert judge(Expected({TRACES: Outcome("violates", ("queue/front",))}), one).verdict is Verdict.CONFORMS
    other = judge(Expected({TRACES: Outcome("violates", ("queue/order",))}), one)
    assert other.verdict is Verdict.VIOLATES
    assert "FAILED queue/front" in shown(other, capsys)  # in full: nobody has looked at it yet


@pytest.mark.parametrize("rule", ["queue/order", "pool/conserve"])
def test_a_broken_copy_must_break_its_own_rule(vectors, capsys, rule):
    matrix = judge(Expected({TRACES: CONFORMS}, {"broken/back.jsonl": rule}), vectors)
    assert matrix.verdict is Verdict.VIOLATES
    assert f"broken/back.jsonl: breaks queue/front; expected {rule}" in shown(matrix, capsys)


def test_a_broken_copy_that_breaks_nothing_or_is_gone(vectors, capsys):
    copies = {"broken/back.jsonl": "queue/front", "good.jsonl": "queue/front"}
    matrix = judge(Expected({TRACES: Outcome("inconclusive")}, copies), vectors)
    assert "good.jsonl: breaks nothing; expected queue/front" in shown(matrix, capsys)
    copies = {"broken/back.jsonl": "queue/front", "gone.jsonl": "queue/front"}
    gone = judge(Expected({TRACES: CONFORMS}, copies), vectors)
    assert gone.verdict is Verdict.UNREADABLE


def test_a_trace_that_cannot_be_read_is_exit_2(vectors):
    text = vectors["good.jsonl"].read_text()
    vectors["good.jsonl"].write_text(text[: len(text) // 2])
    matrix = judge(Expected({TRACES: CONFORMS}, {"broken/back.jsonl": "queue/front"}), vectors)
    assert matrix.verdict is Verdict.UNREADABLE
    assert Verdict.UNREADABLE.exit_code == 2


def test_an_engine_that_is_not_there_is_exit_3_and_keeps_the_rest(vectors, capsys):
    def absent() -> Session:
        raise HarnessError("x==1 is not installed: preempt-oracle engines install x==1")

    expected = Expected({TRACES: CONFORMS, LIVE: CONFORMS}, {"broken/back.jsonl": "queue/front"})
    matrix = judge(expected, vectors, LiveEngine(LIVE, absent))
    assert matrix.verdict is Verdict.BROKEN
    text = shown(matrix, capsys)
    assert "preempt-oracle engines install x==1" in text
    assert "(expected)" in text


def test_json_and_markdown(vectors):
    matrix = judge(Expected({TRACES: CONFORMS}, {"broken/back.jsonl": "queue/front"}), vectors)
    data = json.loads(report.document(matrix))
    assert (data["format"], data["as_expected"], data["exit_code"]) == ("preempt-oracle-matrix", True, 0)
    assert data["rows"][0]["families"]["queue"] == "ok"
    assert f"| reference {SPEC_VERSION} | vllm-fcfs | traces, 2 traces | ok |" in report.markdown(matrix)


def test_the_command_without_engines_names_what_installs_them(run, here):
    result = run("matrix", "--json", "m.json")
    assert result.exit_code == 3
    assert "preempt-oracle engines install vidur==0.0.26" in result.stdout
    assert "preempt-oracle engines install nano-vllm-fork==20260210" in result.stdout
    assert json.loads((here / "m.json").read_bytes())["as_expected"] is False


def test_the_shipped_expectations_can_be_read_and_match_the_files():
    expected = job.expectations()
    assert set(expected.copies) <= set(job.shipped())
    assert {k.engine for k in expected.rows if k.source == "live"} == {"vidur", "nano-vllm-fork"}


ROW = '[[row]]\nengine="e"\nversion="1"\npolicy="p"\nsource="live"\nverdict="conforms"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("row = [", "expected.toml"),
        (ROW.replace('policy="p"\n', ""), "row 1: policy: missing"),
        (ROW + "extra=1\n", "row 1: extra: unknown field"),
        (ROW + ROW, "row 2: e 1 (p, live) is there already"),
        (ROW.replace("live", "dead"), "row 1: source: 'dead'"),
        (ROW.replace("conforms", "fine"), "row 1: verdict: 'fine'"),
        (ROW + 'broken=["x/y"]\n', "row 1: broken: there is no rule 'x/y'"),
        ('[broken]\n"f"="x/y"\n', "there is no rule 'x/y'"),
        ("nonsense = 1\n", "nonsense: unknown field"),
    ],
)
def test_expectations_that_cannot_be_read(here, text, message):
    (here / "expected.toml").write_text(text)
    with pytest.raises(job.ExpectedError) as raised:
        job.expectations(here / "expected.toml")
    assert message in str(raised.value)
