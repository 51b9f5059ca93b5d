"""`conform`, and `replay` of what it writes."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

import pytest

from preempt_spec.rules import RULES


def test_the_reference_conforms(run, here):
    words = ("--policy", "vllm-priority", "--workloads", 25, "--seed", 3, "--junit", "j.xml")
    result = run("conform", "reference", *words)
    assert result.exit_code == 0
    assert result.stdout.startswith("reference, policy vllm-priority, seed 3\n25 workloads in ")
    suite = ET.parse("j.xml").getroot()[0]
    assert [case.get("name") for case in suite.iter("testcase")] == list(RULES)
    assert suite.get("failures") == "0"
    assert int(suite.get("skipped") or 0) > 0  # what was not exercised is no pass


def test_a_seed_is_made_up_and_said(run, here):
    result = run("conform", "reference", "--policy", "nano-vllm", "--workloads", 1)
    assert re.match(r"reference, policy nano-vllm, seed [0-9]+\n1 workload in ", result.stdout)


def test_a_failure_is_shortened_written_and_replayed(run, here, adapters):
    bad = ("--adapter", f"{adapters}:Back")
    result = run("conform", *bad, "--workloads", 12, "--seed", 1, "--json", "r.json", "--junit", "j.xml")
    assert result.exit_code == 1
    (failure,) = json.loads((here / "r.json").read_bytes())["inputs"][0]["failures"]
    assert failure["rule"] == "queue/front"
    assert failure["times"] > 1  # later ones are counted, the run goes on
    assert re.fullmatch(r"5 actions, shortest in these bounds: this configuration, .*; [0-9]+ tries", failure["note"])
    (file,) = (here / "preempt-oracle-failures").iterdir()
    text = file.read_text()
    assert text.startswith("# queue/front: A victim re-enters the queue where the profile says.\n# Here: ")
    assert text.count("\nadd ") <= 3
    assert f"# Replay: preempt-oracle replay preempt-oracle-failures/{file.name} --adapter {adapters}:Back" in text
    assert 'rule = "queue/front"' in text
    assert "engine =" not in text  # a scenario file names no program to run
    again = run("replay", file, *bad)
    assert again.exit_code == 1
    assert "STILL FAILS  queue/front" in again.stdout
    fixed = run("replay", file, "reference")
    assert fixed.exit_code == 0
    assert "FIXED  queue/front held on reference, exercised" in fixed.stdout
    cases = {case.get("name"): case for case in ET.parse("j.xml").iter("testcase")}
    assert cases["queue/front"].find("failure") is not None
    assert cases["pool/conserve"].find("failure") is None


@pytest.mark.long
def test_the_same_seed_finds_the_same(run, here, adapters):
    words = ("conform", "--adapter", f"{adapters}:Back", "--workloads", 4, "--seed", 1)
    files = []
    for folder in ("one", "two"):
        run(*words, "--save", folder)
        (file,) = (here / folder).iterdir()
        files.append(file.read_text().replace(folder, "folder"))
    assert files[0] == files[1]


def test_an_adapter_that_raises_is_a_broken_harness_not_a_finding(run, here, adapters):
    result = run("conform", "--adapter", f"{adapters}:Raises", "--workloads", 3, "--seed", 1)
    assert result.exit_code == 3
    assert "HARNESS BROKEN" in result.stdout
    assert "[bold]boom[/bold] \\x1b[31m" in result.stdout
    assert "\x1b" not in result.output


def test_what_was_found_before_the_harness_broke_is_kept(run, here, adapters):
    result = run("conform", "--adapter", f"{adapters}:RaisesLate", "--workloads", 30, "--seed", 1)
    assert result.exit_code == 3
    assert "FAILED queue/front" in result.stdout
    assert "late" in result.stdout


def test_nonsense_types_are_a_broken_harness(run, here, adapters):
    result = run("conform", "--adapter", f"{adapters}:Lies", "--workloads", 1, "--seed", 1)
    assert result.exit_code == 3
    assert "Expected `int`, got `str` - at `$.tokens[0]`" in result.stdout


def test_an_engine_that_refuses_everything_is_unusable(run, here, adapters):
    result = run("conform", "--adapter", f"{adapters}:Refuses")
    assert result.exit_code == 2
    assert "only on Sundays" in result.stderr


def test_a_refused_workload_is_out_of_contract_never_a_violation(run, here, adapters):
    result = run("conform", "--adapter", f"{adapters}:RefusesMost", "--workloads", 10, "--seed", 1)
    assert result.exit_code in (0, 4)
    assert "of 10 workloads out of contract, such as: max_running must be 4" in result.stdout


def test_ctrl_c_ends_with_what_there_is(run, here, adapters):
    result = run("conform", "--adapter", f"{adapters}:Interrupted", "--workloads", 500, "--seed", 1)
    assert result.exit_code == 1
    assert "; interrupted" in result.stdout
    assert "FAILED queue/front" in result.stdout


def test_a_folder_that_cannot_be_made_does_not_lose_the_finding(run, here, adapters):
    (here / "file").write_text("")
    result = run("conform", "--adapter", f"{adapters}:Back", "--workloads", 6, "--seed", 1, "--save", "file/x")
    assert result.exit_code == 1
    assert "cannot make the folder file/x" in result.stderr
    assert "FAILED queue/front" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name one engine"),
        (("reference", "--stdio", "true"), "name one engine"),
        (("reference",), "--policy is needed"),
        (
            ("gpt==1",),
            "unknown engine 'gpt==1'; known: vllm, lmdeploy, vidur, nano-vllm-fork, sglang, transformers, reference",
        ),
        (("vidur==../x",), "'../x' is not a version"),
        (("vidur==0.0.26",), "vidur==0.0.26 is not installed: preempt-oracle engines install vidur==0.0.26"),
        (("vllm",), "preempt-oracle engines install vllm==0.33.0"),
        (("--adapter", "nonsense"), "expected MODULE:CLASS"),
        (("--stdio", "'"), "--stdio: No closing quotation"),
        (("--stdio", ""), "the command is empty"),
        (("reference", "--policy", "vllm-fcfs", "--time", "soon"), "is not a duration"),
        (("reference", "--policy", "vllm-fcfs", "--time", "0s"), "is not a duration"),
        (("reference", "--policy", "vllm-fcfs", "--workloads", "0"), "0 is not in the range"),
        (("reference", "--policy", "x"), "profiles are"),
        (("reference", "--option", "x", "--policy", "vllm-fcfs"), "expected KEY=VALUE"),
        (("vidur", "--engine-python", "/no/such/python"), "cannot be run"),
        (("reference", "--policy", "vllm-fcfs", "--junit", "-", "--json", "-"), "cannot both"),
    ],
)
def test_unusable_command_lines_say_what_to_do(run, here, words, message):
    result = run("conform", *words)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize("target", ["no_such_module:X", "json:NoSuchClass", "json:JSONDecoder"])
def test_an_adapter_that_cannot_be_loaded_is_a_broken_harness(run, here, target):
    result = run("conform", "--adapter", target)
    assert result.exit_code == 3
    assert result.stderr.startswith("preempt-oracle: ")


def test_time_ends_a_run(run, here):
    result = run("conform", "reference", "--policy", "vllm-fcfs", "--time", "0.3s", "--seed", 1)
    assert result.exit_code in (0, 4)
    assert "workloads in 0." in result.stdout
