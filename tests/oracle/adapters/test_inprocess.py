"""Adapters in this process: whose exception is whose, and the example that conforms."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from preempt_oracle.adapters.inprocess import InProcess, load
from preempt_oracle.adapters.protocol import HarnessError, Refused, Session, Started
from preempt_oracle.adapters.reference import ReferenceEngine
from preempt_oracle.campaign import Budget, campaign
from preempt_oracle.drive import Run, drive
from preempt_oracle.trace import wire
from preempt_oracle.verdict import Verdict
from preempt_properties.scenario import Add, Config, Scenario
from preempt_spec.policies.policy import Memory
from preempt_spec.policies.profiles import PROFILES

EXAMPLES = Path(__file__).parents[3] / "examples"
RUN = [name for name, profile in PROFILES.items() if profile.run]
#: The example has no host tier.
HOSTLESS = [n for n, profile in PROFILES.items() if profile.run and profile.contract.memory is Memory.RECOMPUTE]
CONFIG = Config("vllm-fcfs", 8, 4, 4, 64, 32)


@pytest.mark.profiles
@pytest.mark.parametrize("policy", HOSTLESS)
def test_the_example_conforms(policy: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    found = campaign(
        lambda: Session(load("python_adapter:Adapter")), policy, 1, Budget(25), lambda *_: ("", ""), lambda *_: None
    )
    assert not found.broken
    assert not found.outside
    assert found.tally.verdict is Verdict.CONFORMS, (found.tally.failures, found.tally.missing)


@pytest.mark.profiles
@pytest.mark.parametrize("policy", PROFILES)
def test_the_reference_conforms(policy: str):
    found = campaign(lambda: session(ReferenceEngine), policy, 1, Budget(40), lambda *_: ("", ""))
    expected = Verdict.CONFORMS if policy in RUN else Verdict.INCONCLUSIVE  # what was only read gives no verdict
    assert not found.broken
    assert not found.tally.failures
    assert found.tally.verdict is expected, (found.tally.failures, found.tally.missing)


def test_what_the_reference_does_not_do_is_refused():
    it = session(ReferenceEngine)
    for config, said in {
        evolve(CONFIG, host_blocks=2): "vllm-fcfs swaps nobody",
        evolve(CONFIG, groups="full+recurrent", drafts=1): "a recurrent group",
        evolve(CONFIG, max_length=64): "max_length exceeds the pool",
    }.items():
        refused = it.start(config)
        assert isinstance(refused, Refused)
        assert said in refused.reason


def test_an_adapter_without_controls_refuses_them():
    class Plain:
        """As `load` asks for: no more than these."""

        def __init__(self) -> None:
            it = ReferenceEngine()
            self.start, self.add, self.step, self.deliver, self.stop = it.start, it.add, it.step, it.deliver, it.stop

    it = session(Plain)
    assert isinstance(it.start(CONFIG), Started)
    assert it.control("reset") == Refused("this engine has no control 'reset'")


def session(cls: Callable[[], Any], package: str = "preempt_spec") -> Session:
    return Session(InProcess(cls(), "it", package))


class Raises(ReferenceEngine):
    def step(self) -> dict[str, Any]:
        raise ValueError("in the adapter")


def test_an_exception_of_the_adapter_is_a_broken_harness():
    with pytest.raises(HarnessError, match="it: the adapter raised ValueError"):
        drive(session(Raises), Scenario(CONFIG, (Add("a", (1,), 1),)))


@pytest.mark.parametrize(
    ("file", "where"),
    [
        ("fragile_engine/__init__.py", "fragile_engine/__init__.py:2 in schedule"),
        ("fragile_engine.py", "fragile_engine.py:2 in schedule"),  # an engine need not be a package
    ],
)
def test_an_exception_of_the_engine_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, where: str
):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("def schedule():\n    return [][0]\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "fragile_engine", raising=False)

    class Fragile(ReferenceEngine):
        def step(self) -> dict[str, Any]:
            import fragile_engine  # type: ignore[import-not-found]

            fragile_engine.schedule()
            raise AssertionError

    run = drive(session(Fragile, "fragile_engine"), Scenario(CONFIG, (Add("a", (1,), 1),)))
    assert isinstance(run, Run)
    assert [v.rule for v in run.violations] == ["live/survives"]
    error = run.events[-1]
    assert isinstance(error, wire.EngineError)
    assert error.where == where


def test_what_an_adapter_raises_inside_of_a_call_of_the_engine_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "calling_engine.py").write_text("def schedule(seen):\n    seen()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "calling_engine", raising=False)

    class Watching(ReferenceEngine):
        def step(self) -> dict[str, Any]:
            import calling_engine  # type: ignore[import-not-found]

            calling_engine.schedule(lambda: [][0])
            raise AssertionError

    with pytest.raises(HarnessError, match="the adapter raised IndexError"):
        drive(session(Watching, "calling_engine"), Scenario(CONFIG, (Add("a", (1,), 1),)))


class Odd(ReferenceEngine):
    reply: Any = None

    def step(self) -> Any:
        return self.reply


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (None, "step returned NoneType, not an object"),
        ([], "step returned list, not an object"),
        ({}, "the reply to step has no event"),
        ({"event": "finish", "request": "a"}, "answered 'finish' to step"),
        ({"event": "step", "frame": -1}, r"\$.frame"),
        ({"event": "step", "frame": 0, "requests": ["a"], "tokens": [1, 2]}, "parallel arrays"),
        ({"event": "step", "frame": 0, "requests": ["zz"], "tokens": [1]}, "zz is not live"),
        ({"event": "step", "frame": 0, "blocks": [["a", 0, [99]]]}, "outside the device pool"),
        ({"event": "refused", "reason": "tired"}, "refused a step: tired"),
    ],
)
def test_odd_replies_are_a_broken_harness(reply, said):
    it = session(Odd)
    Odd.reply = reply
    with pytest.raises(HarnessError, match=said):
        drive(it, Scenario(CONFIG, (Add("a", (1,), 1),)))


def test_a_request_that_is_refused_puts_the_run_out_of_contract():
    from preempt_oracle.engines.child import Refused as No

    class Picky(ReferenceEngine):
        def add(self, cmd: Any) -> Any:
            raise No("too young")

    it = session(Picky)
    assert drive(it, Scenario(CONFIG, (Add("a", (1,), 1),))) == Refused("a: too young")
    assert isinstance(it.start(CONFIG), Started)  # the session can go on


def test_commands_before_a_start_are_a_broken_harness():
    with pytest.raises(HarnessError, match="before a successful start"):
        session(ReferenceEngine).step()


def test_load_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "half_adapter.py").write_text(
        "class Half:\n    def start(self, config): ...\nclass Bang:\n    def __init__(self): raise OSError('bang')\n"
    )
    (tmp_path / "bad_syntax.py").write_text("def\n")
    (tmp_path / "bad_import.py").write_text("None.attribute\n")
    monkeypatch.syspath_prepend(tmp_path)
    for target, said in {
        "bad_syntax:X": "bad_syntax: SyntaxError",
        "bad_import:X": "bad_import: AttributeError: 'NoneType'",
        "half_adapter:Half": "has no add",
        "half_adapter:Bang": "OSError: bang",
        "half_adapter:None_": "half_adapter has no None_",
        "no_such_adapter:X": "No module named 'no_such_adapter'",
        "half_adapter": "expected module:Class",
        ":X": "expected module:Class",
    }.items():
        with pytest.raises(HarnessError, match=said):
            load(target)
    assert "half_adapter" in sys.modules
