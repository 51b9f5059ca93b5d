"""LMDeploy's real schedulers: they follow their profile, show their findings, and each fault put into them is named."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
from attrs import evolve

from preempt_oracle.adapters.protocol import Refused, Session, Started
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.drive import Run, drive
from preempt_oracle.engines import environments
from preempt_oracle.found import findings, rules
from preempt_oracle.inject import Outcome, injected
from preempt_oracle.trace import wire
from preempt_oracle.verdict import Tally
from preempt_properties.scenario import Add, Config, Scenario, Step
from preempt_properties.workload import workload
from preempt_spec.system import observable

pytestmark = pytest.mark.lmdeploy

ENGINE = POLICY = "lmdeploy"
CONFIG = Config(POLICY, 8, 4, 4, 64, 32, chunked=False)  # a lookahead of 1, which either has
VERSIONS = environments.ENGINES[ENGINE].versions
OLD, NEW = "0.10.2", "0.18.0"
FINDINGS = findings(ENGINE, VERSIONS)


def connect(version, **options):
    found = environments.ready(ENGINE, version)
    if found is None:
        pytest.skip(f"needs `preempt-oracle engines install {ENGINE}=={version}`")
    return Session(Stdio(found.command, ENGINE, env=found.env), options)


@pytest.fixture(scope="module", params=VERSIONS)
def version(request):
    return request.param


@pytest.fixture(scope="module")
def session(version):
    session = connect(version)
    yield session
    session.close()


def started(session, config=CONFIG):
    answer = session.start(config)
    if isinstance(answer, Started):
        session.stop()
    return answer


def driven(session, seeds, *without):
    """The runs of these workloads, and what they showed together."""
    can = started(session).capabilities - {*without}
    tally, runs = Tally(ENGINE, "", POLICY), list[Run]()
    for seed in seeds:
        run = drive(session, workload(Random(seed), POLICY, capabilities=can), seed)
        assert isinstance(run, Run)
        runs.append(run)
        tally.add(run.monitor, run.header.observes)
    return tally, runs


def test_without_its_prefix_cache_it_follows_the_profile(session):
    tally, runs = driven(session, range(120), "caching")
    assert [run.violations for run in runs if run.violations] == []
    assert tally.preemptions > 100
    assert tally.resumes > 100
    assert not tally.missing


def test_with_its_prefix_cache_nothing_but_the_findings_is_broken(session, version):
    tally, runs = driven(session, range(120))
    known = rules(f"{ENGINE}=={version}", POLICY)
    assert {v.rule for run in runs for v in run.violations} <= known
    assert any(isinstance(a, wire.Exchange) for run in runs for e in run.events for a in getattr(e, "acts", ()))
    assert tally.exercised["resume/publish"] > 100


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda f: f.name)
def test_findings_are_as_listed(session, version, finding):
    run = drive(session, finding.scenario)
    shown = isinstance(run, Run) and finding.scenario.rule in {v.rule for v in run.violations}
    assert shown == (version in finding.versions)


def test_who_leaves_is_the_first_that_was_looked_at_and_lacked_room(session, version):
    config = evolve(CONFIG, blocks=4, page_size=2, max_length=6)
    run = drive(session, Scenario(config, (Add("a", (1, 2, 3), 3), Add("b", (4, 5, 6), 3))))
    assert isinstance(run, Run)
    assert not run.violations
    first = next(a for e in run.events if isinstance(e, wire.Step) for a in e.acts if isinstance(a, wire.Demote))
    assert (first.request, first.beneficiaries) == (("a", ("a",)) if version == OLD else ("b", ("b",)))


@pytest.mark.parametrize("version", [OLD], scope="module")
def test_a_hit_without_room_behind_it_is_kept_as_pins(session):
    config = evolve(CONFIG, blocks=6, page_size=2, max_running=8, max_length=9, caching=True)
    same = (1, 2, 3, 4)
    script = (Add("a", same, 4), Add("b", (9, 8), 3), Step(2), Add("c", (*same, 5, 6, 7), 1))
    run = drive(session, Scenario(config, script))
    assert isinstance(run, Run)
    assert not run.violations
    steps = [e for e in run.events if isinstance(e, wire.Step)]
    at, hit = next((i, e) for i, e in enumerate(steps) if e.hits)
    assert [(h.request, h.tokens) for h in hit.hits] == [("c", 4)]
    (unpin,) = [a for a in hit.acts if isinstance(a, wire.Unpin)]
    (pin,) = [a for a in steps[at - 1].acts if isinstance(a, wire.Pin)]
    assert pin.blocks == unpin.blocks == hit.blocks[0].blocks[:2]
    assert steps[at - 1].observed.held == ()


def test_a_victim_keeps_its_blocks_until_somebody_needs_them(session, version):
    config = evolve(CONFIG, blocks=6, max_length=15)
    adds = (Add("a", tuple(range(4)), 8), Add("b", tuple(range(10, 17)), 8), Add("c", tuple(range(20, 24)), 8))
    run = drive(session, Scenario(config, adds))
    assert isinstance(run, Run)
    assert not run.violations
    steps = [e for e in run.events if isinstance(e, wire.Step)]
    first = next(i for i, e in enumerate(steps) if e.acts)
    assert [type(a).__name__ for a in steps[first].acts] == ["Demote", "Requeue"]
    assert steps[first].observed.held == ((wire.Held("c", 1, 4),) if version == OLD else (wire.Held("b", 2, 7),))
    later = next(e for e in steps[first + 1 :] if e.acts)
    assert [type(a).__name__ for a in later.acts] == ["Release"]
    assert later.observed.held == ()


def test_who_comes_back_first_keeps_what_it_has(session, version):
    config = evolve(CONFIG, blocks=4, page_size=2, max_length=6)
    adds = (Add("a", (1,), 3), Add("b", (2, 3, 4), 3))
    run = drive(session, Scenario(config, adds))
    assert isinstance(run, Run)
    assert not run.violations
    steps = [e for e in run.events if isinstance(e, wire.Step)]
    back = next(e for e in steps if e.resumed)
    assert not any(isinstance(a, wire.Release) for e in steps for a in e.acts)
    assert back.start is not None
    assert (back.requests, back.start, back.tokens) == (
        (("b",), (3,), (1,)) if version == OLD else (("a",), (1,), (1,))
    )


@pytest.mark.parametrize(
    "change",
    [
        *({"policy": "vllm-fcfs"}, {"chunked": True}, {"whole_fit": False}, {"watermark": 1}, {"budget": 30}),
        *({"max_length": 33}, {"lookahead": 2}),
    ],
)
def test_what_is_outside_its_contract_is_refused(session, change):
    assert isinstance(started(session, evolve(CONFIG, **change)), Refused)


def test_a_decode_of_several_passes_is_refused_where_they_are_not_decided_on():
    session = connect(OLD)
    try:
        answer = started(session, evolve(CONFIG, blocks=9, lookahead=2))
    finally:
        session.close()
    assert isinstance(answer, Refused)
    assert "prefill_interval" in answer.reason


@pytest.mark.parametrize("version", VERSIONS)
def test_every_fault_is_named_by_the_rule_it_is_for(version):
    known = rules(f"{ENGINE}=={version}", POLICY)
    found = injected(partial(connect, version), POLICY, limit=60, known=known)
    assert {row.fault.name: row.named for row in found.rows if row.outcome is not Outcome.CAUGHT} == {}
    assert not found.alarms
    assert len(found.rows) >= 25
    assert all(row.fired for row in found.rows)
    meant = {rule for row in found.rows for rule in row.fault.rules}
    # Nothing is copied, fenced or swapped. A second victim of one trigger there is not: each leaves for itself.
    nothing = {"victim/yield", "victim/minimal", "swap/fence", "live/no-thrash", "live/survives", "frame/once"}
    session = connect(version)
    try:
        header = started(session).header
    finally:
        session.close()
    assert meant >= observable(header.observes) - nothing - {"resume/provenance", "resume/publish"}
