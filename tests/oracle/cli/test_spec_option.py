"""`--spec X.Y`: judged by an earlier version, or with advisory rules; unknown versions are exit 2."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from attrs import evolve

import preempt_spec
from preempt_spec import HISTORY, SPEC_VERSION, Release
from preempt_spec.rules import RULES

NEXT, AFTER = "98.1", "98.2"


@pytest.fixture
def upcoming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two minor versions to come; queue/front came in with the first."""
    coming = (Release(NEXT, {"queue/order": "Said otherwise."}), Release(AFTER))
    monkeypatch.setattr(preempt_spec, "HISTORY", (*HISTORY, *coming))
    monkeypatch.setitem(RULES, "queue/front", evolve(RULES["queue/front"], since=NEXT))


@pytest.mark.parametrize("words", ["check x.jsonl", "conform reference --policy vllm-fcfs", "matrix", "rules"])
@pytest.mark.parametrize("version", ["99.0", "", "x", "1"])
def test_an_unknown_version_is_exit_2_and_names_those_there_are(run, here, words, version):
    result = run(*words.split(), "--spec", version)
    assert result.exit_code == 2
    known = ", ".join(r.version for r in HISTORY)
    assert f"the specification has no version {version!r}; it has {known}" in " ".join(result.stderr.split())
    assert not result.stdout


def test_the_current_version_is_the_default(run, good):
    assert run("check", good).stdout == run("check", "--spec", SPEC_VERSION, good).stdout
    assert "specification" not in run("check", good).stdout


def test_an_earlier_version_leaves_newer_rules_out(run, bad, good, upcoming):
    result = run("check", "--spec", SPEC_VERSION, good, "--json", "r.json")
    assert result.exit_code == 0
    assert "queue/front" not in result.stdout
    (one,) = json.loads(Path("r.json").read_bytes())["inputs"]
    assert "queue/front" not in {r["id"] for r in one["rules"]}
    # What was a violation is none by a version that has no such rule.
    assert run("check", "--spec", SPEC_VERSION, bad).exit_code != 1


@pytest.mark.long
def test_an_advisory_violation_is_shown_and_changes_no_exit_code(run, adapters, upcoming, here):
    words = ("conform", "--adapter", f"{adapters}:Back", "--seed", "1", "--workloads", "40", "--policy", "vllm-fcfs")
    result = run(*words, "--spec", NEXT, "--json", "r.json", "--junit", "r.xml")
    assert result.exit_code == 0
    assert f"; specification {NEXT})" in result.stdout.splitlines()[2]
    assert f"new in specification {NEXT}, no part of the verdict" in result.stdout
    assert "ADVISORY queue/front (POLICY): " in result.stdout
    assert "queue/front           POLICY   advisory: violated" in result.stdout
    report = json.loads((here / "r.json").read_bytes())
    assert (report["specification"], report["verdict"], report["exit_code"]) == (NEXT, "conforms", 0)
    (one,) = report["inputs"]
    assert one["advised"]["queue/front"] > 1
    rows = {r["id"]: r for r in one["rules"]}
    assert (rows["queue/front"]["since"], rows["queue/front"]["advisory"]) == (NEXT, True)
    assert rows["queue/front"]["standing"] == "advisory: violated"
    assert not any(r["advisory"] for id, r in rows.items() if id != "queue/front")
    (failure,) = one["failures"]
    assert (failure["rule"], failure["advisory"], failure["times"]) == (
        "queue/front",
        True,
        one["advised"]["queue/front"],
    )
    assert failure["replay"]  # shortened and saved like any other
    skipped = ET.parse(here / "r.xml").getroot().find("testsuite/testcase[@name='queue/front']/skipped")
    assert skipped is not None
    assert skipped.get("type") == "xfail"
    assert (skipped.get("message") or "").startswith("advisory: violated: ")
    # One version later the same rule binds.
    assert run(*words, "--spec", AFTER).exit_code == 1


def test_a_recorded_trace_says_where_the_advice_was_due(run, bad, upcoming):
    result = run("check", "--spec", NEXT, bad)
    assert result.exit_code == 4  # it ends where it was cut off when the rule still bound
    assert "ADVISORY queue/front" in result.stdout
    assert f"where     {bad}:" in result.stdout
    assert f"replay    preempt-oracle check --spec {NEXT} -- {bad}" in result.stdout


def test_an_advisory_violation_may_be_known_too(run, adapters, here, upcoming):
    entry = f'[[known]]\nrules = ["queue/front"]\nengine = "reference"\nversions = ["{SPEC_VERSION}"]\n'
    (here / "k.toml").write_text(entry + 'policy = "vllm-fcfs"\nwhere = {}\nreason = "Ticket 7."\n')
    words = ("conform", "--adapter", f"{adapters}:Back", "--seed", "1", "--workloads", "40", "--policy", "vllm-fcfs")
    result = run(*words, "--spec", NEXT, "--known-failures", "k.toml")
    assert result.exit_code == 0
    assert "ADVISORY queue/front" in result.stdout
    assert "  known     Ticket 7.\n" in result.stdout
    assert result.stdout.splitlines()[2].startswith("CONFORMS  ")


def test_rules_are_listed_and_explained_by_version(run, upcoming):
    old = run("rules", "--spec", SPEC_VERSION)
    assert "queue/front" not in old.stdout
    assert len(old.stdout.splitlines()) == len(RULES) - 1
    assert run("rules", "--spec", SPEC_VERSION, "queue").stdout.count("\n") == run("rules", "queue").stdout.count("\n")
    new = run("rules", "--spec", NEXT)
    assert [line.split()[0] for line in new.stdout.splitlines() if line.endswith(" (advisory)")] == ["queue/front"]
    gone = run("rules", "--spec", SPEC_VERSION, "queue/front")
    assert gone.exit_code == 2
    assert f"came in after specification {SPEC_VERSION}" in gone.stderr
    assert f"\n  since specification {NEXT}, advisory\n" in run("rules", "--spec", NEXT, "queue/front").stdout
    assert f"\n  since specification {NEXT}\n" in run("rules", "--spec", AFTER, "queue/front").stdout
    assert f"\n  reworded in {NEXT}: Said otherwise.\n" in run("rules", "--spec", AFTER, "queue/order").stdout
