"""Theorems that hang, sleep or kill their process are told as what they are, and harm no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from preempt_properties.z3.pool import ProverBroken, examine_all
from preempt_properties.z3.verdict import Outcome

SOURCE = """
import os, sys, time
from preempt_properties.theorems.theorem import Registry, Theorem, positive

def spins(x):
    while True:
        pass

def solves(x, y, z):
    # No loop of ours: the time is lost in the solver's own polynomials.
    t = x
    for _ in range(6):
        t = t * t + y * t + z
    return t * t > 2 * y * t * z - x

X = positive("s")

def theorem(id, claim, *names):
    return Theorem(id=id, sentence="So.", parameters={n: X for n in names or "x"}, claim=claim)

THEOREMS = Registry([
    theorem("bad/spins", spins),
    theorem("good/one", lambda x: x > 0),
    theorem("bad/sleeps", lambda x: time.sleep(60)),
    theorem("bad/dies", lambda x: os._exit(3)),
    theorem("bad/leaves", lambda x: sys.exit("gone")),
    theorem("good/two", lambda x: x * x > 0),
    theorem("bad/solves", solves, "x", "y", "z"),
])
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "hanging_theorems.py").write_text(SOURCE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "hanging_theorems"


@pytest.mark.long
def test_what_hangs_is_killed_and_the_others_are_answered(source):
    ids = ["bad/spins", "good/one", "bad/sleeps", "bad/dies", "bad/leaves", "good/two", "bad/solves"]
    told: list[Any] = []
    found = examine_all(ids, source=source, budget=0.3, silence=3.0, tell=told.append)
    assert [v.id for v in found] == ids
    assert sorted(told, key=lambda v: ids.index(v.id)) == found
    by = {v.id: v for v in found}
    assert by["good/one"].stands
    assert by["good/two"].stands
    assert not any(v.stands for id, v in by.items() if id.startswith("bad/"))
    assert (by["bad/spins"].outcome, by["bad/spins"].reason) == (Outcome.UNKNOWN, "not done in 0.3 s of processor time")
    assert (by["bad/sleeps"].outcome, by["bad/sleeps"].reason) == (Outcome.UNKNOWN, "no answer in 3 s")
    assert (by["bad/dies"].outcome, by["bad/dies"].reason) == (Outcome.BROKEN, "the prover died: exit 3")
    assert by["bad/leaves"].reason == "the prover died: exit 1: SystemExit: gone"
    assert by["bad/solves"].outcome is Outcome.UNKNOWN


def test_nothing_asked_is_nothing_answered(source):
    assert examine_all([], source=source) == []


def test_theorems_that_cannot_be_loaded_are_a_broken_prover():
    with pytest.raises(ProverBroken, match="No module named 'no_such_theorems'"):
        examine_all(["a/b"], source="no_such_theorems")


def test_asking_loads_no_solver():
    code = "import sys, preempt_oracle.prove, preempt_properties.z3.pool; assert 'z3' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
