"""JSON and JUnit: an interface, and safe to parse."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import msgspec

from preempt_oracle.report.document import Report, document
from preempt_oracle.report.junit import clean, junit
from preempt_oracle.trace import wire
from preempt_spec.rules import RULES

#: The fields of the JSON report, format version 1. Others may be added; none of these may go or change its meaning.
FIELDS = {
    "report": "format format_version preempt_oracle specification verdict exit_code inputs known_failures footer",
    "input": "source verdict error engine version policy observes seed workloads out_of_contract interrupted runs "
    "steps grants preemptions resumes missing rules failures deviations specification known advised ended_at_known "
    "steps_unjudged events_lost tokens_recomputed tokens_delivered",
    "rule": "id kind sentence standing exercised since advisory",
    "failure": "rule kind sentence message where step moment times state events note replay known advisory",
    "state": "what engine shadow differs",
    "deviation": "knob value why scenario",
}


def test_the_fields_of_the_json_report_stay(violated, unreadable):
    report = json.loads(document([violated, unreadable]))
    first = report["inputs"][0]
    found = {
        "report": report,
        "input": first,
        "rule": first["rules"][0],
        "failure": first["failures"][0],
        "state": first["failures"][0]["state"][0],
        "deviation": first["deviations"][0],
    }
    assert {name: " ".join(keys) for name, keys in found.items()} == FIELDS
    assert (report["format"], report["format_version"]) == ("preempt-oracle-report", 1)
    assert (report["verdict"], report["exit_code"]) == ("unreadable", 2)
    assert len(first["rules"]) == len(RULES)
    assert report["inputs"][1]["error"] == "x.jsonl:3: tokens: cut off"


def test_the_json_report_reads_back(violated):
    report = msgspec.json.decode(document([violated]), type=Report)
    assert isinstance(report.inputs[0].failures[0].events[0], wire.Step)


def test_a_file_name_that_is_no_unicode_does_not_break_the_report(unreadable):
    from attrs import evolve

    report = json.loads(document([evolve(unreadable, source="x\udcff.jsonl")]))
    assert report["inputs"][0]["source"] == "x\\udcff.jsonl"


def test_junit_has_one_case_per_rule_and_escapes_what_xml_cannot_hold(violated, hung):
    suites = ET.fromstring(junit([violated, hung]))
    first, second = suites
    assert [c.get("name") for c in first.iter("testcase")] == list(RULES)
    assert (first.get("tests"), first.get("failures"), first.get("errors")) == (str(len(RULES)), "1", "0")
    failure = first.find("testcase[@name='queue/front']/failure")
    assert failure is not None
    assert failure.get("message") == "[red]b[/red] \\x1b[31m\\x00\\ufffe was requeued at 1"
    assert failure.text is not None
    assert "replay: preempt-oracle replay f.toml" in failure.text
    held = first.find("testcase[@name='output/stream']")
    assert held is not None
    assert len(held) == 0
    skipped = first.find("testcase[@name='pool/refcount']/skipped")
    assert skipped is not None
    assert skipped.get("message") == "not observable"
    error = second.find("testcase/error")
    assert error is not None
    assert error.get("message") == "cmd did not answer step within 60 s"


def test_clean_keeps_what_xml_can_hold():
    assert clean("tab\tnew\nline é 😀 <&>") == "tab\tnew\nline é 😀 <&>"
    assert clean("\x00\x08\x0b\ufffe\ud800") == "\\x00\\x08\\x0b\\ufffe\\ud800"
