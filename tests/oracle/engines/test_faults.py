from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from preempt_oracle.engines import child, vllm_faults
from preempt_oracle.engines.faults import Fault, Injection, inject
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.rules import RULES

ENGINES = Path(child.__file__).parent


class Pool:
    def free(self, n: int) -> int:
        return n

    def both(self) -> int:
        return self.free(1) + self.free(2)


def _doubled(into: Injection, pool: Any) -> None:
    def free(original: Any, n: int) -> Any:
        into.acted()
        return 2 * original(n)

    into.wrap(pool, "free", free)


DOUBLED = Fault("doubled", "Frees twice as much.", ("pool/conserve",), _doubled)


def put(pool: Any, fault: Fault = DOUBLED) -> Injection:
    into = Injection((fault,), fault)
    into.put(pool)
    return into


def test_the_method_of_one_object_is_wrapped_and_restored():
    pool, other = Pool(), Pool()
    into = put(pool)
    assert pool.both() == 6
    assert other.both() == 3
    assert into.fired == 2
    into.remove()
    into.remove()
    assert pool.both() == 3
    assert vars(pool) == {}


def test_a_class_is_wrapped_and_restored():
    def double(into: Injection, _: Any) -> None:
        into.wrap(Pool, "free", lambda original, pool, n: 2 * original(pool, n))

    pool = Pool()
    into = put(pool, Fault("class", "", ("pool/conserve",), double))
    assert pool.both() == 6
    into.remove()
    assert pool.both() == 3


def test_two_wrappers_of_one_method_come_off_in_turn():
    def twice(into: Injection, pool: Any) -> None:
        _doubled(into, pool)
        _doubled(into, pool)

    pool = Pool()
    into = put(pool, Fault("twice", "", ("pool/conserve",), twice))
    assert pool.free(1) == 4
    into.remove()
    assert pool.free(1) == 1


def test_an_observer_on_top_may_have_taken_both_off():
    pool = Pool()
    into = put(pool)
    pool.free = pool.free  # type: ignore[method-assign]  # what a watch does: it wraps, and deletes its wrapper
    pool.free = lambda n: -n  # type: ignore[method-assign]
    del pool.free
    into.remove()
    assert pool.free(1) == 1


def test_a_method_that_is_not_there_makes_the_adapter_unsupported():
    fault = Fault("odd", "", ("pool/conserve",), lambda into, pool: into.wrap(pool, "flee", lambda original: original))
    with pytest.raises(child.Unsupported, match="Pool has no method flee: fault 'odd'"):
        put(Pool(), fault)


def test_what_a_start_asks_for():
    config = {"options": {"fault": "doubled", "other": 1}}
    into = inject(config, [DOUBLED])
    assert into is not None
    assert into.fault is DOUBLED
    assert config == {"options": {"other": 1}}
    none = inject({"options": {"fault": ""}}, [DOUBLED])
    assert none is not None
    assert none.fault is None
    assert inject({"options": {}}, [DOUBLED]) is None
    assert inject({}, [DOUBLED]) is None
    with pytest.raises(child.Refused, match="'x' is none of doubled"):
        inject({"options": {"fault": "x"}}, [DOUBLED])


def test_without_a_fault_nothing_is_wrapped():
    pool = Pool()
    Injection((DOUBLED,), None).put(pool)
    assert pool.both() == 3


ADAPTER = """
import sys
sys.path.insert(0, {engines!r})
from child import Engine, Refused, serve
from faults import Fault, inject

def put(into, engine):
    def step(original):
        into.acted()
        return original()
    into.wrap(engine, "decide", step)

class Fake(Engine):
    def start(self, config):
        self.injection = inject(config, [Fault("often", "Decides oddly.", ("queue/order",), put)])
        if self.injection is not None:
            self.injection.put(self)
        return {{"event": "header"}}
    def decide(self): return 0
    def step(self): return {{"event": "step", "frame": self.decide()}}
    def abort(self, request): raise Refused("no")
    def deliver(self, cmd): raise KeyError("mine")
    def stop(self):
        if self.injection is not None:
            self.injection.remove()
serve(Fake(), "json")
"""


def test_a_child_tells_of_its_faults_only_when_asked(tmp_path, speak):
    (tmp_path / "adapter.py").write_text(ADAPTER.format(engines=str(ENGINES)))
    fake = speak([sys.executable, str(tmp_path / "adapter.py")])
    assert fake("start", config={}) == {"event": "header"}
    assert fake("step") == {"event": "step", "frame": 0}
    told = fake("start", config={"options": {"fault": "often"}})
    assert told.pop("faults") == [
        DOUBLED.told() | {"name": "often", "does": "Decides oddly.", "rules": ["queue/order"]}
    ]
    assert told == {"event": "header", "fired": 0}
    assert fake("step") == {"event": "step", "frame": 0, "fired": 1}
    assert fake("abort", request="a") == {"event": "refused", "reason": "no", "fired": 1}
    assert fake("stop") == {"event": "stopped", "fired": 1}
    assert fake("start", config={"options": {"fault": "x"}})["event"] == "refused"
    fake("start", config={"options": {"fault": "often"}})
    fake("step")
    failed = fake("deliver", frame=0, requests=[], tokens=[])
    assert (failed["event"], failed["fired"]) == ("engine_error", 1)
    assert fake("start", config={}) == {"event": "header"}
    assert fake.end()[0] == 0


@pytest.mark.parametrize("fault", vllm_faults.FAULTS, ids=lambda f: f.name)
def test_a_fault_of_vllm_says_what_it_is_and_which_rule_it_is_for(fault):
    assert fault.does.endswith(".")
    assert fault.rules
    assert {*fault.rules, *fault.also} <= RULES.keys()
    assert not {*fault.rules} & {*fault.also}
    assert fault.why or len(fault.rules) + len(fault.also) == 1
    assert {*fault.policies} <= PROFILES.keys()


def test_vllm_has_a_fault_for_nearly_every_rule():
    """What is left cannot be had by wrapping the scheduler's methods: a fence, a reject, a circle, a host tier."""
    names = [f.name for f in vllm_faults.FAULTS]
    assert len(set(names)) == len(names) >= 40
    left = RULES.keys() - {r for f in vllm_faults.FAULTS for r in f.rules}
    assert left <= {"victim/yield", "live/oversize", "live/no-thrash", *(r for r in RULES if r.startswith("swap/"))}
