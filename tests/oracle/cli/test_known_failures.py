"""`--known-failures`: what is known is expected, and hides nothing."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from preempt_oracle.check import check
from preempt_oracle.known import Ledger, load
from preempt_oracle.monitor import Monitor
from preempt_oracle.verdict import Standing, Tally, Verdict
from preempt_spec import SPEC_VERSION
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import OBSERVES
from preempt_spec.rules import Violation

VERSION = SPEC_VERSION  # the reference's

FRONT = f"""\
[[known]]
rules = ["queue/front"]
engine = "reference"
versions = ["{VERSION}"]
policy = "vllm-fcfs"
where = {{}}
reason = "Puts victims at the back; ticket 7."
"""


@pytest.fixture
def known(here: Path) -> Path:
    """A file in which queue/front is known, in every configuration."""
    (here / "known.toml").write_text(FRONT)
    return here / "known.toml"


def test_a_known_violation_is_exit_0_where_the_rest_conforms(run, good, bad, known):
    assert run("check", good, bad).exit_code == 1
    # `bad` by itself ends at its first preemption: what is known does not make up for what was not seen.
    alone = run("check", "--known-failures", known, bad)
    assert alone.exit_code == 4
    assert alone.stdout.startswith(f"INCONCLUSIVE  {bad}")
    assert "  why       no request resumed\n" in alone.stdout
    assert "KNOWN queue/front (POLICY): A victim re-enters the queue where the profile says." in alone.stdout
    assert "  known     Puts victims at the back; ticket 7.\n" in alone.stdout
    assert "  unjudged  whatever is behind the known failure that ended 1 run" in alone.stdout
    assert "queue/front           POLICY   known failure" in alone.stdout
    assert "FAILED" not in alone.stdout
    said = f"queue/front  seen in 1 run  (reference {VERSION}, vllm-fcfs: every configuration)"
    assert f"Known failures\n  {said}" in alone.stdout


@pytest.mark.long
def test_one_campaign_conforms_but_for_known_failures(run, adapters, known):
    words = ("conform", "--adapter", f"{adapters}:Back", "--seed", "1", "--workloads", "60", "--policy", "vllm-fcfs")
    assert run(*words).exit_code == 1
    result = run(*words, "--known-failures", known, "--json", "r.json", "--junit", "r.xml")
    assert result.exit_code == 0
    assert "CONFORMS BUT FOR KNOWN FAILURES" in result.stdout
    assert not Path("preempt-oracle-failures", "queue-front").exists()
    report = json.loads(Path("r.json").read_bytes())
    assert (report["verdict"], report["exit_code"]) == ("conforms but for known failures", 0)
    (row,) = report["known_failures"]
    assert (row["rule"], row["stale"], row["reason"]) == ("queue/front", False, "Puts victims at the back; ticket 7.")
    (one,) = report["inputs"]
    assert one["known"] == {"queue/front": row["seen"]}
    assert one["ended_at_known"] == row["seen"] > 1
    assert [(f["rule"], f["known"], f["times"]) for f in one["failures"]] == [
        ("queue/front", row["reason"], row["seen"])
    ]
    suites = ET.parse("r.xml").getroot()
    assert [(s.get("name"), s.get("failures"), s.get("errors")) for s in suites] == [
        (f"{adapters}:Back", "0", "0"),
        ("known failures", "0", "0"),
    ]
    skipped = suites[0].find("testcase[@name='queue/front']/skipped")
    assert skipped is not None
    assert skipped.get("type") == "xfail"
    assert skipped.get("message") == "known failure: Puts victims at the back; ticket 7."


@pytest.mark.parametrize(
    "change",
    [('"queue/front"', '"queue/order"'), (f'"{VERSION}"', '"0.0"'), ("where = {}", "where = { budget = 1 }")],
    ids=["rule", "version", "family"],
)
def test_what_is_not_exactly_that_stays_a_violation(run, bad, known, change):
    known.write_text(FRONT.replace(*change))
    result = run("check", "--known-failures", known, bad)
    assert result.exit_code == 1
    assert "FAILED queue/front" in result.stdout


def test_a_stale_entry_is_exit_2_and_names_its_line(run, good, known):
    result = run("check", "--known-failures", known, good, "--json", "r.json")
    assert result.exit_code == 2
    assert f"CONFORMS  {good}" in result.stdout  # the engine is not to blame
    assert f"STALE  {known}:1: rules: queue/front: stale: 1 run of its family" in result.stdout
    report = json.loads(Path("r.json").read_bytes())
    assert (report["verdict"], report["exit_code"]) == ("known failures are stale", 2)
    assert report["inputs"][0]["verdict"] == "conforms"
    assert report["known_failures"][0]["stale"] is True
    # The same entry, of which it is said that it shows in one run of ten, or about another trace, is not.
    known.write_text(FRONT + "within = 10\n")
    patient = run("check", "--known-failures", known, good)
    assert patient.exit_code == 0
    assert "queue/front  not seen in 1 run of its family; stale at 10" in patient.stdout
    known.write_text(FRONT.replace("where = {}", 'trace = "bad.jsonl"'))
    other = run("check", "--known-failures", known, good)
    assert other.exit_code == 0
    assert f"queue/front  not run  (reference {VERSION}, vllm-fcfs: trace bad.jsonl)" in other.stdout


def test_a_stale_entry_is_an_error_in_junit(run, adapters, known):
    words = ("conform", "reference", "--policy", "vllm-fcfs", "--seed", "1", "--workloads", "3")
    result = run(*words, "--known-failures", known, "--junit", "r.xml")
    assert result.exit_code == 2
    suite = ET.parse("r.xml").getroot()[1]
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
    error = suite.find("testcase/error")
    assert error is not None
    assert error.get("type") == "stale"
    assert error.text == "Puts victims at the back; ticket 7."


@pytest.mark.parametrize("command", ["check x.jsonl", "conform reference --policy vllm-fcfs", "matrix"])
def test_a_file_that_cannot_be_used_is_exit_2_before_anything_runs(run, here, known, command):
    known.write_text(FRONT.replace('reason = "Puts victims at the back; ticket 7."\n', ""))
    result = run(*command.split(), "--known-failures", known)
    assert result.exit_code == 2
    assert f"{known}:1: reason: missing" in result.stderr
    assert not result.stdout
    assert run(*command.split(), "--known-failures", "absent.toml").exit_code == 2


def test_the_rest_of_a_trace_behind_a_known_failure_is_counted_as_unjudged(here, good, known):
    """A trace goes on behind what is known; what is there counts for nothing, good or bad."""
    lines = good.read_text().splitlines()
    n = next(i for i, line in enumerate(lines) if '"act":"requeue"' in line)
    changed = [*lines[:n], lines[n].replace('"index":0', '"index":1'), *lines[n + 1 :], ""]
    (here / "late.jsonl").write_text("\n".join(changed))
    steps = sum('"event":"step"' in line for line in lines[n + 1 :])
    assert steps > 1
    tally = check(here / "late.jsonl", known=Ledger(load(known)))
    assert tally.verdict is Verdict.INCONCLUSIVE
    assert (tally.ended, tally.unjudged) == (1, steps)
    assert tally.steps == sum('"event":"step"' in line for line in lines) - steps
    assert tally.exercised == check(here / "late.jsonl").exercised


def test_what_is_known_makes_up_for_nothing():
    """A tally that would be inconclusive without the known failures stays so with them, whatever they exercised."""

    def tally(held: int) -> Tally:
        t = Tally("e", "1", "vllm-fcfs", None, 2, 10, 20, 2, 1)
        t.observes = OBSERVES
        t.exercised.update(dict.fromkeys(PROFILES["vllm-fcfs"].core, 5))
        t.known["queue/front"], t.ended = 1, 1
        t.exercised["queue/front"], t.failed["queue/front"] = 1 + held, 1
        return t

    covered = tally(1)
    assert covered.verdict is Verdict.KNOWN
    assert covered.verdict.exit_code == 0
    assert tally(0).verdict is Verdict.INCONCLUSIVE
    for rule in PROFILES["vllm-fcfs"].core:
        if rule != "queue/front":
            t = tally(1)
            del t.exercised[rule]
            assert t.verdict is Verdict.INCONCLUSIVE
            assert t.missing == (f"{rule} was not exercised",)
    for size in ("preemptions", "resumes"):
        t = tally(1)
        setattr(t, size, 0)
        assert t.verdict is Verdict.INCONCLUSIVE
    t = tally(1)
    t.times["queue/order"] = 1
    assert t.verdict is Verdict.VIOLATES
    assert t.standings["queue/front"] is Standing.KNOWN


def test_another_rule_at_the_same_event_is_not_hidden(here, bad, known, monkeypatch):
    """Of two rules that break together, one known: the other is a violation."""
    feed = Monitor.feed

    def two(self, event):
        broken = feed(self, event)
        if broken:
            broken.append(Violation("queue/order", "and another"))
            self.violations = broken
        return broken

    monkeypatch.setattr(Monitor, "feed", two)
    tally = check(bad, known=Ledger(load(known)))
    assert tally.verdict is Verdict.VIOLATES
    assert dict(tally.times) == {"queue/order": 1}
    assert dict(tally.known) == {"queue/front": 1}
    assert tally.ended == 0
