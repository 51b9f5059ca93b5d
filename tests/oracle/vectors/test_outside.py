"""A run outside the contract accuses nobody, and counts for nothing."""

from __future__ import annotations

import pytest

from preempt_oracle.check import check
from preempt_oracle.vectors.catalogue import FOLDER
from preempt_oracle.verdict import EXCUSED, Standing, Verdict

VERSIONS = ("0.31.0", "0.33.0")


def outside(version):
    return FOLDER / f"traces/outside-lone-request.vllm-{version}.jsonl"


def good(version):
    return FOLDER / f"traces/fcfs-cached.vllm-{version}.jsonl"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lone_request_that_outgrows_the_pool_is_out_of_contract(version):
    tally = check(outside(version))
    assert tally.verdict is Verdict.INCONCLUSIVE
    assert tally.missing == (tally.outside,)
    assert "12 tokens, needs 6 blocks, and the pool of group 0 has 3" in tally.outside
    # What was seen is told.
    assert [(f.violation.rule, f.note) for f in tally.failures] == [("live/progress", EXCUSED)]
    assert dict(tally.excused) == {"live/progress": 1}
    assert not tally.times
    assert Standing.VIOLATED not in tally.standings.values()
    assert Standing.HELD not in tally.standings.values()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("first", [good, outside])
def test_beside_runs_inside_the_contract_it_changes_nothing(version, first):
    second = outside if first is good else good
    tally = check(second(version), tally=check(first(version)))
    assert tally.verdict is Verdict.CONFORMS
    assert tally.outside
    assert tally.exercised == check(good(version)).exercised


def test_it_excuses_no_violation_inside_the_contract():
    broken = FOLDER / "broken/needless-preemption.jsonl"
    for pair in ((outside("0.33.0"), broken), (broken, outside("0.33.0"))):
        tally = check(pair[1], tally=check(pair[0]))
        assert tally.verdict is Verdict.VIOLATES
        assert tuple(tally.times) == ("victim/necessity",)
