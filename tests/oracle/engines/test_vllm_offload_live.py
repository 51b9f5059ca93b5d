"""vLLM's offloading connectors, the real ones in the real scheduler, with a worker that the adapter plays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import pytest
from attrs import evolve

from preempt_oracle.adapters.protocol import Refused, Session, Started
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.drive import Run, drive
from preempt_oracle.engines import environments
from preempt_oracle.found import findings, rules
from preempt_oracle.inject import Outcome, injected
from preempt_oracle.reach_host import SITUATIONS, seen
from preempt_oracle.trace import wire
from preempt_properties.scenario import Abort, Add, Command, Config, Control, Deliver, Scenario, Step, dumps
from preempt_properties.workload import workload

pytestmark = pytest.mark.vllm

SPEC = environments.ENGINES["vllm"]
#: What each connector is driven with; `offload_outputs` stores more than pages of prompts.
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "offloading": {"connector": "offloading", "offload_outputs": True},
    "simple": {"connector": "simple"},
    "lazy": {"connector": "simple", "lazy_offload": True},
    "failing": {"connector": "offloading", "offload_outputs": True, "failing_loads": True},
    "failing-simple": {"connector": "simple", "failing_loads": True, "load_failure": "fail"},
}
CONNECTORS = ("offloading", "simple")
CONFIG = Config("vllm-fcfs", 4, 2, 2, 16, 8, caching=True, host_blocks=16)
#: Two that outgrow the device; the host has room for all of it.
PRESSED = (Add("a", (1, 2, 3, 4), 4), Add("b", (5, 6, 7, 8), 4, arrival=1))
FOUND = [f for f in findings("vllm", SPEC.versions) if f.name.startswith("connector/")]
#: What generated workloads must reach, by how they are driven; and in what number of runs.
EVERYWHERE = ("stored", "loaded", "loaded behind a hit", "evicted", "host full", "copies beside frames")
REACHED: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "offloading": (
        110,
        (
            *EVERYWHERE,
            "swapped before a frame",
            "passed over for a copy",
            "out of order",
            "drafts beside a copy",
            "aborted while loading",
            "table kept at an abort",
            "aborted behind a fence",
            "reset with copies in flight",
            "paused with copies in flight",
        ),
    ),
    "simple": (80, (*EVERYWHERE, "drafts beside a copy", "released behind a copy", "aborted behind a fence")),
    "lazy": (50, (*EVERYWHERE, "released behind a copy")),
    "failing": (60, (*EVERYWHERE, "load failed", "resumed from a part", "loaded again")),
    "failing-simple": (50, (*EVERYWHERE, "load failed", "over with its load")),
}


class Kept:
    """One child process for all tests of a version: importing vLLM takes half a minute."""

    def __init__(self, version: str) -> None:
        found = environments.ready("vllm", version)
        if found is None:
            pytest.skip(f"needs `preempt-oracle engines install vllm=={version}`")
        self.version = version
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


@pytest.fixture(params=CONNECTORS)
def session(kept: Kept, request: pytest.FixtureRequest) -> Session:
    return Session(kept, OPTIONS[request.param])


def run(session: Session, config: Config, *script: Command) -> Run:
    out = drive(session, Scenario(config, script))
    assert isinstance(out, Run), out
    assert not out.violations
    return out


def test_the_capability_comes_with_the_option_only(kept):
    bare = Session(kept)
    plain = bare.start(Config("vllm-fcfs", 4, 2, 2, 16, 8))
    assert isinstance(plain, Started)
    assert "offload" not in plain.capabilities
    refused = bare.start(CONFIG)
    assert isinstance(refused, Refused)
    assert "option connector" in refused.reason
    for name in CONNECTORS:
        offloads = Session(kept, OPTIONS[name]).start(CONFIG)
        assert isinstance(offloads, Started)
        assert offloads.capabilities == plain.capabilities | {"offload"}
        assert {"copies", "host"} <= offloads.header.observes
        assert [pool.total for pool in offloads.header.pools] == [5, 16]


def test_an_unknown_connector_is_refused_by_name(kept):
    refused = Session(kept, {"connector": "nixl"}).start(CONFIG)
    assert isinstance(refused, Refused)
    assert "'nixl' is none of offloading, simple" in refused.reason
    refused = Session(kept, {"connector": "simple", "load_failure": "panic"}).start(CONFIG)
    assert isinstance(refused, Refused)
    assert "'panic' is none of recompute, fail" in refused.reason


def test_the_simple_connector_wants_the_prefix_cache(kept):
    refused = Session(kept, OPTIONS["simple"]).start(evolve(CONFIG, caching=False))
    assert isinstance(refused, Refused)
    assert "switches itself off without prefix caching" in refused.reason


def test_a_victim_comes_back_from_the_host(session):
    config = Config("vllm-fcfs", 8, 2, 2, 16, 16, caching=True, host_blocks=24)
    out = run(session, config, Add("a", (1, 2, 3, 4, 5, 6), 10), Add("b", (7, 8, 9, 10, 11, 12), 8, arrival=1))
    n = seen(out.events)
    assert min(n["stored"], n["loaded"]) > 0
    assert any(isinstance(act, wire.Demote) for e in out.events if isinstance(e, wire.Step) for act in e.acts)
    assert {e.direction for e in out.events if isinstance(e, wire.CopyStart)} == {"in", "out"}


def test_a_full_host_pool_evicts_and_falls_back_to_computing(session):
    config = Config("vllm-fcfs", 8, 2, 2, 32, 16, caching=True, host_blocks=3)
    adds = [Add(name, tuple(range(i, i + 6)), 8, arrival=i) for i, name in enumerate("abcd")]
    n = seen(run(session, config, *adds).events)
    assert n["evicted"]
    assert n["host full"]


def test_only_prompts_are_offloaded_by_default(kept):
    stored = {}
    for outputs in (False, True):
        session = Session(kept, {"connector": "offloading", "offload_outputs": outputs})
        out = run(session, CONFIG, Add("a", (1, 2, 3, 4), 4))
        stored[outputs] = sum(len(e.blocks) for e in out.events if isinstance(e, wire.CopyStart))
    assert stored == {False: 2, True: 3}


def test_what_is_computed_is_stored_at_once_or_when_it_is_about_to_go(kept):
    """Eager and lazy: of one that fits, the lazy connector stores nothing while it runs."""
    first = {}
    for name in ("simple", "lazy"):
        out = run(Session(kept, OPTIONS[name]), CONFIG, Add("a", (1, 2, 3, 4), 4), Step(8))
        kinds = [type(e) for e in out.events if isinstance(e, wire.CopyStart | wire.Finish)]
        first[name] = kinds[0]
    assert first == {"simple": wire.CopyStart, "lazy": wire.Finish}


@pytest.mark.parametrize("how", OPTIONS)
def test_generated_workloads_break_nothing_and_look_where_it_hurts(kept, how, capsys):
    session = Session(kept, OPTIONS[how])
    started = session.start(CONFIG)
    assert isinstance(started, Started)
    count: Counter[str] = Counter()
    exercised: Counter[str] = Counter()
    wanted, reached = REACHED[how]
    runs = seed = 0
    while runs < wanted:
        seed += 1
        policy = SPEC.policies[seed % len(SPEC.policies)]
        scenario = workload(Random(seed), policy, capabilities=started.capabilities)
        if not scenario.config.host_blocks:
            continue
        out = drive(session, scenario, seed)
        runs += 1
        if isinstance(out, Refused):
            assert "reset" in out.reason or "refuses to start" in out.reason, out
            continue
        if not _known(how, scenario.config, out):
            # PRIORITY shows what it shows without a connector (F1).
            assert {v.rule for v in out.violations} <= rules(kept.name, policy), (seed, out.violations)
        if how == "offloading" and count["aborted while loading"] < 3 and (late := _cancelled(scenario, out)):
            again = drive(session, late, seed)
            assert isinstance(again, Run)
            if not _known(how, late.config, again):
                assert not again.violations, (dumps(late), again.violations)
            count += seen(again.events)
        count += seen(out.events)
        exercised.update(out.monitor.exercised)
    with capsys.disabled():
        print(f"\n{kept.name} {how}: {runs} runs; {', '.join(f'{k} {count[k]}' for k in SITUATIONS if count[k])}")
    assert {name for name in reached if not count[name]} == set()
    for rule in ("swap/round-trip", "swap/fence", "swap/host-pool", "resume/provenance", "edge/abort"):
        assert exercised[rule], rule


def _cancelled(scenario: Scenario, out: Run) -> Scenario | None:
    """The same until somebody loads, who is then cancelled; None if nobody does."""
    steps = [e for e in out.events if isinstance(e, wire.Step)]
    if out.violations or any(isinstance(command, Control | Deliver) for command in scenario.script):
        return None  # what stands between steps would move
    for n, step in enumerate(steps, 1):
        if step.observed.loading:
            script: list[Command] = []
            for command in scenario.script:
                script += [Step()] * command.count if isinstance(command, Step) else [command]
            at = [i for i, command in enumerate(script) if isinstance(command, Step)]
            script += [Step()] * (n - len(at))
            cut = at[n - 1] + 1 if n <= len(at) else len(script)
            adds = [command for command in script[cut:] if isinstance(command, Add)]
            return Scenario(scenario.config, (*script[:cut], Abort(step.observed.loading[0]), *adds))
    return None


def _known(how: str, config: Config, out: Run) -> bool:
    """Whether it got stuck for a reason of docs/findings.md: F12, F13, F14."""
    stuck = {v.rule for v in out.violations} == {"live/progress"}
    options = OPTIONS[how]
    again = options["connector"] == "offloading" and config.page_size == 1
    return stuck and (again or config.drafts > 0 or bool(options.get("failing_loads")))


@pytest.mark.parametrize("connector", CONNECTORS)
def test_who_is_cancelled_while_it_loads_keeps_its_blocks_until_that_is_over(kept, connector):
    """Those of a prefix hit too, which no copy fills: they are pinned until the load is over."""
    session = Session(kept, OPTIONS[connector])
    config = Config("vllm-fcfs", 6, 2, 3, 16, 12, caching=True, host_blocks=16)
    first = (Add("a", (1, 2, 3, 4, 5, 6), 1), Step(8), Add("b", (1, 2, 11, 12, 13, 14, 15, 16, 17, 18), 1), Step(8))
    count: Counter[str] = Counter()
    for seed in range(6):
        script = (*first, Add("c", (1, 2, 3, 4, 5, 6, 7), 1), Step(1), Abort("c"), Step(8))
        out = drive(session, Scenario(config, script), seed)
        assert isinstance(out, Run)
        assert not out.violations
        count += seen(out.events)
        for event in out.events:
            if isinstance(event, wire.Abort) and any(isinstance(act, wire.Pin) for act in event.acts):
                assert event.blocks == ((),)
    assert count["loaded behind a hit"]
    assert count["table kept at an abort"]


def test_a_reset_empties_both_tiers_and_waits_for_who_holds_blocks(kept):
    out = run(Session(kept, OPTIONS["offloading"]), CONFIG, Add("a", (1, 2, 3, 4), 4), Step(2), Control("reset"))
    assert seen(out.events)["reset with copies in flight"]
    held = drive(
        Session(kept, OPTIONS["simple"]), Scenario(CONFIG, (Add("a", (1, 2, 3, 4), 4), Step(2), Control("reset")))
    )
    assert isinstance(held, Refused), "the connector references what it copies, and vLLM raises"
    assert "while a copy holds blocks" in held.reason


@pytest.mark.parametrize("finding", FOUND, ids=lambda f: f.id)
@pytest.mark.parametrize("policy", SPEC.policies)
def test_what_was_found_is_found_again(kept, finding, policy):
    scenario = evolve(finding.scenario, config=evolve(finding.scenario.config, policy=policy))
    out = drive(Session(kept, dict(scenario.options)), scenario)
    assert isinstance(out, Run)
    wanted = [scenario.rule] if finding.shows(kept.version, policy) else []
    assert [v.rule for v in out.violations] == wanted


@pytest.mark.parametrize("policy", SPEC.policies)
@pytest.mark.parametrize(("connector", "faults"), [("offloading", 10), ("simple", 12)])
def test_every_fault_is_caught_by_the_rule_it_is_meant_for(kept, policy, connector, faults):
    found = injected(
        lambda: Session(kept, OPTIONS[connector]), policy, seed=400, known=rules(kept.name, policy, OPTIONS[connector])
    )
    wrong = {
        row.fault.name: (row.outcome, row.named, row.note) for row in found.rows if row.outcome is not Outcome.CAUGHT
    }
    assert len(found.rows) == faults
    assert not wrong
    assert not found.alarms
