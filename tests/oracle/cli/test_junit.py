"""`--junit` of check, conform and fuzz: one writer, ids of rules, and what a trace says never breaks the XML."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from preempt_spec.rules import RULES

REFERENCE = ("reference", "--policy", "vllm-fcfs", "--seed", "1", "--workloads", "2")


def suites(file: str) -> list[ET.Element]:
    return list(ET.fromstring(Path(file).read_bytes()))


def names(suite: ET.Element) -> list[str | None]:
    return [case.get("name") for case in suite.iter("testcase")]


def test_check_has_a_suite_per_trace(run, good, bad):
    assert run("check", bad, "missing\x1b<&.jsonl", good, "--junit", "j.xml").exit_code == 2
    broken, missing, fine = suites("j.xml")
    assert names(broken) == names(fine) == list(RULES)
    assert names(missing) == ["trace"]
    assert missing.find("testcase/error") is not None
    assert (broken.get("failures"), missing.get("errors"), fine.get("failures")) == ("1", "1", "0")
    failure = broken.find("testcase[@name='queue/front']/failure")
    assert failure is not None
    assert failure.get("type") == "queue/front"
    assert failure.text is not None
    sentence, place, *rest = failure.text.splitlines()
    assert sentence == RULES["queue/front"].sentence
    assert f"{bad}:" in place
    assert ", step " in place
    assert rest[-1] == f"replay: preempt-oracle check -- {bad}"


def test_fuzz_has_a_case_per_rule_with_its_replay(run, adapters):
    words = ("--adapter", f"{adapters}:Back", "--policy", "vllm-fcfs", "--seed", 1, "--workloads", 20, "-x")
    assert run("fuzz", *words, "--junit", "j.xml").exit_code == 1
    [suite] = suites("j.xml")
    assert names(suite) == list(RULES)
    [failure] = suite.iter("failure")
    assert failure.text is not None
    assert failure.text.splitlines()[-1].startswith(
        "replay: preempt-oracle replay preempt-oracle-failures/queue-front-"
    )
    assert [p.get("value") for p in suite.iter("property") if p.get("name") == "seed"] == ["1"]


@pytest.mark.parametrize("command", ["check", "conform", "fuzz"])
def test_one_report_may_go_to_standard_output(run, good, command):
    words = (command, good) if command == "check" else (command, *REFERENCE)
    result = run(*words, "--junit", "-", "--json", "r.json")
    assert [suite.tag for suite in ET.fromstring(result.stdout)] == ["testsuite"]
    both = run(*words, "--junit", "-", "--json", "-")
    assert (both.exit_code, both.stdout) == (2, "")
    assert "cannot both" in both.stderr
    assert run(*words, "--junit", "no/such/folder.xml").exit_code == 2


def test_an_engine_that_raises_markup_leaves_valid_xml(run, adapters):
    assert run("fuzz", "--adapter", f"{adapters}:Raises", "--workloads", 2, "--junit", "j.xml").exit_code == 3
    [suite] = suites("j.xml")
    assert suite.get("errors") == "1"
