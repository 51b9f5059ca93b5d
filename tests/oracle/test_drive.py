"""The harness drives: frames in flight, drafts, what the operator does; and what it makes up."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from attrs import evolve

from preempt_oracle.adapters.inprocess import InProcess
from preempt_oracle.adapters.protocol import HarnessError, Refused, Session
from preempt_oracle.adapters.reference import ReferenceEngine
from preempt_oracle.drive import VOCABULARY, Run, drive
from preempt_oracle.trace import wire
from preempt_properties.scenario import Abort, Add, Command, Config, Control, Deliver, Scenario, Step, loads
from preempt_properties.workload import EVERYTHING, workload
from preempt_spec.policies.profiles import PROFILES

CONFIG = Config("vllm-fcfs", 8, 2, 4, 16, 8)
A, B = Add("a", (1, 2, 3), 5), Add("b", (4, 5, 6), 5, arrival=1)


class Told(InProcess):
    """Keeps what was asked of the engine."""

    def __init__(self, engine: Any = None) -> None:
        super().__init__(engine or ReferenceEngine(), "it", "preempt_spec")
        self.commands: list[Mapping[str, Any]] = []

    def exchange(self, command: dict[str, Any]) -> dict[str, Any]:
        self.commands.append(command)
        return super().exchange(command)

    def asked(self, do: str) -> list[Mapping[str, Any]]:
        return [c for c in self.commands if c["do"] == do]


def run(told: Told, config: Config, *script: Command) -> Run:
    out = drive(Session(told), Scenario(config, script))
    assert isinstance(out, Run)
    assert not out.violations
    return out


def order(told: Told) -> str:
    """Steps and deliveries, as they came."""
    return "".join({"step": "s", "deliver": "d", "control": "c", "abort": "x"}.get(c["do"], "") for c in told.commands)


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_so_many_frames_fly(frames: int):
    told = Told()
    run(told, evolve(CONFIG, frames=frames), A)
    assert order(told).startswith("s" * frames + "d" + "sd" * 2)
    numbers = [c["frame"] for c in told.asked("deliver")]
    assert numbers == sorted(numbers)


def test_an_empty_step_brings_everything_back():
    told = Told()
    run(told, evolve(CONFIG, frames=4), evolve(A, max_tokens=1), Step(2))
    assert order(told).startswith("ssd")  # its only output flies: nothing to do but wait


def test_a_frame_comes_back_when_told():
    told = Told()
    run(told, evolve(CONFIG, frames=3), A, Deliver(), Step(), Deliver(), Deliver(), Step())
    assert order(told).startswith("sds")


def test_a_paused_engine_waits_and_is_resumed_at_the_end():
    told = Told()
    out = run(told, evolve(CONFIG, frames=2), A, Step(2), Control("pause"), Step(2))
    assert [c["kind"] for c in told.asked("control")] == ["pause", "resume"]
    empty = [e for e in out.events if isinstance(e, wire.Step) and not e.requests]
    assert len(empty) >= 2


def delivered(out: Run, request: str) -> list[tuple[int, ...]]:
    """What was sampled for a request and appended, frame by frame."""
    return [
        tokens
        for e in out.events
        if isinstance(e, wire.Deliver)
        for i, (name, tokens) in enumerate(zip(e.requests, e.tokens, strict=True))
        if name == request and (e.disposition is None or e.disposition[i] == "delivered")
    ]


def test_the_stream_does_not_depend_on_what_flies():
    streams = {
        tuple(t for tokens in delivered(run(Told(), evolve(CONFIG, frames=f, drafts=d), A, B), "a") for t in tokens)
        for f in (1, 2, 3)
        for d in (0, 2)
    }
    assert len({s[:5] for s in streams}) == 1


def test_what_a_reset_drops_is_sampled_for_all_the_same_and_otherwise():
    told = Told()
    out = run(told, evolve(CONFIG, frames=2), A, Step(2), Control("reset"), Step(2))
    dropped = [
        e.tokens[i]
        for e in out.events
        if isinstance(e, wire.Deliver) and e.disposition
        for i, d in enumerate(e.disposition)
        if d == "dropped"
    ]
    assert dropped
    assert all(t > VOCABULARY for tokens in dropped for t in tokens)
    plain = run(Told(), CONFIG, A)
    assert [t for some in delivered(out, "a") for t in some] == [t for some in delivered(plain, "a") for t in some]


def test_who_is_over_still_gets_a_sample():
    told = Told()
    run(told, evolve(CONFIG, frames=2), A, B, Step(), Abort("a"), Step())
    assert told.asked("deliver")[0]["requests"] == ["a", "b"]


def test_one_frame_at_a_time_drafts_are_proposed_with_the_outputs():
    told = Told()
    out = run(told, evolve(CONFIG, drafts=2), A, B)
    proposed = [n for c in told.asked("deliver") for n in c["proposed"]]
    assert {*proposed} == {0, 1, 2}
    drafts = {e.frame: {d.request: d.tokens for d in e.drafts} for e in out.events if isinstance(e, wire.Step)}
    lengths = {
        (drafts[e.frame].get(name, 0), len(tokens))
        for e in out.events
        if isinstance(e, wire.Deliver)
        for name, tokens in zip(e.requests, e.tokens, strict=True)
    }
    assert any(n < d + 1 for d, n in lengths), "some are rejected"
    assert any(n > 1 for _, n in lengths), "some are accepted"
    assert all(1 <= n <= d + 1 for d, n in lengths)


def test_frames_in_flight_are_followed_by_drafts_unasked():
    told = Told()
    out = run(told, evolve(CONFIG, frames=2, drafts=1), A)
    assert all("proposed" not in c for c in told.asked("deliver"))
    assert any(e.drafts for e in out.events if isinstance(e, wire.Step))


class Padding(ReferenceEngine):
    """Pads an admission of one token with a draft that nobody proposed, as vLLM does."""

    def step(self) -> dict[str, Any]:
        event = super().step()
        if event["frame"] == 0:
            event |= {"tokens": [2], "drafts": [["a", 1]]}
        return event


@pytest.mark.parametrize("seed", range(6))
def test_what_an_admission_is_padded_with_is_never_accepted(seed: int):
    told = Told(Padding())
    out = drive(Session(told), Scenario(CONFIG, (Add("a", (1,), 3),)), seed)
    assert isinstance(out, Run)
    assert not out.violations
    assert [len(t) for t in told.asked("deliver")[0]["tokens"]] == [1]


class Synchronous(ReferenceEngine):
    """Never heard of anything beyond one frame at a time."""

    def start(self, config: dict[str, Any]) -> dict[str, Any]:
        known = ("frames", "drafts", "host_blocks", "groups")
        return {**super().start({k: v for k, v in config.items() if k not in known}), "capabilities": ["abort"]}


@pytest.mark.parametrize(
    ("config", "lacks"),
    [
        (evolve(CONFIG, frames=2), "frames"),
        (evolve(CONFIG, drafts=1), "drafts"),
        (evolve(CONFIG, host_blocks=4), "host"),
        (evolve(CONFIG, groups="full+sliding"), "groups"),
    ],
)
def test_a_setting_the_engine_never_heard_of_is_refused(config: Config, lacks: str):
    told = Told(Synchronous())
    refused = drive(Session(told), Scenario(config, (A,)))
    assert isinstance(refused, Refused)
    assert f"no capability '{lacks}'" in refused.reason
    assert order(told) == ""
    assert isinstance(drive(Session(told), Scenario(CONFIG, (A,))), Run)


class Boastful(Synchronous):
    """Says it flies, and does not."""

    def start(self, config: dict[str, Any]) -> dict[str, Any]:
        return {**super().start(config), "capabilities": ["frames"]}


def test_an_engine_that_flies_fewer_frames_is_refused():
    refused = drive(Session(Told(Boastful())), Scenario(evolve(CONFIG, frames=2), (A,)))
    assert refused == Refused("frames = 2: the engine flies 1")


class NoControl(ReferenceEngine):
    def control(self, cmd: Any) -> Any:
        from preempt_oracle.engines.child import Refused as No

        raise No("not today")


def test_a_control_that_is_refused_puts_the_run_out_of_contract():
    refused = drive(Session(Told(NoControl())), Scenario(CONFIG, (A, Control("reset"))))
    assert refused == Refused("reset: not today")


def test_a_scenario_is_read_and_driven():
    text = """
        policy = "vllm-fcfs"
        blocks = 4
        page_size = 2
        max_running = 2
        budget = 8
        max_length = 8
        frames = 2
        script = '''
        add a prompt=1,2,3 max=4
        add b prompt=5 max=6
        step 3
        reset
        step
        deliver
        pause
        step
        resume
        '''
    """
    out = drive(Session(Told()), loads(text))
    assert isinstance(out, Run)
    assert not out.violations
    kinds = [e.kind for e in out.events if isinstance(e, wire.Control)]
    assert kinds == ["reset", "pause", "resume"]


@pytest.mark.profiles
@pytest.mark.parametrize("policy", PROFILES)
def test_the_reference_comes_through_everything(policy: str):
    seen = {"frames": 0, "drafts": 0, "groups": 0, "controls": 0}
    for seed in range(40):
        scenario = workload(Random(seed), policy, capabilities=EVERYTHING - {"offload"})
        out = drive(Session(Told()), scenario, seed)
        assert isinstance(out, Run), (seed, out)
        assert not out.violations, (seed, out.violations)
        seen["frames"] += scenario.config.frames > 1
        seen["drafts"] += scenario.config.drafts > 0
        seen["groups"] += scenario.config.groups != "full"
        seen["controls"] += any(isinstance(c, Control) for c in scenario.script)
    if policy.startswith("vllm-") and policy != "vllm-v0-swap":
        assert all(seen.values()), seen


def test_a_worse_reply_is_still_a_broken_harness():
    class Odd(ReferenceEngine):
        def control(self, cmd: Any) -> Any:
            return {"event": "step", "frame": 0}

    with pytest.raises(HarnessError, match="answered 'step' to control"):
        drive(Session(Told(Odd())), Scenario(CONFIG, (A, Control("reset"))))
