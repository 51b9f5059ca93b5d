"""The price of a trace: who was preempted with what, and what that costs, counted by hand."""

from __future__ import annotations

from fractions import Fraction as Q
from pathlib import Path

import pytest

import preempt_oracle.vectors as vectors
from preempt_oracle.check import check
from preempt_oracle.cost.errors import CostInputError
from preempt_oracle.cost.question import Given, Question, question
from preempt_oracle.cost.trace import Preemption, Price, price, story, windows_of
from preempt_oracle.trace.errors import TraceError
from preempt_spec.cost.recompute import compute_time, recompute_time
from preempt_spec.cost.swap import one_way_time, swap_time

TRACES = Path(vectors.__file__).parent / "traces"
HEADER = (
    '{"event":"header","engine":"e","version":"1","policy":"vllm-fcfs","limits":{"max_running":8,"budget":4096,'
    '"max_length":8192},"groups":[{"page_size":16}],"pools":[{"total":1000}],"observes":["start"]}'
)
STORY = (
    '{"event":"arrive","request":"a","prompt":[1,2,3,4],"max_tokens":99}',
    '{"event":"arrive","request":"b","prompt":[1,2,3,4,5,6],"max_tokens":99}',
    '{"event":"step","frame":0,"requests":["a","b"],"tokens":[4,6],"start":[0,0]}',
    '{"event":"step","frame":1,"requests":["a"],"tokens":[1],"start":[4],"acts":[{"act":"demote","request":"b"}]}',
    '{"event":"step","frame":2,"requests":["a","b"],"tokens":[1,2],"start":[5,2]}',
    '{"event":"step","frame":3,"requests":["b"],"tokens":[3],"start":[4],"acts":[{"act":"demote","request":"a"}]}',
    '{"event":"abort","request":"a"}',
    '{"event":"step","frame":4,"acts":[{"act":"demote","request":"b"}],"reason":"x"}',
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "t.jsonl"
    lines = [HEADER, *STORY]
    footer = f'{{"event":"footer","lines":{len(lines) + 1},"steps":5,"grants":6,"preemptions":3}}'
    file.write_text("\n".join([*lines, footer]) + "\n")
    return file


def ask(model: str = "llama-3.1-8b", **options: object) -> Question:
    return question(model, Given(**{"accelerator": "h100-sxm", "copy_overhead": "5us", **options}))  # type: ignore[arg-type]


def priced(trace: Path, asked: Question) -> Price:
    return price(story(trace, windows_of(asked)), asked)


def test_who_was_preempted_with_what_and_came_back_where(trace):
    told = story(trace, frozenset({None}))
    assert told.preemptions == [Preemption("b", 6, 2), Preemption("a", 6, None), Preemption("b", 7, None)]
    assert (told.tokens, told.longest, told.page_size) == (4 + 6 + 1 + 3 + 3, 7, 16)
    # a: 0 to 6; b: 0 to 6, then 2 to 7.
    assert told.pairs == {None: Q(36 + 36 + 49 - 4, 2)}


def test_prices_are_those_of_the_cost_functions(trace):
    q = ask()
    p = priced(trace, q)
    shape, device, transfer = q.setting.shape, q.setting.device, q.setting.transfer
    assert p.recompute == recompute_time(shape, device, Q(6), Q(2), q.setting.run)
    moved = swap_time(shape, transfer, Q(6))
    out = [one_way_time(shape, transfer, transfer.out, Q(n)) for n in (6, 7)]
    assert p.swap == moved + sum(out)
    assert p.best == min(p.recompute, moved)
    assert p.recomputed == 4
    assert p.arithmetic == sum(compute_time(shape, device, Q(n), Q(c)) for n, c in ((6, 0), (6, 0), (7, 2)))
    assert p.tax == compute_time(shape, device, Q(6), Q(2)) / p.arithmetic
    assert p.swaps == (moved < p.recompute)


def test_what_was_written_through_costs_nothing_for_those_that_never_come_back(trace):
    q = ask(write_through=True)
    assert priced(trace, q).swap == swap_time(q.setting.shape, q.setting.transfer, Q(6))


def test_windows_are_counted(trace):
    q = ask("gpt-oss-20b")
    assert windows_of(q) == {None, Q(128)}
    p = priced(trace, q)
    shape, device = q.setting.shape, q.setting.device
    assert p.arithmetic == sum(compute_time(shape, device, Q(n), Q(c)) for n, c in ((6, 0), (6, 0), (7, 2)))


def test_the_hits_of_the_trace_are_said(trace):
    said = priced(trace, ask()).question.assumptions
    assert any(text.startswith("prefix hits are those of the trace") for text in said)


def test_a_request_beyond_the_models_context_is_refused(tmp_path):
    file = tmp_path / "long.jsonl"
    lines = (
        '{"event":"arrive","request":"a","prompt":[1],"max_tokens":9000}',
        '{"event":"step","frame":0,"requests":["a"],"tokens":[5000],"start":[0]}',
    )
    footer = '{"event":"footer","lines":4,"steps":1,"grants":1,"preemptions":0}'
    file.write_text("\n".join([HEADER, *lines, footer]) + "\n")
    with pytest.raises(CostInputError, match=r"long\.jsonl: .* context of 4096 tokens, and a request has 5000"):
        priced(file, ask("llama-2-7b"))


def test_a_trace_that_is_cut_off_is_no_trace(trace):
    text = trace.read_text()
    trace.write_text(text[: text.index('{"event":"footer"')])
    with pytest.raises(TraceError):
        story(trace, frozenset({None}))


@pytest.mark.parametrize("file", sorted(TRACES.glob("*vllm-0.33.0.jsonl*")), ids=lambda f: f.name)
def test_as_many_preemptions_as_the_monitor_sees_in_the_shipped_traces(file):
    told, tally = story(file, frozenset({None})), check(file)
    assert len(told.preemptions) == tally.preemptions
    assert sum(p.hit is not None for p in told.preemptions) == tally.resumes
    p = price(told, ask())
    assert 0 <= p.tax <= 1
    assert p.best <= p.recompute


def test_the_command_prints_and_writes_it(trace, tmp_path):
    import json

    from click.testing import CliRunner

    from preempt_oracle.cli.main import cli

    words = ["cost", "trace", str(trace), "--model", "llama-3.1-8b", "--accelerator", "h100-sxm"]
    result = CliRunner().invoke(cli, [*words, "--json", str(tmp_path / "p.json")])
    assert result.exit_code == 0
    assert "3 preemptions of 2 requests, 1 came back, 2 tokens found again by prefix hits" in result.stdout
    assert "recompute tax: " in result.stdout
    document = json.loads((tmp_path / "p.json").read_text())
    assert [row["hit_tokens"] for row in document["preemptions"]] == [2, None, None]
    assert document["question"]["block_tokens"] == 16
    assert CliRunner().invoke(cli, [*words, "--hit", "0.5"]).exit_code == 2
    assert CliRunner().invoke(cli, ["cost", "trace", "no.jsonl", *words[3:]]).exit_code == 2
