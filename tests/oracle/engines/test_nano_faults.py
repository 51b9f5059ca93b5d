"""nano-vllm-fork, repaired, and then broken again on purpose: one fault at a time, each named by the rule it is for."""

from __future__ import annotations

from random import Random

import pytest

from preempt_oracle.adapters.protocol import Refused, Session, Started
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.drive import Run, drive
from preempt_oracle.engines import environments
from preempt_oracle.inject import Outcome, injected
from preempt_oracle.verdict import Tally
from preempt_properties.scenario import Config
from preempt_properties.workload import workload
from preempt_spec.system import observable

pytestmark = pytest.mark.light

ENGINE, POLICY = "nano-vllm-fork", "nano-vllm"
CONFIG = Config(POLICY, 8, 4, 4, 64, 32, chunked=False, caching=True)


def connect(**options):
    version = environments.ENGINES[ENGINE].versions[-1]
    found = environments.ready(ENGINE, version)
    if found is None:
        pytest.skip(f"needs `preempt-oracle engines install {ENGINE}=={version}`")
    return Session(Stdio(found.command, ENGINE, env=found.env), options)


def started(**options):
    session = connect(**options)
    try:
        return session.start(CONFIG)
    finally:
        session.close()


def driven(session, seeds):
    """The runs of these workloads, and what they showed together."""
    header = session.start(CONFIG)
    assert isinstance(header, Started)
    session.stop()
    tally, runs = Tally(ENGINE, "", POLICY), list[Run]()
    for seed in seeds:
        run = drive(session, workload(Random(seed), POLICY, capabilities=header.capabilities), seed)
        assert isinstance(run, Run)
        runs.append(run)
        tally.add(run.monitor, run.header.observes)
    return tally, runs


@pytest.fixture(scope="module")
def found():
    return injected(connect, POLICY, limit=60)


def test_every_fault_is_named_by_the_rule_it_is_for(found):
    assert {row.fault.name: row.named for row in found.rows if row.outcome is not Outcome.CAUGHT} == {}
    assert not found.alarms
    assert len(found.rows) >= 10
    assert all(row.fired for row in found.rows)


def test_the_faults_reach_every_rule_that_can_be_observed(found):
    meant = {rule for row in found.rows for rule in row.fault.rules}
    # It has no abort, no copies, and no release waits for a transfer: nothing to break. To thrash, each of its
    # preemptions would have to be in order. What a frame brought is the harness's own; what it loses of that, it emits.
    nothing = {"edge/abort", "victim/yield", "swap/fence", "live/no-thrash", "frame/once"}
    assert meant == observable(started().header.observes) - nothing


def test_repaired_it_follows_the_profile():
    session = connect(repair=True)
    try:
        tally, runs = driven(session, range(60))
    finally:
        session.close()
    assert [run.violations for run in runs if run.violations] == []
    assert tally.preemptions > 50
    assert tally.resumes == tally.preemptions
    assert not tally.missing


def test_unrepaired_it_does_not():
    session = connect()
    try:
        _, runs = driven(session, range(40))
    finally:
        session.close()
    assert {"victim/choice", "queue/one-place", "resume/hit"} <= {v.rule for run in runs for v in run.violations}


def test_it_says_what_was_repaired_also_in_a_run_with_a_fault():
    assert not started().header.assumes
    repaired = started(repair=True).header.assumes
    assert len(repaired) == 2
    assert all("repaired by the adapter" in line for line in repaired)


def test_an_unknown_fault_or_option_is_refused():
    for options in ({"fault": "no-such-fault"}, {"repairs": True}):
        answer = started(**options)
        assert isinstance(answer, Refused)
        assert str(next(iter(options.values() if "fault" in options else options))) in answer.reason


def test_a_fault_is_gone_with_the_run_it_was_asked_for():
    session = connect(repair=True)
    try:
        for _ in range(2):
            session.options = {"fault": "crashes-freeing-twice"}
            transport, session.transport = session.transport, Plain(session.transport)
            run = drive(session, workload(Random(0), POLICY, capabilities=frozenset({"caching", "unchunked"})))
            assert isinstance(run, Run)
            assert [v.rule for v in run.violations] == ["live/survives"]
            session.options, session.transport = {"repair": True}, transport
            run = drive(session, workload(Random(0), POLICY, capabilities=frozenset({"caching"})))
            assert isinstance(run, Run)
            assert not run.violations
    finally:
        session.close()


class Plain:
    """A transport without what replies tell of faults."""

    def __init__(self, inner):
        self.inner = inner
        self.name = inner.name

    def exchange(self, command):
        reply = self.inner.exchange(command)
        return {key: value for key, value in reply.items() if key not in ("fired", "faults")}

    def close(self):
        self.inner.close()
