"""Faults put into the reference, in this process: every way in which a row can end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from preempt_oracle.adapters.inprocess import InProcess
from preempt_oracle.adapters.protocol import HarnessError, Session
from preempt_oracle.adapters.reference import ReferenceEngine
from preempt_oracle.engines.faults import Fault, Injection, inject
from preempt_oracle.inject import Fault as Told
from preempt_oracle.inject import NoFaults, Outcome, injected
from preempt_oracle.verdict import Verdict
from preempt_properties.known_bad import KnownBad
from preempt_properties.known_bad.queues import AdmitsTheYoungest, IgnoresTheWatermark, RequeuesAtTheBack
from preempt_properties.scenario import Abort, Add, Config, Scenario
from preempt_spec.reference import Reference


def becomes(bad: type[KnownBad], acts: bool = True) -> Any:
    """A fault that makes the reference one of its known-bad relatives."""

    def put(into: Injection, engine: Any) -> None:
        engine.scheduler = bad

        def step(original: Any) -> Any:
            if acts:
                into.acted()
            return original()

        into.wrap(engine, "step", step)

    return put


def _harmless(into: Injection, engine: Any) -> None:
    def step(original: Any) -> Any:
        into.acted()
        return original()

    into.wrap(engine, "step", step)


def _nonsense(into: Injection, engine: Any) -> None:
    def step(original: Any) -> Any:
        into.acted()
        return {**original(), "tokens": ["many"]}

    into.wrap(engine, "step", step)


def _deaf(into: Injection, engine: Any) -> None:
    raise RuntimeError("nobody home")


FRONT = Fault("front", "Requeues at the back.", ("queue/front",), becomes(RequeuesAtTheBack))
YOUNGEST = Fault("youngest", "Admits the youngest.", ("queue/order",), becomes(AdmitsTheYoungest))


class Faulty(ReferenceEngine):
    faults: tuple[Fault, ...] = (FRONT, YOUNGEST)
    scheduler: type[Reference] = Reference
    lost: frozenset[str] = frozenset()

    def start(self, config: dict[str, Any]) -> dict[str, Any]:
        if self.injection is not None:
            self.injection.remove()  # a start after an error comes without a stop
        self.scheduler = type(self).scheduler
        self.injection = inject(config, self.faults)
        if self.injection is not None:
            self.injection.put(self)
        reply = super().start(config)
        return {**reply, "observes": sorted({*reply["observes"]} - self.lost)}

    def stop(self) -> None:
        if self.injection is not None:
            self.injection.remove()
        super().stop()


def look(*faults: Fault, engine: type[ReferenceEngine] = Faulty, policy: str = "vllm-fcfs", **more: Any) -> Any:
    def connect() -> Session:
        one = engine()
        if faults:
            one.faults = faults  # type: ignore[attr-defined]
        return Session(InProcess(one, "faulty", "preempt_spec"))

    return injected(connect, policy, **more)


def test_each_fault_is_caught_by_its_rule_and_the_control_is_clean():
    found = look()
    assert [row.outcome for row in found.rows] == [Outcome.CAUGHT] * 2
    assert [row.named[0].rule for row in found.rows] == ["queue/front", "queue/order"]
    assert all(row.fired and row.acted and row.frame >= 0 for row in found.rows)
    assert found.controls
    assert not found.alarms
    assert found.verdict is Verdict.CONFORMS


def test_the_same_seed_gives_the_same_table():
    assert look(seed=7) == look(seed=7)


def outcome(fault: Fault, **more: Any) -> tuple[Outcome, Verdict]:
    found = look(fault, limit=20, **more)
    (row,) = found.rows
    return row.outcome, found.verdict


def test_a_fault_that_another_rule_names():
    fault = Fault("front", "", ("victim/choice",), FRONT.put)
    assert outcome(fault) == (Outcome.OTHER, Verdict.VIOLATES)


def test_a_second_rule_must_be_announced():
    assert outcome(Fault("front", "", ("queue/front",), FRONT.put, also=("queue/order",)))[0] is Outcome.CAUGHT
    both = Fault("front", "", ("queue/order", "queue/front"), FRONT.put)
    assert outcome(both)[0] is Outcome.CAUGHT


def test_a_fault_that_nobody_notices():
    assert outcome(Fault("quiet", "", ("queue/front",), _harmless)) == (Outcome.MISSED, Verdict.VIOLATES)


def test_a_fault_that_never_acts_is_not_one_that_was_missed():
    fault = Fault("idle", "", ("queue/front",), lambda into, engine: None)
    assert outcome(fault) == (Outcome.IDLE, Verdict.INCONCLUSIVE)


def test_a_violation_in_a_run_in_which_the_fault_did_not_act_is_not_its_own():
    fault = Fault("front", "", ("queue/front",), becomes(RequeuesAtTheBack, acts=False))
    assert outcome(fault) == (Outcome.OTHER, Verdict.VIOLATES)


def test_a_fault_that_breaks_the_harness_does_not_stop_the_others():
    found = look(Fault("nonsense", "", ("queue/front",), _nonsense), FRONT)
    assert [row.outcome for row in found.rows] == [Outcome.BROKE, Outcome.CAUGHT]
    assert found.verdict is Verdict.BROKEN
    assert "tokens" in found.rows[0].note


def test_a_fault_that_cannot_be_put_breaks_the_harness():
    assert outcome(Fault("deaf", "", ("queue/front",), _deaf)) == (Outcome.BROKE, Verdict.BROKEN)


class Blind(Faulty):
    lost = frozenset({"place", "queues"})


@pytest.mark.long
def test_what_an_adapter_does_not_observe_is_said():
    found = look(Fault("front", "", ("queue/front",), FRONT.put), engine=Blind, limit=20)
    assert (found.rows[0].outcome, found.rows[0].note) == (Outcome.MISSED, "not observed: place, queues")
    told = Fault("front", "", ("queue/front",), FRONT.put, lacks=("place", "queues"))
    found = look(told, engine=Blind, limit=20)
    assert (found.rows[0].outcome, found.rows[0].note) == (Outcome.UNSEEN, "lacks place, queues")
    assert found.verdict is Verdict.CONFORMS


def test_workloads_that_break_a_rule_by_themselves_are_alarms_and_show_no_fault():
    class Broken(Faulty):
        scheduler = RequeuesAtTheBack

    found = look(Fault("quiet", "", ("queue/front",), _harmless), engine=Broken, limit=20)
    assert found.alarms
    assert {v.rule for seen in found.alarms.values() for v in seen} == {"queue/front"}
    assert found.rows[0].outcome is Outcome.MISSED  # and not caught by what the engine does anyway
    assert found.verdict is Verdict.VIOLATES


def test_a_fault_goes_to_the_workloads_in_which_it_can_act():
    fault = Fault("mark", "", ("queue/admission",), becomes(IgnoresTheWatermark), config={"watermark": True})
    found = look(fault)
    assert found.rows[0].outcome is Outcome.CAUGHT
    config = Config("vllm-fcfs", 8, 2, 4, 16, 16, watermark=2)
    told = msgspec.convert(fault.told(), Told)
    assert told.fits(Scenario(config, ()))
    assert not Told("x", "", ("a",), config={"watermark": False}).fits(Scenario(config, ()))
    assert Told("x", "", ("a",), config={"page_size": 2}).fits(Scenario(config, ()))
    a, b = Add("a", (1,), 1), Add("b", (1,), 1, priority=1, salt="s")
    whole = Scenario(config, (a, b, Abort("a")))
    for word in ("abort", "salt", "priority"):
        assert Told("x", "", ("a",), script=(word,)).fits(whole)
        assert not Told("x", "", ("a",), script=(word,)).fits(Scenario(config, (a,)))


def test_faults_of_another_policy_are_left_out():
    found = look(FRONT, Fault("other", "", ("queue/front",), FRONT.put, policies=("vllm-priority",)))
    assert found.elsewhere == ("other",)
    assert len(found.rows) == 1


def test_some_can_be_chosen():
    assert [row.fault.name for row in look(only=frozenset({"youngest"})).rows] == ["youngest"]
    with pytest.raises(NoFaults, match="no fault 'oldest'; there are front, youngest"):
        look(only=frozenset({"oldest"}))


def test_an_adapter_without_faults():
    with pytest.raises(NoFaults, match="it lists none"):
        look(engine=ReferenceEngine)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("odd", "", ("queue/back",), FRONT.put), "there is no rule 'queue/back'"),
        (Fault("odd", "", (), FRONT.put), "names no rule"),
        (Fault("odd", "", ("queue/front",), FRONT.put, policies=("lifo",)), "there is no profile 'lifo'"),
        (Fault("odd", "", ("queue/front",), FRONT.put, lacks=("place",)), "lacks 'place', which is no observation"),
        (Fault("odd", "", ("queue/front",), FRONT.put, lacks=("taste",)), "lacks 'taste'"),
    ],
)
def test_a_fault_that_is_told_wrongly_is_a_broken_harness(fault, message):
    with pytest.raises(HarnessError, match=message):
        look(fault)


def test_nonsense_about_faults_is_a_broken_harness():
    class Lists(Faulty):
        def start(self, config: dict[str, Any]) -> dict[str, Any]:
            reply = super().start(config)
            self.injection = None
            return {**reply, "faults": [{"name": 1}]}

    with pytest.raises(HarnessError, match="faults: Expected `str`"):
        look(engine=Lists)

    class Counts(Injection):
        def told(self, do: str) -> dict[str, Any]:
            return {**super().told(do), "fired": "often"}

    class Miscounts(Faulty):
        def start(self, config: dict[str, Any]) -> dict[str, Any]:
            reply = super().start(config)
            if self.injection is not None:
                self.injection = Counts(self.faults, None)
            return reply

    with pytest.raises(HarnessError, match="fired: expected a count, not 'often'"):
        look(engine=Miscounts)
