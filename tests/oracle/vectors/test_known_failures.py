"""The shipped file of vLLM's known failures: it excuses the recorded faults, them alone, and every entry shows."""

from __future__ import annotations

import io

import pytest
from attrs import evolve

from preempt_oracle import matrix as job
from preempt_oracle.check import check
from preempt_oracle.known import Ledger, load
from preempt_oracle.matrix import Expected, Outcome
from preempt_oracle.report import matrix as report
from preempt_oracle.vectors import make
from preempt_oracle.vectors.catalogue import FOLDER
from preempt_oracle.vectors.catalogue import load as vectors
from preempt_oracle.verdict import Verdict

FILE = FOLDER / "known-failures.toml"
ENTRIES = load(FILE)
FAULTS = [v for v in vectors() if v.verdict == "violates" and not v.base]
COPIES = [v for v in vectors() if v.base]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(ENTRIES)


def test_every_entry_has_a_trace_in_each_version_it_names():
    """None is there on somebody's word: each is shown by a trace of its own, which needs no engine."""
    for version in ("0.31.0", "0.33.0"):
        one = Ledger(ENTRIES)
        for vector in FAULTS:
            if vector.version == version:
                check(FOLDER / vector.file, known=one)
        assert [line.seen for line in one.lines] == [1] * len(ENTRIES)
    assert all(set(e.versions) == {"0.31.0", "0.33.0"} for e in ENTRIES)


@pytest.mark.parametrize("vector", FAULTS, ids=lambda v: v.file)
def test_a_recorded_fault_is_known_and_is_no_pass_by_itself(vector, ledger):
    tally = check(FOLDER / vector.file, known=ledger)
    assert tuple(tally.known) == vector.rules
    assert not tally.times
    # What was judged up to the fault may be too little: the known failure does not make up for it.
    assert tally.verdict in (Verdict.KNOWN, Verdict.INCONCLUSIVE)
    assert (tally.verdict is Verdict.KNOWN) == (not tally.missing)


def test_with_the_good_traces_of_the_same_engine_it_conforms_but_for_them(ledger):
    tally = None
    for vector in vectors():
        if (vector.version, vector.policy, vector.base) == ("0.33.0", "vllm-priority", ""):
            tally = check(FOLDER / vector.file, tally=tally, known=ledger)
    assert tally is not None
    assert tally.verdict is Verdict.KNOWN
    assert dict(tally.known) == {"live/no-thrash": 1, "live/progress": 1, "live/survives": 1, "resume/publish": 3}
    assert not ledger.stale


@pytest.mark.parametrize("vector", COPIES, ids=lambda v: v.file)
def test_it_excuses_nothing_that_was_broken_by_hand(vector, ledger):
    tally = check(FOLDER / vector.file, known=ledger)
    assert not tally.known
    assert tuple(tally.times) == vector.rules


def test_a_mended_engine_makes_the_entry_stale(ledger):
    """Good traces, in the family of the entry by their header."""
    raw = make.content(FOLDER / "traces/priority-cached.vllm-0.33.0.jsonl")
    assert b'"long_prefill":' not in raw
    for _ in range(2):
        assert check(io.BytesIO(raw), known=ledger).verdict is Verdict.CONFORMS
    assert not ledger.stale  # not its family: no threshold, whole-sequence admission
    stale = Ledger((evolve(ENTRIES[0], where={"caching": True}, within=1),))
    check(io.BytesIO(raw), known=stale)
    assert [line.rule for line in stale.stale] == ["resume/publish"]


def test_the_main_job_takes_known_failures_as_expected(ledger):
    expected = job.expectations()
    traces = {k: v for k, v in job.shipped().items() if "/priority" in k or "/fault" in k}
    rows = {k: o for k, o in expected.rows.items() if (k.source, k.policy) == ("traces", "vllm-priority")}
    matrix = job.run(Expected(rows), traces, [], lambda _: None, known=ledger)
    assert matrix.verdict is Verdict.CONFORMS
    assert {str(r.outcome) for r in matrix.rows} == {"conforms but for known failures"}
    assert "known" in report.markdown(matrix)
    # Nobody need have expected what is known; but a verdict that is not the expected one for another reason stays odd.
    for outcome, same in ((Outcome("conforms"), True), (Outcome("inconclusive"), False)):
        again = job.run(Expected(dict.fromkeys(rows, outcome)), traces, [], lambda _: None, known=Ledger(ENTRIES))
        assert (again.verdict is Verdict.CONFORMS) is same
    more = Outcome("violates", ("live/no-thrash", "queue/front", "resume/publish"))
    missed = job.run(Expected(dict.fromkeys(rows, more)), traces, [], lambda _: None, known=Ledger(ENTRIES))
    assert missed.verdict is Verdict.VIOLATES
    # An entry that is stale is told before anything else is.
    stale = Ledger((evolve(ENTRIES[0], where={}, rules=("queue/front",), within=1),))
    assert job.run(Expected(rows), traces, [], lambda _: None, known=stale).verdict is Verdict.STALE
