"""`diff`: where two schedulers part, and where they do not."""

from __future__ import annotations

import re

import pytest

POLICY = ("--policy", "vllm-fcfs")


def test_an_engine_does_not_part_from_itself(run, here):
    result = run("diff", "reference", "reference", *POLICY, "--workloads", 8, "--seed", 1)
    assert result.exit_code == 0
    assert re.search(r"8 workloads, [0-9]+ steps", result.stdout)
    assert "THE SAME  no step in which they part" in result.stdout


@pytest.mark.long
def test_the_first_step_in_which_they_part_is_shown_and_shortened(run, here, adapters):
    words = ("diff", "reference", f"{adapters}:Back", *POLICY)
    result = run(*words, "--workloads", 20, "--seed", 1, "-o", "parted.toml")
    assert result.exit_code == 1
    assert re.search(r"THEY PART at event \d+ \(step\), step \d: waiting queue", result.stdout)
    assert re.search(r"  !=  waiting queue +\[b c\] +\[c b\]", result.stdout)
    assert f"only {adapters}:Back breaks queue/front: A victim re-enters" in result.stdout
    assert "5 actions, shortest in these bounds" in result.stdout
    again = run(*words, "--scenario", "parted.toml")
    assert again.exit_code == 1
    assert "waiting queue" in again.stdout
    other = run("diff", "reference", "reference", "--scenario", "parted.toml")
    assert other.exit_code == 0


def test_an_engine_that_changes_its_mind_is_a_broken_harness(run, here, adapters):
    (here / "moody.py").write_text(
        "import itertools\n"
        f"from {adapters} import Back\n"
        "from preempt_spec.reference import Reference\n"
        "class Moody(Back):\n"
        "    starts = itertools.count()\n"
        "    def start(self, config):\n"
        "        self.scheduler = Back.scheduler if next(self.starts) % 2 else Reference\n"
        "        return super().start(config)\n"
    )
    result = run("diff", "reference", "moody:Moody", *POLICY, "--workloads", 20, "--seed", 1)
    assert result.exit_code == 3
    assert "is not deterministic" in result.stdout


def test_a_crash_that_speaks_of_an_address_parts_two_engines(run, here):
    (here / "crashing.py").write_text(
        "from preempt_oracle.adapters.reference import ReferenceEngine\n"
        "class Crashing(ReferenceEngine):\n"
        "    package, kept = __name__, []\n"
        "    def deliver(self, command):\n"
        "        self.kept.append(object())\n"
        "        raise AssertionError(f'this cannot be: {self.kept[-1]}')\n"
    )
    result = run("diff", "reference", "crashing:Crashing", *POLICY, "--workloads", 2, "--seed", 1)
    assert result.exit_code == 1
    assert "THEY PART" in result.stdout
    assert "only crashing:Crashing breaks live/survives" in result.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("reference",),
        ("reference", "reference"),
        ("reference", "nonsense", *POLICY),
        ("reference", "reference", *POLICY, "--scenario", "x.toml"),
        ("reference", "reference", *POLICY, "--scenario", "x.toml", "--workloads", "3"),
        ("reference", "reference", *POLICY, "-o", "no/folder/x.toml"),
    ],
)
def test_wrong_usage_is_exit_2(run, here, words):
    assert run("diff", *words).exit_code == 2


def test_what_one_of_them_refuses_is_not_compared(run, here, adapters):
    result = run("diff", "reference", f"{adapters}:Refuses", *POLICY, "--workloads", 3, "--seed", 1)
    assert result.exit_code == 2
    assert "only on Sundays" in result.stderr
