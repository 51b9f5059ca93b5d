"""`prove`: the table, the exit codes, the files, and the second solver."""

from __future__ import annotations

import importlib
import json

import pytest

from preempt_oracle import prove as proving
from preempt_oracle import second_solver
from preempt_oracle.prove import UnknownTheorem, fails, rendered, select
from preempt_oracle.second_solver import Second, recheck
from preempt_properties.theorems import THEOREMS
from preempt_properties.theorems.theorem import Kind
from preempt_properties.z3 import pool
from preempt_properties.z3.verdict import Outcome, Verdict

PROVED = next(t.id for t in THEOREMS.values() if t.kind is Kind.PROVED and t.family == "swap")
FALSE = next(t.id for t in THEOREMS.values() if t.kind is Kind.FALSE and t.shows)

WRONG = """
from preempt_properties.theorems.theorem import Registry, Theorem, positive
def late(x):
    while True:
        pass
claims = {"wrong/refuted": lambda x: x > 1, "wrong/late": late, "wrong/fine": lambda x: x > 0}
THEOREMS = Registry(
    Theorem(id=id, sentence="So.", parameters={"x": positive("s")}, claim=claim) for id, claim in claims.items()
)
"""


def test_theorems_are_proved_and_shown(run, here):
    result = run("prove", PROVED, FALSE)
    assert result.exit_code == 0, result.output
    assert "2 theorems: all stand" in result.stdout
    assert "  at " in result.stdout
    assert all(f"    {name}: " in result.stdout for name in THEOREMS[FALSE].shows)


def test_every_theorem_is_listed_once(run):
    result = run("prove", "--list")
    listed = [line.split()[:2] for line in result.stdout.splitlines()]
    assert listed == [[t.id, t.kind.value] for t in THEOREMS.values()]
    assert result.exit_code == 0


def test_a_family_is_listed(run):
    assert all(line.startswith("swap/") for line in run("prove", "swap", "--list").stdout.splitlines())


@pytest.mark.parametrize("id", [PROVED, FALSE, "measured/n101-prefill-recovered", "break-even/t08-faster-gpu"])
def test_a_number_is_enough_in_either_case(run, id):
    number = id.partition("/")[2].partition("-")[0]
    for word in (number, number.upper()):
        listed = [line.split()[0] for line in run("prove", word, "--list").stdout.splitlines()]
        assert id in listed
        assert all(f"/{number}-" in other for other in listed)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("t4",), "near it: t"),
        ((PROVED[:-2],), f"near it: {PROVED}"),
        (("\x1b[31m",), "there is no theorem"),
        (("swap", "--list", "--second"), "goes with no other option"),
        (("swap", "--json", "no/such/folder/x"), "there is no folder"),
        (("swap", "--smt2", "file"), "file"),
    ],
)
def test_usage(run, here, words, message):
    (here / "file").write_text("")
    result = run("prove", *words)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(("module", "extra"), [("z3", "properties"), ("cvc5", "dev")])
def test_an_absent_extra_is_named(run, monkeypatch, module, extra):
    monkeypatch.setattr(proving, "find_spec", lambda name: None if name == module else object())
    result = run("prove", PROVED, "--second")
    assert result.exit_code == 2
    assert f"pip install 'preempt-oracle[{extra}]'" in result.stderr


@pytest.fixture
def wrong(here, monkeypatch) -> None:
    """Other theorems, of which one is wrong and one hangs."""
    (here / "wrong_theorems.py").write_text(WRONG)
    monkeypatch.setenv("PYTHONPATH", str(here))
    monkeypatch.syspath_prepend(here)
    others = importlib.import_module("wrong_theorems").THEOREMS

    examine_all = pool.examine_all
    monkeypatch.setattr(
        proving, "examine_all", lambda ids, tell: examine_all(ids, source="wrong_theorems", budget=0.3, tell=tell)
    )
    monkeypatch.setattr(select, "__defaults__", (others,))


@pytest.mark.long
def test_a_theorem_that_does_not_stand_is_exit_1_and_harms_no_other(run, wrong):
    result = run("prove", "--json", "-", "--smt2", "files")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["format"] == "preempt-oracle-theorems"
    assert not report["stands"]
    outcomes = {row["id"]: (row["outcome"], row["stands"]) for row in report["theorems"]}
    assert outcomes == {
        "wrong/refuted": ("refuted", False),
        "wrong/late": ("unknown", False),
        "wrong/fine": ("proved", True),
    }
    text = run("prove").stdout
    assert "2 DO NOT STAND" in text
    assert "why: not done in 0.3 s of processor time" in text


def test_exact_values_are_in_the_json(run, here):
    assert run("prove", FALSE, "--json", "report.json").exit_code == 0
    [row] = json.loads((here / "report.json").read_bytes())["theorems"]
    assert {name: x["unit"] for name, x in row["point"].items()} == {
        name: p.unit for name, p in THEOREMS[FALSE].parameters.items()
    }
    assert row["shows"].keys() == THEOREMS[FALSE].shows.keys()
    assert (row["id"], row["kind"], row["outcome"], row["stands"]) == (FALSE, "false", "false", True)


def test_files_are_written_and_the_second_solver_agrees(run, here):
    pytest.importorskip("cvc5")
    result = run("prove", PROVED, FALSE, "--smt2", "new/folder", "--second")
    assert result.exit_code == 0, result.output
    assert sorted(p.name for p in (here / "new/folder").iterdir()) == sorted(
        f"{id.replace('/', '.')}.smt2" for id in (PROVED, FALSE)
    )
    assert "cvc5 agrees with 2 of 2 theorems" in result.stdout


@pytest.mark.parametrize(
    ("asserted", "expected", "answer", "wrong"),
    [
        ("(assert (> x 0.0))", "sat", "sat", False),
        ("(assert (> x 0.0))", "unsat", "sat", True),
        ("(assert (and (> x 0.0) (< x 0.0)))", "unsat", "unsat", False),
        ("(assert (> y 0.0))", "unsat", "y", True),
    ],
)
def test_the_second_solver_may_disagree(tmp_path, asserted, expected, answer, wrong):
    pytest.importorskip("cvc5")
    file = tmp_path / "x.smt2"
    file.write_text(f"(set-logic QF_NRA)\n(declare-fun x () Real)\n{asserted}\n(check-sat)\n")
    found = recheck({"a/b": file}, {"a/b": expected})["a/b"]
    assert answer in found.answer
    assert (found.wrong, found.undecided) == (wrong, False)


def test_a_second_solver_that_hangs_is_killed_and_has_not_decided(tmp_path, monkeypatch):
    pytest.importorskip("cvc5")
    monkeypatch.setattr(second_solver, "ATTEMPTS", ((),))
    file = tmp_path / "x.smt2"
    file.write_text(
        "(set-logic QF_NIA)\n(declare-fun x () Int)(declare-fun y () Int)(declare-fun z () Int)\n"
        "(assert (= (+ (* x x x) (* y y y) (* z z z)) 42))\n(check-sat)\n"
    )
    found = recheck({"a/b": file}, {"a/b": "sat"}, seconds=0.3)["a/b"]
    assert found.undecided
    assert not found.wrong


def test_a_contradiction_of_the_second_solver_fails():
    stands = [Verdict(id="a/b", outcome=Outcome.PROVED, stands=True)]
    assert not fails(stands, {"a/b": Second("unknown", "unsat", 1.0)})
    assert not fails(stands, {"a/b": Second("unsat", "unsat", 1.0)})
    assert fails(stands, {"a/b": Second("sat", "unsat", 1.0)})
    assert fails(stands, {"a/b": Second("Parse Error", "unsat", 1.0)})


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        ("4000000000", "B/s", "4 GB/s"),
        ("131072", "B/token", "131.072 kB/token"),
        ("1/200000", "s", "5 µs"),
        ("65537", "tokens", "65537 tokens"),
        ("494500000000000", "FLOP/s", "494.5 TFLOP/s"),
        ("16060000000", "B", "16.06 GB"),
        ("1/3", "", "0.333333"),
        ("0", "s", "0 ns"),
        ("-3/2", "s", "-1.5 s"),
        ("division by zero", "s", "division by zero"),
        ("8030000000", "parameters", "8.03 G parameters"),
    ],
)
def test_values_are_shown_in_a_unit_of_their_size(value, unit, text):
    assert rendered(value, unit) == text


def test_words_select_in_the_order_of_the_registry():
    ids = list(THEOREMS)
    assert [t.id for t in select([ids[3], ids[1]])] == [ids[1], ids[3]]
    assert [t.id for t in select([])] == ids
    with pytest.raises(UnknownTheorem):
        select(["nothing/like-it"])
