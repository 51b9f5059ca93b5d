"""Which runs an entry describes, what counts as seen, and when an entry is stale."""

from __future__ import annotations

import pytest
from attrs import evolve

from preempt_oracle.known import Bounds, Known, Ledger, Scene, Scenery
from preempt_oracle.known.entry import FACTS
from preempt_oracle.monitor import Monitor
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_wire
from preempt_properties.play import header
from preempt_properties.scenario import Config
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.rules import RULES

FACTS_OF = {"caching": True, "chunked": True, "long_prefill": 3, "blocks": 8, "ties": False}
SCENE = Scene("e", "1", "vllm-fcfs", FACTS_OF, "broken-1.jsonl")
ENTRY = Known(("queue/front",), "e", ("1", "2"), "vllm-fcfs", "Because.", {"caching": True}, place="k.toml:1")
ALL = frozenset(RULES)


@pytest.mark.parametrize(
    ("change", "describes"),
    [
        ({}, True),
        ({"engine": "f"}, False),
        ({"versions": ("1.0",)}, False),
        ({"policy": "vllm-priority"}, False),
        ({"where": {}}, True),
        ({"where": {"caching": False}}, False),
        ({"where": {"caching": True, "ties": True}}, False),
        ({"where": {"long_prefill": Bounds(1)}}, True),
        ({"where": {"long_prefill": Bounds(4)}}, False),
        ({"where": {"long_prefill": Bounds(max=3), "blocks": 8}}, True),
        ({"where": {"blocks": 9}}, False),
        ({"trace": "broken-*.jsonl"}, True),
        ({"trace": "Broken-*"}, False),
        ({"trace": "broken"}, False),
    ],
)
def test_an_entry_describes_a_run_or_it_does_not(change, describes):
    assert evolve(ENTRY, **change).describes(SCENE) is describes


def test_an_entry_about_a_trace_describes_no_live_run():
    assert not evolve(ENTRY, trace="*").describes(evolve(SCENE, trace=""))


def noted(*entries: Known) -> Ledger:
    return Ledger(entries)


def test_a_known_violation_is_seen_and_its_entry_named():
    ledger = noted(evolve(ENTRY, where={"caching": False}), ENTRY)
    assert ledger.note(SCENE, {"queue/front", "queue/order"}, (), ALL) == {"queue/front": ENTRY}
    assert [(x.seen, x.kept, x.stale) for x in ledger.lines] == [(0, 0, False), (1, 0, False)]


def test_an_entry_whose_family_holds_the_rule_is_stale():
    ledger = noted(ENTRY)
    assert not ledger.stale  # nothing was run: nothing is known
    ledger.note(SCENE, (), (), ALL)
    (line,) = ledger.stale
    assert str(line).startswith("k.toml:1: rules: queue/front: stale: 1 run of its family (e 1, 2, vllm-fcfs: caching")
    ledger.note(SCENE, {"queue/front"}, (), ALL)
    assert not ledger.stale  # it is still seen, though not each time


@pytest.mark.parametrize(
    ("scene", "violated", "tested"),
    [
        (evolve(SCENE, version="3"), (), ALL),  # another engine than it speaks of
        (SCENE, {"queue/order"}, ALL),  # the run ended elsewhere: nobody knows what would have come
        (SCENE, (), ALL - {"queue/front"}),  # it could not be observed
    ],
)
def test_a_run_that_says_nothing_makes_nothing_stale(scene, violated, tested):
    ledger = noted(ENTRY)
    assert not ledger.note(scene, violated, (), tested)
    assert not ledger.stale
    assert ledger.lines[0].kept == 0


def test_within_is_how_many_runs_it_may_take():
    ledger = noted(evolve(ENTRY, within=3))
    for _ in range(2):
        ledger.note(SCENE, (), (), ALL)
    assert not ledger.stale
    ledger.note(SCENE, (), (), ALL)
    assert ledger.stale


def test_each_rule_of_an_entry_is_seen_or_stale_by_itself():
    ledger = noted(evolve(ENTRY, rules=("queue/front", "queue/order")))
    ledger.note(SCENE, {"queue/front"}, (), ALL)
    ledger.note(SCENE, (), (), ALL)
    assert [x.rule for x in ledger.stale] == ["queue/order"]


def test_what_an_advisory_rule_says_may_be_known_and_ends_nothing():
    ledger = noted(evolve(ENTRY, rules=("queue/front", "queue/order")))
    assert ledger.note(SCENE, (), {"queue/front"}, ALL).keys() == {"queue/front"}
    assert [(x.seen, x.kept) for x in ledger.lines] == [(1, 0), (0, 1)]


def test_a_run_shows_its_facts():
    config = Config("vllm-priority", 6, 2, 3, 16, 12, long_prefill=2, caching=True, whole_fit=False, watermark=1)
    head = header(config, reserved=1)
    monitor = Monitor(head, PROFILES[config.policy].contract)
    scenery, told = Scenery(monitor.shadow), to_wire(head)
    assert isinstance(told, wire.Header)
    scene = scenery.scene(told, config.policy, "x.jsonl")
    assert scene.facts.keys() == FACTS.keys()
    expected = {
        "max_running": 3,
        "budget": 16,
        "max_length": 12,
        "long_prefill": 2,
        "chunked": True,
        "caching": True,
        "whole_fit": False,
        "watermark": 1,
        "blocks": 6,
        "page_size": 2,
        "ties": False,
        "drafted": False,
    }
    assert expected.items() <= scene.facts.items()
    assert all(type(value) is (int if FACTS[name] else bool) for name, value in scene.facts.items())
    arrivals = (wire.Arrive("a", (1,), 1, 0, 1), wire.Arrive("b", (1,), 1, 1, 1), wire.Arrive("c", (1,), 1, 1, 1))
    ties = []
    for event in arrivals:
        scenery.see(event)
        monitor.feed(event)
        ties.append(scenery.scene(told, config.policy).facts["ties"])
    assert ties == [False, False, True]
    for proposed, drafted in ((None, False), ((0,), False), ((2,), True), ((0,), True)):
        scenery.see(wire.Deliver(0, ("a",), ((1,),), proposed=proposed))
        assert scenery.scene(told, config.policy).facts["drafted"] is drafted
