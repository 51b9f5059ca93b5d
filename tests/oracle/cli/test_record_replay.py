"""`record`, and `replay` of hand-written scenarios."""

from __future__ import annotations

import pytest


def test_a_scenario_is_recorded_and_checked(run, here, scenario):
    result = run("record", "reference", "--scenario", scenario, "-o", "t.jsonl.zst")
    assert result.exit_code == 0
    assert "t.jsonl.zst: " in result.stderr
    assert run("check", "t.jsonl.zst").exit_code in (0, 4)


def test_a_trace_goes_to_standard_output_alone(run, here, scenario):
    result = run("record", "reference", "--scenario", scenario, "-o", "-")
    assert result.exit_code == 0
    assert result.stdout.startswith('{"event":"header"')
    assert run("check", "-", input=result.stdout.encode()).exit_code in (0, 4)


def test_equal_seeds_give_equal_bytes(run, here):
    for name in ("one", "two"):
        assert run("record", "reference", "--policy", "nano-vllm", "--seed", 7, "-o", name).exit_code == 0
    assert (here / "one").read_bytes() == (here / "two").read_bytes()


def test_a_broken_adapter_leaves_no_trace_and_no_other_file(run, here, adapters, scenario):
    before = {p.name for p in here.iterdir()}
    result = run("record", "--adapter", f"{adapters}:Raises", "--scenario", scenario, "-o", "t.jsonl")
    assert result.exit_code == 3
    assert {p.name for p in here.iterdir()} - before <= {"__pycache__"}


def test_a_refused_scenario_is_out_of_contract(run, here, adapters, scenario):
    result = run("record", "--adapter", f"{adapters}:RefusesMost", "--scenario", scenario, "-o", "t.jsonl")
    assert result.exit_code == 2
    assert "out of contract: max_running must be 4" in result.stderr
    assert not (here / "t.jsonl").exists()


@pytest.mark.parametrize("target", ["no/folder/t.jsonl", ".", "cache/../no/t.jsonl"])
def test_a_trace_that_cannot_be_written(run, here, scenario, target):
    result = run("record", "reference", "--scenario", scenario, "-o", target)
    assert result.exit_code == 2
    assert "cannot write" in result.stderr


def test_scenario_and_seed_exclude_each_other(run, here, scenario):
    assert run("record", "reference", "--scenario", scenario, "--seed", 1, "-o", "x").exit_code == 2


def test_replay_shows_steps_and_a_verdict(run, here, scenario):
    result = run("replay", scenario, "reference")
    assert result.exit_code == 0
    assert "+a 3+5" in result.stdout
    assert "preempt" in result.stdout
    assert "CONFORMS  reference" in result.stdout


def test_replay_takes_the_engine_from_the_file(run, here, scenario):
    scenario.write_text('engine = "reference"\nrule = "queue/front"\n' + scenario.read_text())
    result = run("replay", scenario)
    assert result.exit_code == 0
    assert "FIXED  queue/front held on reference" in result.stdout


def test_another_broken_rule_is_no_fix(run, here, adapters, scenario):
    scenario.write_text('rule = "pool/conserve"\n' + scenario.read_text())
    result = run("replay", scenario, "--adapter", f"{adapters}:Back")
    assert result.exit_code == 1
    assert "ANOTHER RULE  pool/conserve did not break, queue/front did" in result.stdout


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("blocks = 4", "blocks = -4", "blocks"),
        ("blocks = 4", "blocks = 4.5", "blocks must be a whole number"),
        ("blocks = 4", "blocks = 4\nextra = 1", "extra: unknown field"),
        ("blocks = 4", "", "blocks"),
        ("blocks = 4", "blocks = 4\noptions = 3", "options: must be a table"),
        ("blocks = 4", "blocks = 4\nengine = 3", "engine: must be a text"),
        ("blocks = 4", 'blocks = 4\nrule = "pool/x"', "there is no rule 'pool/x'"),
        ('"vllm-fcfs"', '"fifo"', "policy: 'fifo' is unknown"),
        ("add a", "explode", "script line 1"),
        ("max=5", "max=0", "max: 0 is outside"),
        ("add b prompt=4,5 max=5", "add a prompt=4 max=1", "a is added while it is still alive"),
        ("add b", "abort zz\nadd b", "zz was not added"),
        ("script", "script\u0007", "not TOML"),
    ],
)
def test_scenarios_that_cannot_be_run_name_the_fault(run, here, scenario, old, new, message):
    scenario.write_text(scenario.read_text().replace(old, new, 1))
    result = run("replay", scenario, "reference")
    assert result.exit_code == 2
    assert message in result.stderr
    assert "\x07" not in result.output


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"[" * 50_000, b"script = 1"])
def test_what_is_no_scenario(run, here, data):
    (here / "x.toml").write_bytes(data)
    result = run("replay", "x.toml", "reference")
    assert result.exit_code == 2
    assert "x.toml" in result.stderr


def test_replay_without_an_engine_says_so(run, scenario):
    result = run("replay", scenario)
    assert result.exit_code == 2
    assert "names no engine" in result.stderr
    assert run("replay", "missing.toml", "reference").exit_code == 2
