"""`matrix ENGINE`, where no engine is installed."""

from __future__ import annotations

import json

import pytest

from preempt_oracle.engines.environments import ENGINES


def test_the_command_without_engines_names_what_installs_them(run, here):
    result = run("matrix", "vllm", "--versions", "0.11.0, 0.33.0", "--results", "kept", "--json", "m.json")
    assert result.exit_code == 3
    assert "preempt-oracle engines install vllm==0.11.0" in result.stdout
    assert len(json.loads((here / "m.json").read_bytes())["rows"]) == 4


def test_all_engines_at_once(run, here):
    result = run("matrix", "all", "--results", "kept", "--json", "m.json")
    assert result.exit_code == 3
    data = json.loads((here / "m.json").read_bytes())
    assert (data["format"], data["exit_code"]) == ("preempt-oracle-engine-matrix", 3)
    assert [e["engine"] for e in data["engines"]] == [*ENGINES]
    rows = {e["engine"]: len(e["rows"]) for e in data["engines"]}
    assert rows == {n: len(s.versions) * len(s.policies) * len(s.variants) for n, s in ENGINES.items()}
    # What was asked for besides the page is not lost with it.
    result = run("matrix", "all", "--results", "kept", "--page", "page.md", "--json", "again.json")
    assert result.exit_code == 2
    assert "page.md was not written: not every version was run" in result.stderr
    assert len(json.loads((here / "again.json").read_bytes())["engines"]) == len(ENGINES)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("vllm", "--versions", "0.12.0"), "'0.12.0' is none of 0.11.0"),
        (("vllm", "--versions", ","), "--versions: 'none'"),
        (("gpt",), "unknown engine 'gpt'"),
        (("all", "--versions", "0.33.0"), "--versions is for one engine"),
        (("vllm", "--markdown"), "--markdown is not for ENGINE"),
        (("vllm", "--versions", "0.33.0", "--page", "p.md"), "--page wants all versions"),
        (("--versions", "0.33.0"), "--versions goes with ENGINE"),
        (("--fresh",), "--fresh goes with ENGINE"),
        (("vllm", "--results", "file/below"), "cannot make the folder"),
    ],
)
def test_what_cannot_be_asked_for(run, here, words, message):
    (here / "file").write_text("")
    result = run("matrix", *words)
    assert result.exit_code == 2
    assert message in result.stderr
