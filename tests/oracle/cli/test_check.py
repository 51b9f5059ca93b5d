"""`check`: verdicts of recorded traces, and what cannot be read."""

from __future__ import annotations

import gc
import gzip
import json

import pytest
from backports import zstd

from preempt_oracle.check import AHEAD, check
from preempt_oracle.trace.errors import TraceError
from preempt_oracle.verdict import Verdict


def test_a_good_trace_conforms(run, good):
    result = run("check", good)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"CONFORMS  {good}  (reference ")
    assert "queue/front           POLICY   held" in result.stdout


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("zst", zstd.compress)])
def test_packed_traces_and_standard_input_are_read(run, here, good, suffix, pack):
    packed = here / f"good.jsonl.{suffix}"
    packed.write_bytes(pack(good.read_bytes()))
    assert run("check", packed).exit_code == 0
    result = run("check", "-", input=packed.read_bytes())
    assert result.exit_code == 0
    assert "CONFORMS  <stdin>" in result.stdout


def test_a_violation_is_told_in_full(run, bad):
    result = run("check", bad)
    assert result.exit_code == 1
    assert result.stdout.startswith(f"VIOLATES  {bad}")
    assert "FAILED queue/front (POLICY): A victim re-enters the queue where the profile says." in result.stdout
    lines = bad.read_text().splitlines()
    assert f"where     {bad}:{len(lines) - 1}, step " in result.stdout  # the last line before the footer
    assert "at the requeue of" in result.stdout
    assert "!=  b: index in waiting" in result.stdout
    assert "last steps, > where it broke" in result.stdout
    assert f"replay    preempt-oracle check -- {bad}" in result.stdout
    assert "queue/front           POLICY   violated" in result.stdout


def test_an_idle_trace_is_inconclusive_and_says_why(run, idle):
    result = run("check", idle)
    assert result.exit_code == 4
    assert "INCONCLUSIVE" in result.stdout
    assert "no preemption happened" in result.stdout


def test_several_traces_one_table_and_the_weightiest_exit_code(run, good, bad, idle):
    assert run("check", good, good).exit_code == 0
    assert run("check", good, idle).exit_code == 4
    assert run("check", idle, bad, good).exit_code == 1
    result = run("check", "missing.jsonl", bad, good)
    assert result.exit_code == 2
    assert [line.split()[0] for line in result.stdout.splitlines()[:3]] == ["UNREADABLE", "VIOLATES", "CONFORMS"]
    assert result.stdout.count("queue/front           POLICY") == 1


def spoilt(text: str) -> dict[str, bytes]:
    lines = text.splitlines()
    step = next(i for i, line in enumerate(lines) if '"event":"step"' in line and '"tokens":[' in line)

    def instead(at: int, line: str) -> bytes:
        return "\n".join([*lines[:at], line, *lines[at + 1 :], ""]).encode()

    return {
        "empty": b"",
        "truncated": text.encode()[: len(text) * 2 // 3],
        "no footer": ("\n".join(lines[:-1]) + "\n").encode(),
        "binary": bytes(range(256)) * 8,
        "cut gzip": gzip.compress(text.encode())[:-9],
        "cut zstd": zstd.compress(text.encode())[:-4],
        "deeply nested": b"[" * 100_000,
        "not json": instead(2, "nonsense"),
        "duplicate key": instead(step, lines[step].replace('"event":"step"', '"event":"step","frame":9')),
        "wrong version": instead(0, lines[0].replace("{", '{"trace":2,', 1)),
        "unknown event": instead(2, '{"event":"explode"}'),
        "unknown field": instead(2, lines[2].replace("{", '{"extra":1,', 1)),
        "unknown request": instead(2, '{"event":"finish","request":"nobody"}'),
        "negative count": instead(step, lines[step].replace('"tokens":[', '"tokens":[-')),
        "fraction": instead(1, lines[1].replace('"max_tokens":', '"max_tokens":0.')),
        "control characters": instead(1, '{"event":"arrive","request":"a\\u001b[31m","prompt":[1],"max_tokens":1}'),
        "markup": instead(step, lines[step].replace('"requests":["', '"requests":["[red]\\u001b[31mx')),
        "unknown policy": instead(0, lines[0].replace('"vllm-fcfs"', '"[blink]"')),
    }


KINDS = list(spoilt('{"event":"header"}\n{"event":"arrive"}\n{"event":"step","tokens":[1]}\n{"event":"footer"}'))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_trace_is_exit_2_with_its_place(run, here, good, kind):
    (here / "spoilt.jsonl").write_bytes(spoilt(good.read_text())[kind])
    result = run("check", "spoilt.jsonl")
    assert result.exit_code == 2
    assert result.stdout.startswith("UNREADABLE  spoilt.jsonl:")
    assert "CONFORMS" not in result.output
    assert "\x1b" not in result.output


def test_json_holds_what_the_text_says(run, here, good, bad):
    result = run("check", good, bad, "nothing", "--json", "out.json")
    assert result.exit_code == 2
    report = json.loads((here / "out.json").read_bytes())
    assert (report["verdict"], report["exit_code"]) == ("unreadable", 2)
    assert [i["verdict"] for i in report["inputs"]] == ["conforms", "violates", "unreadable"]
    (failure,) = report["inputs"][1]["failures"]
    assert failure["rule"] == "queue/front"
    assert failure["events"][-1]["event"] == "step"
    only = run("check", good, "--json", "-")
    assert json.loads(only.stdout)["verdict"] == "conforms"


@pytest.mark.parametrize("target", ["no/such/folder/x.json", "."])
def test_a_report_that_cannot_be_written_is_said_before_the_work(run, here, good, target):
    result = run("check", good, "--json", target)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: cannot write {target}: ")
    assert not result.stdout


def test_an_unknown_policy_names_the_known_ones(run, good):
    result = run("check", good, "--policy", "fifo")
    assert result.exit_code == 2
    assert "profiles are vllm-fcfs, vllm-priority" in result.stderr


def test_another_policy_judges_otherwise(run, good):
    assert run("check", good, "--policy", "vllm-priority").exit_code == 1


@pytest.mark.parametrize("between", [0, 3, AHEAD - 2, AHEAD - 1, AHEAD, 2 * AHEAD])
def test_of_two_bad_lines_the_first_is_told(run, here, good, between):
    lines = good.read_bytes().splitlines(keepends=True)
    nonsense, unreadable = b'{"event":"finish","request":"nobody"}\n', b"{\n"
    both = here / "both.jsonl"
    both.write_bytes(b"".join([lines[0], *[b'{"event":"step","frame":%d}\n' % i for i in range(between)], nonsense]))
    with both.open("ab") as out:
        out.writelines([*[b'{"event":"step","frame":%d}\n' % (between + i) for i in range(3)], unreadable, *lines[-1:]])
    result = run("check", both)
    assert result.exit_code == 2
    assert f"{both}:{between + 2}: request: " in result.stdout + result.stderr
    both.write_bytes(both.read_bytes().replace(nonsense, b""))
    result = run("check", both)
    assert result.exit_code == 2
    assert f"{both}:{between + 5}: cut off" in result.stdout + result.stderr


@pytest.mark.parametrize("threshold", [0, 700, 10**6])
def test_the_collector_of_cycles_is_left_as_it_was(good, here, threshold):
    before = gc.get_threshold()
    try:
        gc.set_threshold(threshold, *before[1:])
        assert check(good).verdict is Verdict.CONFORMS
        with pytest.raises(TraceError):
            check(here / "missing.jsonl")
        assert gc.get_threshold() == (threshold, *before[1:])
    finally:
        gc.set_threshold(*before)
