"""`fuzz`: what it finds, what it writes, what it says, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from preempt_oracle.adapters.processes import ended
from preempt_oracle.trace.reader import read

COMMAND = (sys.executable, "-m", "preempt_oracle", "fuzz")

#: Adapters that are no schedulers to be judged.
WRONG = """
    import itertools, os, subprocess, sys, time
    from preempt_oracle.adapters.reference import ReferenceEngine
    from preempt_properties.known_bad.queues import RequeuesAtTheBack
    from preempt_properties.known_bad.victims import PreemptsTheOldest
    from preempt_spec.reference import Reference

    class Back(ReferenceEngine):
        scheduler = RequeuesAtTheBack

    class Moody(ReferenceEngine):
        "Every other scheduler it starts is another."
        starts = itertools.count()
        def start(self, config):
            self.scheduler = PreemptsTheOldest if next(self.starts) % 2 else Reference
            return super().start(config)

    class Raises(ReferenceEngine):
        "Its translation fails, sooner or later."
        steps = itertools.count()
        def step(self):
            if next(self.steps) == 30:
                raise RuntimeError("boom")
            return super().step()

    class Hangs(ReferenceEngine):
        steps = itertools.count()
        def step(self):
            if next(self.steps) == 30:
                time.sleep(600)
            return super().step()

    class Leaks(ReferenceEngine):
        "Starts a helper with each scheduler, and forgets it."
        def start(self, config):
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
            return super().start(config)

    class Unknown(ReferenceEngine):
        "Grants something to a request that nobody added."
        def step(self):
            told = super().step()
            if told["frame"] == 3:
                told["requests"] = [*told.get("requests", []), "zz"]
                told["tokens"] = [*told.get("tokens", []), 1]
                told["start"] = [*(told.get("start") or []), 0]
            return told

    class Partial(ReferenceEngine):
        "Shows next to nothing."
        def start(self, config):
            return {**super().start(config), "observes": ["start"]}

    class Fails(ReferenceEngine):
        package = "mistaken"

    class Crashes(ReferenceEngine):
        "Says where in memory it crashed: another place each time."
        package = __name__
        kept = []
        def deliver(self, command):
            self.kept.append(object())
            raise AssertionError(f"this cannot be: {self.kept[-1]}")
"""


@pytest.fixture
def wrong(here: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    name = f"wrong_{abs(hash(request.node.nodeid))}"
    (here / f"{name}.py").write_text(textwrap.dedent(WRONG))
    monkeypatch.syspath_prepend(here)
    return name


@pytest.mark.long
def test_a_failure_becomes_a_scenario_a_trace_and_a_test(run, here, wrong):
    adapter = f"{wrong}:Back"
    result = run("fuzz", "--adapter", adapter, "--workloads", 5, "--seed", 1)
    assert result.exit_code == 1
    assert "FAILED queue/front" in result.stdout
    assert re.search(r"5 actions, shortest in these bounds: this configuration.*, requests of up to", result.stdout)
    files = sorted(p.name for p in (here / "preempt-oracle-failures").iterdir())
    (toml,) = (f for f in files if f.endswith(".toml"))
    (trace,) = (f for f in files if f.endswith(".jsonl"))
    (test,) = (f for f in files if f.endswith(".py"))
    text = (here / "preempt-oracle-failures" / toml).read_text()
    assert text.partition('script = """\n')[2].count("\n") <= 4
    assert "from workload 1 of fuzz seed 1; 5 actions, shortest" in text
    assert sum(1 for _ in read(here / "preempt-oracle-failures" / trace)) > 5
    again = run("replay", f"preempt-oracle-failures/{toml}", "--adapter", adapter)
    assert again.exit_code == 1
    assert "STILL FAILS  queue/front" in again.stdout
    # The test fails as long as the scheduler does, and shows why.
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"preempt-oracle-failures/{test}"]
    done = subprocess.run(words, cwd=here, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "STILL FAILS: queue/front" in done.stdout
    source = here / f"{wrong}.py"
    source.write_text(source.read_text().replace("scheduler = RequeuesAtTheBack", "pass"))
    fixed = subprocess.run(words, cwd=here, capture_output=True, text=True, check=False, timeout=120)
    assert fixed.returncode == 0, fixed.stdout


def test_an_honest_account_of_what_was_tried(run, here):
    result = run("fuzz", "reference", "--policy", "vllm-fcfs", "--workloads", 12, "--seed", 3)
    assert result.exit_code in (0, 4)
    assert result.stdout.startswith("reference, policy vllm-fcfs, seed 3\n")
    assert re.search(r"tried +12 workloads in [0-9.]+ s", result.stdout)
    assert re.search(r"foreseen +[0-9,]+ steps of candidate workloads", result.stdout)
    assert re.search(r"reached +[0-9,]+ abstract states in [0-9,]+ steps", result.stdout)
    assert not (here / "preempt-oracle-failures").exists()


def account(text: str) -> str:
    return re.sub(r"in [0-9.]+ s \([0-9,]+ a second\)|after [0-9.]+ s", "", text)


@pytest.mark.long
@pytest.mark.parametrize("jobs", [1, 2])
def test_the_same_seed_does_the_same(run, here, wrong, jobs):
    words = ("fuzz", "--adapter", f"{wrong}:Back", "--workloads", 6, "--seed", 5, "--jobs", jobs)
    first, second = (account(run(*words, "--save", "same").stdout) for _ in range(2))
    assert first == second
    assert len([*(here / "same").glob("*.toml")]) == 1


def test_several_jobs_share_the_workloads(run, here):
    words = ("--policy", "vllm-priority", "--workloads", 9, "--seed", 3, "--jobs", 2, "--json", "r.json")
    result = run("fuzz", "reference", *words)
    assert result.exit_code in (0, 4)
    (told,) = json.loads((here / "r.json").read_bytes())["inputs"]
    assert (told["workloads"], told["runs"]) == (9, 9)


def test_it_may_stop_at_the_first(run, here, wrong):
    result = run("fuzz", "--adapter", f"{wrong}:Back", "--time", "60s", "--seed", 1, "-x")
    assert result.exit_code == 1
    assert re.search(r"tried +1 workload in", result.stdout)


def test_an_adapter_that_is_not_deterministic_is_no_violation(run, here, wrong):
    result = run("fuzz", "--adapter", f"{wrong}:Moody", "--workloads", 20, "--seed", 1)
    assert result.exit_code == 3
    assert "is not deterministic: of the same scenario event" in result.stdout
    assert "FAILED" not in result.stdout
    (file,) = (here / "preempt-oracle-failures").iterdir()
    assert str(file.name) in result.stdout
    assert "# The harness broke here: " in file.read_text()


def test_a_crash_that_speaks_of_an_address_is_a_crash_and_no_change_of_mind(run, here, wrong):
    result = run("fuzz", "--adapter", f"{wrong}:Crashes", "--policy", "vllm-fcfs", "--workloads", 2, "--seed", 1)
    assert result.exit_code == 1
    assert "FAILED live/survives" in result.stdout
    assert "not deterministic" not in result.stdout


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("Raises", 3, "RuntimeError .*: boom"),
        ("Unknown", 3, "zz is not known|zz is not live"),
        ("Partial", 4, "not observable here: "),
    ],
)
def test_an_adapter_that_cannot_be_judged(run, here, wrong, name, code, why):
    result = run("fuzz", "--adapter", f"{wrong}:{name}", "--workloads", 20, "--seed", 1)
    assert result.exit_code == code
    assert re.search(why, result.stdout)
    if code == 3:
        (file,) = (here / "preempt-oracle-failures").iterdir()
        assert run("replay", file, "--adapter", f"{wrong}:Fails").exit_code in (0, 1, 4)


def test_an_adapter_that_hangs(run, here, wrong):
    began = time.monotonic()
    result = run("fuzz", "--adapter", f"{wrong}:Hangs", "--workloads", 20, "--seed", 1, "--patience", "1s")
    assert time.monotonic() - began < 30
    assert result.exit_code == 3
    assert "did not answer step within 1 s" in result.stdout
    assert len([*(here / "preempt-oracle-failures").iterdir()]) == 1


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc here to find children in")
def test_an_adapter_that_leaks_processes(here, wrong):
    # In a process of its own: what the adapter forgets is nothing that these tests should be warned of.
    words = (*COMMAND, "--adapter", f"{wrong}:Leaks", "--workloads", "3", "--seed", "1")
    done = subprocess.run(words, cwd=here, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 3
    (pids,) = re.findall(r"leaves processes behind: ([0-9, ]+)", done.stdout)
    assert all(ended(int(pid)) for pid in pids.split(", "))


def test_a_child_that_leaks_processes(run, here):
    code = """
        import subprocess, sys
        from preempt_oracle.adapters.reference import ReferenceEngine
        from preempt_oracle.engines.child import serve
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        serve(ReferenceEngine(), "preempt_spec")
    """
    (here / "leaky.py").write_text(textwrap.dedent(code))
    result = run(
        "fuzz", "--stdio", f"{sys.executable} leaky.py", "--policy", "vllm-fcfs", "--workloads", 2, "--seed", 1
    )
    assert result.exit_code == 3
    assert "leaves processes behind" in result.stdout


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("queue/front", "queue/frnot", "there is no rule 'queue/frnot'"),
        ("reason", "raeson", "raeson: unknown field"),
        ("where = {}", "where = { blokcs = 3 }", "blokcs"),
    ],
)
def test_a_known_failures_file_with_a_typo_is_refused(run, here, wrong, old, new, message):
    text = """[[known]]
rules = ["queue/front"]
engine = "reference"
versions = ["1.0"]
policy = "vllm-fcfs"
where = {}
reason = "as it is"
"""
    (here / "known.toml").write_text(text.replace(old, new))
    words = ("--workloads", 3, "--seed", 1, "--known-failures", "known.toml")
    result = run("fuzz", "--adapter", f"{wrong}:Back", *words)
    assert result.exit_code == 2
    assert "known.toml:" in result.stderr
    assert message in result.stderr
    (here / "known.toml").write_text(text)
    for jobs in (1, 2):
        known = run("fuzz", "--adapter", f"{wrong}:Back", *words, "--jobs", jobs)
        assert "KNOWN queue/front" in known.stdout
        assert known.exit_code in (0, 4)


@pytest.mark.long
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_ends_it_with_what_it_has(here, jobs):
    words = (*COMMAND, "reference", "--policy", "vllm-fcfs", "--time", "300s", "--seed", "1", "--jobs", str(jobs))
    process = subprocess.Popen(words, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(6)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert "Traceback" not in out + err
    assert "; interrupted" in out
    assert "abstract states" in out
    assert process.returncode in (0, 4)


def test_the_policy_of_the_reference_must_be_said(run, here):
    assert run("fuzz", "reference", "--workloads", 1).exit_code == 2
    assert run("fuzz").exit_code == 2
    assert run("fuzz", "reference", "--jobs", 0).exit_code == 2
    assert run("fuzz", "reference", "--policy", "vllm-fcfs", "--time", "soon").exit_code == 2
