"""The published JSON Schema of reports is the one of the structs, and what the commands write is valid by it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from preempt_oracle import matrix, version_matrix
from preempt_oracle.cli.main import cli
from preempt_oracle.matrix import VECTORS, Expected
from preempt_oracle.report import engine_matrix
from preempt_oracle.report import matrix as matrix_report
from preempt_oracle.report import version_matrix as version_report
from preempt_oracle.report.document import document
from preempt_oracle.report.schema import DOCUMENTS, SCHEMA_FILE, report_schema, schema_text

TRACES = VECTORS / "traces"
BROKEN = TRACES / "fault-unwritten-pages.vllm-0.33.0.jsonl"
REFERENCE = ("reference", "--policy", "vllm-fcfs", "--seed", "0", "--workloads", "3")


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = report_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_file_is_current():
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), (
        f"run: python -m preempt_oracle.report.schema > {SCHEMA_FILE.name}"
    )


@pytest.mark.parametrize(
    "words",
    [
        ("check", str(BROKEN), "no-such-trace.jsonl"),
        ("check", str(BROKEN), "--known-failures", str(VECTORS / "known-failures.toml")),
        ("conform", *REFERENCE),
        ("fuzz", *REFERENCE),
    ],
    ids=" ".join,
)
def test_what_a_command_writes_is_valid_and_ends_with_its_footer(validator, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, [*words, "--json", "r.json"])
    report = json.loads(Path("r.json").read_bytes())
    validator.validate(report)
    assert report["exit_code"] == result.exit_code
    assert list(report)[-1] == "footer"
    broken = {(i["source"], f["rule"]) for i in report["inputs"] for f in i["failures"]}
    assert report["footer"] == {"entries": len(report["inputs"]), "broken": len(broken)}


def test_what_hostile_input_leaves_in_a_report_is_valid(validator, violated, unreadable, hung):
    report = json.loads(document([violated, unreadable, hung]))
    validator.validate(report)
    assert report["footer"] == {"entries": 3, "broken": 1}


def test_the_matrices_are_valid(validator):
    found = matrix.run(Expected(), {"one.jsonl": BROKEN}, (), lambda _: None)
    report = json.loads(matrix_report.document(found))
    validator.validate(report)
    assert (report["format"], report["footer"]) == ("preempt-oracle-matrix", {"entries": 1, "broken": 1})
    row = version_matrix.compare(version_matrix.Wanted("vllm", "0.33.0", "vllm-fcfs"), None, (), "not installed")
    versions = version_matrix.VersionMatrix("vllm", (row,), (), False)
    validator.validate(json.loads(version_report.document(versions)))
    both = json.loads(engine_matrix.document([versions, versions]))
    validator.validate(both)
    assert both["footer"] == {"entries": 2, "broken": 0}


def test_what_is_no_report_is_refused(validator, violated):
    report = json.loads(document([violated]))
    for spoilt in (
        {},
        {**report, "format": "preempt-oracle-matrix"},
        {**report, "format_version": 2},
        {k: v for k, v in report.items() if k != "footer"},
        {**report, "inputs": [{}]},
    ):
        assert not validator.is_valid(spoilt)
    assert validator.is_valid({**report, "of a later version": 1})
    assert set(DOCUMENTS) == set(re.findall(r'"const": "([a-z-]+)"', schema_text()))
