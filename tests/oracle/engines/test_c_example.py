"""The example in C: right as it stands, and broken in just one way where it is asked to be."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from preempt_oracle.adapters.protocol import Session
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.campaign import Budget, campaign
from preempt_oracle.verdict import Verdict
from preempt_properties.scenario import Step

SOURCE = Path(__file__).parents[3] / "examples" / "stdio_scheduler.c"
CONFIG = {
    "policy": "vllm-fcfs",
    "blocks": 6,
    "page_size": 2,
    "max_running": 3,
    "budget": 64,
    "max_length": 12,
    "long_prefill": 0,
    "chunked": True,
    "caching": False,
    "whole_fit": True,
    "watermark": 0,
    "seed": 0,
    "options": {},
}


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("needs a C compiler (`cc`, `gcc` or `clang` on the path)")
    built = tmp_path_factory.mktemp("c") / "scheduler"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1"]
    subprocess.run([compiler, *flags, "-o", str(built), str(SOURCE)], check=True, timeout=120)
    return str(built)


@pytest.fixture
def c(speak, scheduler):
    return speak([scheduler])


def judged(command, workloads):
    kept = []

    def save(violation, reduced, origin, run):
        kept.append(reduced)
        return "", ""

    done = campaign(
        lambda: Session(Stdio(command, "example")),
        "vllm-fcfs",
        seed=1,
        budget=Budget(workloads=workloads),
        save=save,
    )
    return done, kept


def test_it_conforms(scheduler):
    done, _ = judged([scheduler], 40)
    assert done.tally.verdict is Verdict.CONFORMS, (done.tally.missing, done.tally.failures, done.broken)
    assert done.tally.resumes > 20


def test_with_its_fault_it_breaks_just_the_rule_it_is_for_and_the_reproducer_is_short(scheduler):
    done, (reduced,) = judged([scheduler, "--faulty"], 40)
    assert done.tally.verdict is Verdict.VIOLATES
    assert {failure.violation.rule for failure in done.tally.failures} == {"victim/reset"}
    script = reduced.scenario.script
    assert len(script) <= 3
    assert not any(isinstance(command, Step) and command.count > 2 for command in script)


@pytest.mark.parametrize("seed", range(8))
def test_random_workloads_end_with_every_book_in_order(c, agree, seed):
    rng = random.Random(seed)
    config = {**CONFIG, "page_size": rng.randint(2, 4), "budget": rng.randint(1, 20)}
    work = []
    for number in range(6):
        prompt = rng.randint(1, 11)
        work.append((rng.randint(0, 5), f"r{number}", [number] * prompt, rng.randint(1, 12 - prompt)))
    events = c.run(config, work)
    agree(events)
    assert c.run(config, work) == events


def test_an_aborted_request_gives_its_blocks_back_and_what_flies_for_it_is_dropped(c):
    c("start", config=CONFIG)
    c("add", request='a"\u00e9', prompt=[1, 2, 3], max_tokens=4, priority=0, arrival=0, salt="")
    taken = c("step")["blocks"]
    assert taken[0][:2] == ['a"\u00e9', 0]
    aborted = c("abort", request='a"\u00e9')
    assert aborted["blocks"] == [taken[0][2]]
    assert aborted["observed"]["free"] == [6]
    c("add", request='a"\u00e9', prompt=[9], max_tokens=4, priority=0, arrival=0, salt="")
    landed = c("deliver", frame=0, requests=['a"\u00e9'], tokens=[[7]])
    assert (landed["disposition"], landed["finished"]) == (["dropped"], [])
    assert c("step")["tokens"] == [1]


@pytest.mark.parametrize(
    "change",
    [
        {"policy": "vidur-vllm"},
        {"caching": True},
        {"watermark": 1},
        {"chunked": False},
        {"max_length": 13},
        {"frames": 2},
    ],
)
def test_what_it_does_not_do_it_refuses(c, change):
    assert c("start", config={**CONFIG, **change})["event"] == "refused"
    assert c("start", config=CONFIG)["event"] == "header"


@pytest.mark.parametrize(
    "line",
    [
        *("garbage", "[]", "null", '{"id":5,"do":"toString"}', '{"id":5,"do":"step"}', '{"id":1,"id":2,"do":"stop"}'),
        *('{"id":5,"do":"start"}', '{"id":5,"do":"start","config":{}} x', '{"id":5.5,"do":"stop"}', '{"id":1,"do":"'),
        *('{"id":01,"do":"stop"}', '{"id":99999999999999999999,"do":"stop"}', '{"id":1,"do":"\\x"}', "[" * 99),
    ],
)
def test_what_is_no_command_is_answered_and_ends_with_3(c, line):
    assert c.line(line)["origin"] == "protocol"
    assert c.end() == (3, "", "")


def test_the_end_of_input_is_a_clean_end(c):
    c("start", config=CONFIG)
    assert c("stop") == {"event": "stopped"}
    assert c.end() == (0, "", "")
