"""What is kept of long campaigns, and shown in docs/lockstep.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from preempt_oracle.adapters.inprocess import InProcess
from preempt_oracle.adapters.protocol import Session
from preempt_oracle.lockstep import campaigns
from preempt_oracle.lockstep.modes import POLICIES, select
from preempt_oracle.lockstep.predicted import VERSIONS
from preempt_oracle.lockstep.run import Budget, lockstep
from preempt_oracle.lockstep.stand_in import StandIn
from preempt_oracle.report.lockstep import document


def test_reports_are_condensed_and_the_newest_of_a_version_counts(tmp_path: Path):
    report, target = tmp_path / "report.json", tmp_path / "kept.json"
    for workloads in (3, 12):
        found = lockstep(
            lambda: Session(InProcess(StandIn(), "the stand-in", "preempt_spec")),
            select(POLICIES, "sync,runner=1"),
            0,
            Budget(workloads),
        )
        report.write_bytes(document(found))
        assert campaigns.main([str(report)], target) == 0
    (kept,) = campaigns.kept(target)
    assert (kept.version, kept.workloads, kept.divergences, kept.refused) == (VERSIONS[-1], 12, 0, 0)
    assert kept.steps == found.steps == sum(r.steps for r in kept.rows) > kept.granting == found.granting
    assert kept.switches["drafts"] + kept.switches["no-drafts"] == kept.steps
    assert [(r.policy, r.flight, r.drafts, r.every) for r in kept.rows][:2] == [
        ("vllm-fcfs", "sync, runner 1", "", 20),
        ("vllm-fcfs", "sync, runner 1", "drafts", 20),
    ]


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert campaigns.main([]) == 2
    (tmp_path / "other.json").write_text("{}")
    for name in ("other.json", "none.json"):
        assert campaigns.main([str(tmp_path / name)], tmp_path / "kept.json") == 2
        assert name in capsys.readouterr().err


def test_the_page_shows_what_the_work_order_asks_for():
    for kept in campaigns.kept():
        assert kept.divergences == 0
        assert kept.granting >= 100_000
        assert kept.least > 0, "every combination that the engine takes was compared"
        assert len(kept.rows) == 28
    assert [k.version for k in campaigns.kept()] == list(VERSIONS)
    assert [line.split(" (")[0] for line in campaigns.table().splitlines()[-2:]] == [f"vLLM {v}" for v in VERSIONS]
