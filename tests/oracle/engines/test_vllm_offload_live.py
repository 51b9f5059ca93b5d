"""vLLM's offloading connector, the real one in the real scheduler, with a worker that the adapter plays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from preempt_oracle.adapters.protocol import Refused, Session, Started
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.drive import Run, drive
from preempt_oracle.engines import environments
from preempt_oracle.inject import Outcome, injected
from preempt_oracle.matrix import VECTORS
from preempt_oracle.trace import wire
from preempt_properties.scenario import Abort, Add, Command, Config, Scenario, Step, loads
from preempt_properties.workload import workload

pytestmark = pytest.mark.vllm

SPEC = environments.ENGINES["vllm"]
OPTIONS = {"connector": "offloading", "offload_outputs": True}
CONFIG = Config("vllm-fcfs", 4, 2, 2, 16, 8, caching=True, host_blocks=16)
#: Two that outgrow the device; the host has room for all of it.
PRESSED = (Add("a", (1, 2, 3, 4), 4), Add("b", (5, 6, 7, 8), 4, arrival=1))


class Kept:
    """One child process for all tests of a version: importing vLLM takes half a minute."""

    def __init__(self, version: str) -> None:
        found = environments.ready("vllm", version)
        if found is None:
            pytest.skip(f"needs `preempt-oracle engines install vllm=={version}`")
        self.name = f"vllm=={version}"
        self.real = Stdio(found.command, self.name, env=found.env)

    def exchange(self, command: dict[str, object]) -> dict[str, object]:
        return self.real.exchange(command)

    def close(self) -> None:
        """Not yet."""


@pytest.fixture(scope="module", params=SPEC.driven)
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    one = Kept(request.param)
    yield one
    one.real.close()


@pytest.fixture
def session(kept: Kept) -> Session:
    return Session(kept, OPTIONS)


def run(session: Session, config: Config, *script: Command) -> Run:
    out = drive(session, Scenario(config, script))
    assert isinstance(out, Run), out
    assert not out.violations
    return out


def counted(out: Run) -> Counter[str]:
    acts = (act for e in out.events for act in getattr(e, "acts", None) or ())
    return Counter(type(x).__name__ for x in (*out.events, *acts))


def test_the_capability_comes_with_the_option_only(kept):
    bare = Session(kept)
    plain = bare.start(Config("vllm-fcfs", 4, 2, 2, 16, 8))
    assert isinstance(plain, Started)
    assert "offload" not in plain.capabilities
    refused = bare.start(CONFIG)
    assert isinstance(refused, Refused)
    assert "option connector" in refused.reason
    offloads = Session(kept, OPTIONS).start(CONFIG)
    assert isinstance(offloads, Started)
    assert "offload" in offloads.capabilities
    assert not offloads.capabilities & {"frames", "drafts", "reset"}
    assert {"copies", "host"} <= offloads.header.observes
    assert [pool.total for pool in offloads.header.pools] == [5, 16]


def test_an_unknown_connector_is_refused_by_name(kept):
    refused = Session(kept, {"connector": "nixl"}).start(CONFIG)
    assert isinstance(refused, Refused)
    assert "'nixl' is none of offloading" in refused.reason


def test_a_victim_comes_back_from_the_host(session):
    out = run(session, CONFIG, *PRESSED)
    n = counted(out)
    assert min(n[what] for what in ("Demote", "Load", "CopyStart", "CopyDone")) > 0
    directions = {e.direction for e in out.events if isinstance(e, wire.CopyStart)}
    assert directions == {"in", "out"}
    loaders = {act.request for e in out.events if isinstance(e, wire.Step) for act in e.acts if type(act) is wire.Load}
    assert loaders <= {"a", "b"}


def test_a_full_host_pool_evicts_and_falls_back_to_computing(session):
    config = Config("vllm-fcfs", 8, 2, 2, 32, 16, caching=True, host_blocks=3)
    adds = [Add(name, tuple(range(i, i + 6)), 8, arrival=i) for i, name in enumerate("abcd")]
    out = run(session, config, *adds)
    n = counted(out)
    assert n["Demote"]
    assert n["Evict"]
    assert min(e.observed.host_free[0] for e in out.events if isinstance(e, wire.Step) and e.observed.host_free) == 0


def test_only_prompts_are_offloaded_by_default(kept):
    stored = {}
    for outputs in (False, True):
        session = Session(kept, {"connector": "offloading", "offload_outputs": outputs})
        out = run(session, CONFIG, Add("a", (1, 2, 3, 4), 4))
        stored[outputs] = sum(len(e.blocks) for e in out.events if isinstance(e, wire.CopyStart))
    assert stored == {False: 2, True: 3}


@pytest.mark.parametrize("policy", SPEC.policies)
def test_generated_workloads_break_nothing(session, policy):
    started = session.start(CONFIG)
    assert isinstance(started, Started)
    seen: Counter[str] = Counter()
    exercised: Counter[str] = Counter()
    runs = seed = 0
    while runs < 60:
        seed += 1
        scenario = workload(Random(seed), policy, capabilities=started.capabilities)
        # A page of one token is a fault of its own: see `test_what_is_loaded_and_counts_as_nothing`.
        if not scenario.config.host_blocks or scenario.config.page_size == 1:
            continue
        out = drive(session, scenario, seed)
        assert isinstance(out, Run), out
        assert not out.violations, (seed, out.violations)
        runs += 1
        seen += counted(out)
        exercised.update(out.monitor.exercised)
    for what in ("Demote", "Load", "CopyStart", "CopyDone", "Evict", "Skip"):
        assert seen[what], what
    for rule in ("swap/round-trip", "swap/fence", "swap/host-pool", "resume/provenance"):
        assert exercised[rule], rule


def test_who_is_cancelled_while_it_loads_keeps_its_blocks_until_that_is_over(session):
    aborted = 0
    for steps in range(4, 16):
        out = run(session, CONFIG, *PRESSED, Step(steps), Abort("b"), Abort("a"))
        for before, event in zip(out.events, out.events[1:], strict=False):
            if isinstance(event, wire.Abort) and isinstance(before, wire.Step) and before.observed.loading:
                aborted += event.request in before.observed.loading
    assert aborted


def test_what_is_loaded_and_counts_as_nothing(kept):
    """F12: with one token known, and pages of one token, a load never ends in a grant."""
    scenario = loads((VECTORS / "scenarios" / "connector" / "fault-loads-again.toml").read_text(encoding="utf-8"))
    out = drive(Session(kept, dict(scenario.options)), scenario)
    assert isinstance(out, Run)
    assert [v.rule for v in out.violations] == [scenario.rule]


@pytest.mark.parametrize("policy", SPEC.policies)
def test_every_fault_is_caught_by_the_rule_it_is_meant_for(kept, policy):
    found = injected(lambda: Session(kept, OPTIONS), policy, seed=400)
    wrong = {
        row.fault.name: (row.outcome, row.named, row.note) for row in found.rows if row.outcome is not Outcome.CAUGHT
    }
    assert len(found.rows) == 10
    assert not wrong
    assert not found.alarms
