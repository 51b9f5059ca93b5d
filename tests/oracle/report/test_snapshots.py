"""What a failure looks like, on a wide terminal, a narrow one, in a pipe, with colours and without.

`pytest tests/oracle/report/test_snapshots.py --snapshot-update` writes the snapshots anew: look at the difference.
"""

from __future__ import annotations

import io
from random import Random

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from preempt_oracle.adapters.inprocess import InProcess
from preempt_oracle.adapters.protocol import Session
from preempt_oracle.adapters.reference import ReferenceEngine
from preempt_oracle.campaign import failure
from preempt_oracle.drive import Run, drive
from preempt_oracle.report.cause import CAUSES
from preempt_oracle.report.failure import show_failure
from preempt_oracle.report.words import console
from preempt_oracle.verdict import Failure
from preempt_properties.known_bad.accounting import LeaksAtPreemption
from preempt_properties.known_bad.base import KnownBad
from preempt_properties.known_bad.bookkeeping import KeepsTheGrantOfItsVictim
from preempt_properties.known_bad.queues import RequeuesAtTheBack
from preempt_properties.known_bad.victims import LetsItStarve
from preempt_properties.workload import workload
from preempt_spec.rules import RULES

VARIANTS = (RequeuesAtTheBack, LetsItStarve, KeepsTheGrantOfItsVictim, LeaksAtPreemption)


def broken(variant: type[KnownBad]) -> Failure:
    """The first failure of a known-bad scheduler."""

    class Bad(ReferenceEngine):
        scheduler = variant

    session = Session(InProcess(Bad(), "bad", "preempt_spec"))
    for seed in range(60):
        run = drive(session, workload(Random(seed), variant.policies[0]))
        if isinstance(run, Run) and run.violations:
            return failure(
                run, run.violations[0], f"the workload of seed {seed}", "preempt-oracle replay f.toml", "note"
            )
    raise AssertionError(variant)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.__name__)
def test_in_a_pipe(variant: type[KnownBad], snapshot: SnapshotAssertion):
    out = io.StringIO()
    show_failure(console(out), broken(variant), times=3)
    assert "\x1b" not in out.getvalue()
    assert out.getvalue() == snapshot


@pytest.mark.parametrize("width", [40, 70, 160])
def test_at_any_width(width: int, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    show_failure(console(out), broken(RequeuesAtTheBack))
    assert out.getvalue() == snapshot


@pytest.mark.parametrize("colours", [True, False], ids=["colours", "NO_COLOR"])
def test_on_a_terminal(colours: bool, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not colours:
        monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    terminal = Console(file=out, force_terminal=True, width=100, markup=False, emoji=False, highlight=False)
    show_failure(terminal, broken(RequeuesAtTheBack))
    assert ("\x1b[1;31mFAILED" in out.getvalue()) == colours
    assert out.getvalue() == snapshot


def test_every_rule_has_a_cause():
    assert CAUSES.keys() == RULES.keys()
    assert all(text.endswith(".") and text[0].isupper() for text in CAUSES.values())
