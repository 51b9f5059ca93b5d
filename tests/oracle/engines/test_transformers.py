"""Continuous batching of transformers, live: its books, its copies, every injected fault, its model's KV."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from preempt_oracle.adapters.protocol import Refused, Session, Started
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.content_run import command, compare, injected
from preempt_oracle.drive import Run, drive
from preempt_oracle.engines import environments
from preempt_oracle.found import findings, rules
from preempt_oracle.inject import Outcome
from preempt_oracle.inject import injected as faults_of
from preempt_oracle.trace import wire
from preempt_oracle.verdict import Verdict
from preempt_properties.scenario import Config
from preempt_properties.workload import workload
from preempt_spec.policies.profiles import PROFILES

pytestmark = pytest.mark.transformers

ENGINE = "transformers"
POLICIES = environments.ENGINES[ENGINE].policies
VERSIONS = environments.ENGINES[ENGINE].versions
FINDINGS = findings(ENGINE, VERSIONS)
CACHING = frozenset({"abort", "caching", "chunked"})


def environment(version=VERSIONS[-1]):
    found = environments.ready(ENGINE, version)
    if found is None:
        pytest.skip(f"needs `preempt-oracle engines install {ENGINE}=={version}`")
    return found


def connect(**options):
    found = environment()
    return Session(Stdio(found.command, ENGINE, env=found.env), options)


def config(policy, **fields):
    return Config(policy, **{"blocks": 8, "page_size": 4, "max_running": 4, "budget": 64, "max_length": 32, **fields})


@pytest.fixture(scope="module")
def session():
    made = connect()
    yield made
    made.close()


@pytest.mark.parametrize("policy", POLICIES)
def test_it_breaks_nothing_but_what_was_found(session, policy):
    started = session.start(config(policy))
    assert isinstance(started, Started)
    known = rules(f"{ENGINE}=={VERSIONS[-1]}", policy)
    preemptions = resumes = 0
    for seed in range(40):
        run = drive(session, workload(Random(seed), policy, capabilities=started.capabilities), seed)
        assert isinstance(run, Run)
        assert {v.rule for v in run.violations} <= known, (seed, run.violations)
        preemptions += run.monitor.shadow.preemptions
        resumes += run.monitor.shadow.resumes
    assert min(preemptions, resumes) > 40


@pytest.mark.parametrize("policy", POLICIES)
def test_every_fault_is_named_by_the_rule_it_is_for(policy):
    found = faults_of(connect, policy, known=rules(f"{ENGINE}=={VERSIONS[-1]}", policy))
    assert len(found.rows) >= 10
    assert {r.fault.name: r.outcome for r in found.rows if r.outcome is not Outcome.CAUGHT} == {}
    assert not found.alarms


def test_pages_are_shared(session):
    """Hits behind which there is room and others, pages computed twice and kept once, findable ones given up."""
    seen = Counter[str]()
    for seed in range(60):
        scenario = workload(Random(seed), "hf-cb", capabilities=CACHING)
        if not scenario.config.caching:
            continue
        run = drive(session, scenario, seed)
        assert isinstance(run, Run)
        events = [line for line in run.events if isinstance(line, wire.Step | wire.Deliver)]
        seen.update(type(a).__name__ for line in events for a in line.acts)
        seen["hits"] += sum(len(line.hits) for line in events if type(line) is wire.Step)
    assert min(seen[name] for name in ("hits", "Load", "Publish", "Withdraw", "Exchange")) > 5


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda f: f.name)
@pytest.mark.parametrize("version", VERSIONS)
def test_findings_are_as_listed(finding, version):
    found = environment(version)
    made = Session(Stdio(found.command, ENGINE, env=found.env), {})
    try:
        run = drive(made, finding.scenario)
    finally:
        made.close()
    assert isinstance(run, Run)
    shown = finding.scenario.rule in {v.rule for v in run.violations}
    assert shown == (version in finding.versions)


@pytest.mark.parametrize(
    "fields",
    [
        {"page_size": 3},
        {"chunked": False},
        {"long_prefill": 4},
        {"watermark": 1},
        {"budget": 3},
        {"max_length": 34},
        {"groups": "full+sliding"},
        {"frames": 2},
    ],
    ids=lambda f: next(iter(f)),
)
def test_what_is_outside_its_contract_is_refused(session, fields):
    assert isinstance(session.start(config("hf-cb", **fields)), Refused)


def test_an_unknown_policy_and_an_unknown_option_are_refused(session):
    assert isinstance(session.start(config("vllm-fcfs")), Refused)
    other = connect(x=1)
    try:
        assert isinstance(other.start(config("hf-cb")), Refused)
    finally:
        other.close()


@pytest.fixture(scope="module")
def model():
    found = environment()
    made = Stdio(command(found), ENGINE, env=dict(found.env))
    yield made
    made.close()


def test_kv_comes_back_bit_for_bit_and_outputs_do_not_show_the_pressure(model):
    found = compare(model, 1, 60, lambda _: None)
    assert found.violations == []
    assert found.verdict(60) is Verdict.CONFORMS
    assert found.recomputed > 0
    assert found.slots > 40 * found.victims


def test_every_fault_in_the_memory_is_named(model):
    rows = list(injected(model, 0))
    assert len(rows) >= 10
    assert [(r.fault.name, r.rules, r.message) for r in rows if not r.rightly] == []


def test_every_policy_of_it_has_a_profile():
    assert set(POLICIES) <= PROFILES.keys()
