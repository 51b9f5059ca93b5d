"""SGLang live: what its adapter declares and refuses, that it follows its profile, that each fault is named.

Importing it takes up to half a minute, so nothing else selects these: `pytest -m sglang`.
"""

from __future__ import annotations

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
from preempt_properties.scenario import Abort, Add, Config, Scenario, Step
from preempt_properties.workload import workload
from preempt_spec.system import observable

pytestmark = [pytest.mark.sglang, pytest.mark.slow]

ENGINE = "sglang"
POLICIES = POLICY, PRIORITY = environments.ENGINES[ENGINE].policies
VERSION = environments.ENGINES[ENGINE].versions[-1]
CONFIG = Config(POLICY, 8, 4, 4, 64, 24, chunked=False, caching=True)
#: Tokens one by one, no cache: what is retracted and when can be counted on one's fingers.
PLAIN = Config(POLICY, 16, 1, 4, 16, 14, chunked=False)


def connect(**options):
    found = environments.ready(ENGINE, VERSION)
    if found is None:
        pytest.skip(f"needs `preempt-oracle engines install {ENGINE}=={VERSION}`")
    return Session(Stdio(found.command, ENGINE, env=found.env), options)


@pytest.fixture(scope="module")
def session():
    opened = connect()
    yield opened
    opened.close()


def played(session, config, *script):
    """The run of a scenario that breaks nothing."""
    run = drive(session, Scenario(config, script))
    assert isinstance(run, Run)
    assert run.violations == ()
    return run


def acts(run, kind):
    return [a for e in run.events for a in getattr(e, "acts", ()) if type(a) is kind]


def test_it_says_who_it_is_and_declares_nothing_that_it_does_not_have(session):
    started = session.start(CONFIG)
    assert isinstance(started, Started)
    session.stop()
    assert (started.header.engine, started.header.version, started.header.assumes) == ("sglang", "0.5.23", ())
    assert started.capabilities == {"abort", "caching", "salt", "unchunked"}
    assert not {"reject", "stats", "copies", "host"} & started.header.observes
    assert started.header.pools[0].reserved == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"policy": "vllm-fcfs"}, "drives sglang-retract and sglang-priority"),
        ({"chunked": True}, "only has chunked=False"),
        ({"long_prefill": 2}, "only has long_prefill=0"),
        ({"watermark": 1}, "only has watermark=0"),
        ({"frames": 2}, "only has frames=1"),
        ({"budget": 20}, "needs max_length"),
        ({"max_length": 28}, "leaves no page and a token free"),
        ({"blocks": 2, "max_length": 2}, "blocks=2: must be an integer of at least 3"),
    ],
)
def test_what_is_outside_its_contract_is_refused(session, change, why):
    fields = {f: getattr(CONFIG, f) for f in ("policy", "blocks", "page_size", "max_running", "budget", "max_length")}
    more = {"chunked": False, "caching": True}
    answer = session.start(Config(**{**fields, **more, **change}))
    assert isinstance(answer, Refused)
    assert why in answer.reason


def test_options_are_refused():
    session = connect(fast=True)
    try:
        answer = session.start(CONFIG)
    finally:
        session.close()
    assert isinstance(answer, Refused)
    assert "unknown option 'fast'" in answer.reason


def test_who_has_least_to_lose_goes_and_who_stays_is_sorted(session):
    """Equal prompts of 4: the last of equals goes to the back of the queue, and comes back when there is room."""
    run = played(session, PLAIN, *(Add(r, tuple(range(10 * i, 10 * i + 4)), 8) for i, r in enumerate("abc")))
    demoted = acts(run, wire.Demote)
    assert demoted[0].request == "c"
    assert demoted[0].beneficiaries == ("a", "b", "c")
    assert demoted[0].need > demoted[0].supply
    assert acts(run, wire.Requeue)[0].index == 0
    assert run.monitor.shadow.resumes == run.monitor.shadow.preemptions > 0


def test_what_two_prompts_share_is_kept_once(session):
    """Admitted together neither finds the other's pages; behind the prefill the tree has one copy of them."""
    run = played(session, CONFIG, Add("a", tuple(range(8)), 4), Add("b", tuple(range(8)), 4))
    (exchange,) = acts(run, wire.Exchange)
    assert exchange.request == "b"
    assert len(exchange.blocks) == len(exchange.instead) == 2
    steps = [e for e in run.events if type(e) is wire.Step]
    assert [r.count for r in steps[1].observed.refs or ()] == [2, 2]


def test_an_aborted_request_leaves_its_queue_and_one_that_runs_is_not_aborted(session):
    adds = [Add(r, tuple(range(10 * i, 10 * i + 4)), 8) for i, r in enumerate("abc")]
    run = played(session, Config(POLICY, 16, 1, 2, 16, 14, chunked=False), *adds, Step(2), Abort("c"), Abort("a"))
    assert [e.request for e in run.events if type(e) is wire.Abort] == ["c"]
    assert [e.request for e in run.events if type(e) is wire.Finish] == ["a", "b"]


def test_a_request_that_the_front_end_would_shorten_is_refused(session):
    run = drive(session, Scenario(CONFIG, (Add("a", tuple(range(24)), 1),)))
    assert isinstance(run, Refused)
    assert "together at most 24" in run.reason


def test_a_better_request_takes_the_slot_of_a_worse_one_by_more_than_the_threshold(session):
    """It is in the same step's prefill; who made way waits behind it, and comes back."""
    adds = (Add("a", (1, 2), 6, priority=2), Step(2), Add("b", (3, 4), 6, priority=1), Step(2), Add("c", (5, 6), 2))
    for threshold, victims in ((0, ["a", "b"]), (1, ["a"])):
        config = evolve(PLAIN, policy=PRIORITY, max_running=1, threshold=threshold)
        run = played(session, config, *adds)
        demoted = acts(run, wire.Demote)
        assert [d.request for d in demoted] == victims
        assert {d.cause for d in demoted} == {"admission"}
        assert run.monitor.shadow.resumes == run.monitor.shadow.preemptions == len(victims)


@pytest.mark.parametrize("policy", POLICIES)
def test_it_follows_its_profile_and_does_the_same_twice(session, policy):
    started = session.start(evolve(CONFIG, policy=policy))
    assert isinstance(started, Started)
    session.stop()
    tally, known = Tally(ENGINE, "", policy), rules(f"{ENGINE}=={VERSION}", policy)
    for seed in range(120):
        scenario = workload(Random(seed), policy, capabilities=started.capabilities)
        run = drive(session, scenario, seed)
        assert isinstance(run, Run)
        assert {v.rule for v in run.violations} <= known, (seed, run.violations)
        if seed % 20 == 0:
            again = drive(session, scenario, seed)
            assert isinstance(again, Run)
            assert again.events == run.events
        tally.add(run.monitor, run.header.observes)
    assert tally.preemptions > 80
    assert tally.resumes > 80
    assert not tally.missing


@pytest.mark.parametrize("finding", findings(ENGINE, (VERSION,)), ids=lambda f: f.name)
def test_findings_are_as_listed(session, finding):
    run = drive(session, finding.scenario)
    assert isinstance(run, Run)
    assert [v.rule for v in run.violations] == [finding.scenario.rule]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_fault_is_named_by_the_rule_it_is_for(session, policy):
    found = injected(connect, policy, limit=200, known=rules(f"{ENGINE}=={VERSION}", policy))
    assert {row.fault.name: row.named for row in found.rows if row.outcome is not Outcome.CAUGHT} == {}
    assert not found.alarms
    assert all(row.fired for row in found.rows)
    meant = {rule for row in found.rows for rule in row.fault.rules}
    # No copies, and no release that waits for anything. To thrash, each of its preemptions would have to be in order,
    # and the ratio behind its gate is hidden. A grant without room takes pages that others hold first. What a frame
    # brought is the harness's own; what the engine loses of that, it does not emit.
    nothing = {"victim/yield", "swap/fence", "live/no-thrash", "pool/capacity", "frame/once"}
    started = session.start(evolve(CONFIG, policy=policy))
    assert isinstance(started, Started)
    assert meant == observable(started.header.observes) - nothing
