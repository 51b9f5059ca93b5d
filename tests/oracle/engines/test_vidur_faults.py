"""Vidur, repaired, and then broken on purpose: one fault at a time, each named by the rule it is for."""

from __future__ import annotations

import pytest

from preempt_oracle.adapters.protocol import Refused, Session
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.engines import environments
from preempt_oracle.inject import Outcome, injected
from preempt_properties.scenario import Config
from preempt_spec.system import observable

pytestmark = pytest.mark.light

ENGINE, POLICY = "vidur", "vidur-vllm"
CONFIG = Config(POLICY, 8, 4, 4, 64, 32, chunked=False)


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
    # It has no abort, and no release waits for a transfer: nothing to break. To thrash, each of its preemptions would
    # have to be in order.
    nothing = {"edge/abort", "victim/yield", "live/no-thrash"}
    assert meant == observable(started().header.observes) - nothing


def test_an_unknown_fault_is_refused_and_the_next_start_has_none():
    session = connect(fault="no-such-fault")
    try:
        answer = session.start(CONFIG)
        assert isinstance(answer, Refused)
        assert "no-such-fault" in answer.reason
        session.options = {}
        assert not isinstance(session.start(CONFIG), Refused)
    finally:
        session.close()
