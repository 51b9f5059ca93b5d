"""Real schedulers of vLLM, recorded as in production, and judged twice: by the adapter that drives them, and by the
files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import frozen

from preempt_oracle import campaign
from preempt_oracle.adapters.protocol import Refused, Session
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.check import check
from preempt_oracle.cli.scenarios import read as read_scenario
from preempt_oracle.drive import Run, drive
from preempt_oracle.engines import environments
from preempt_oracle.engines.vllm_versions import EVERY_RUN
from preempt_oracle.record.settings import PREFIX
from preempt_oracle.trace.reader import read

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).parents[3]
SCENARIOS = ROOT / "oracle" / "preempt_oracle" / "vectors" / "scenarios"
#: What preempt-oracle needs beside it in vLLM's own environment.
NEEDED = ("attr", "attrs", "msgspec", "backports")


@frozen
class Recorded:
    """A session with a recording scheduler, and where its files go."""

    session: Session
    directory: Path

    def files(self) -> set[Path]:
        return set(self.directory.iterdir())


def variables(found: environments.Environment, beside: Path, **settings: str) -> dict[str, str]:
    """The environment of vLLM with preempt-oracle in it, as an installation would put it there."""
    for name in NEEDED:
        module = __import__(name)
        (beside / name).symlink_to(Path(next(iter(module.__path__))))
    paths = [*map(str, (ROOT / "spec", ROOT / "properties", ROOT / "oracle", beside)), found.env.get("PYTHONPATH", "")]
    return {**found.env, "PYTHONPATH": os.pathsep.join(paths), **{PREFIX + k: v for k, v in settings.items()}}


@pytest.fixture(scope="module", params=EVERY_RUN)
def recorded(request, tmp_path_factory) -> Iterator[Recorded]:
    """One process per version: importing vLLM takes half a minute."""
    found = environments.ready("vllm", request.param)
    if found is None:
        pytest.skip(f"needs `preempt-oracle engines install vllm=={request.param}`")
    asked = [found.command[0], "-c", "import sys; print(sys.version_info[:2])"]
    theirs = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if theirs != str(sys.version_info[:2]):
        pytest.skip(f"vLLM's Python is {theirs}: our dependencies cannot be lent to it")
    directory, beside = tmp_path_factory.mktemp("recorded"), tmp_path_factory.mktemp("beside")
    env = variables(found, beside, DIR=str(directory), QUEUE="100000", ONLINE="on", PART_MB="1")
    command = [found.command[0], str(Path(__file__).with_name("recording_child.py"))]
    session = Session(Stdio(command, f"recording vLLM {request.param}", env=env))
    yield Recorded(session, directory)
    session.close()


def judged_twice(recorded: Recorded, seeds: range, policy: str, more: Callable[[Run], None]) -> Counter[str]:
    seen: Counter[str] = Counter()
    capabilities = campaign.probe(recorded.session, policy).started.capabilities
    for seed in seeds:
        before = recorded.files()
        run = drive(recorded.session, campaign.generated(seed, policy, capabilities), policy=policy)
        if isinstance(run, Refused):
            continue
        (file,) = recorded.files() - before
        tally = check(file, policy)
        live = Counter({rule: n for rule, n in run.monitor.exercised.items() if rule != "live/oversize"})
        mine = Counter({rule: n for rule, n in tally.exercised.items() if rule != "live/oversize"})
        where = f"seed {seed}, {policy}, {run.header.limits}, {file}"
        assert [f.violation for f in tally.failures] == list(run.violations), where
        assert tally.steps == run.monitor.steps, where
        assert tally.preemptions == run.monitor.shadow.preemptions, where
        assert tally.lost == 0, where
        if not run.violations:
            assert mine == live, where
        seen["runs"] += 1
        seen["preemptions"] += tally.preemptions
        seen["violations"] += bool(run.violations)
        seen["frames > 1"] += run.header.limits.frames > 1
        more(run)
    return seen


@pytest.mark.parametrize("policy", ["vllm-fcfs", "vllm-priority"])
def test_the_recorded_files_are_judged_as_the_adapters_own_trace(recorded, policy):
    modes: Counter[str] = Counter()

    def note(run: Run) -> None:
        limits = run.header.limits
        modes.update(name for name in ("chunked", "caching", "watermark", "drafts") if getattr(limits, name))

    seen = judged_twice(recorded, range(60), policy, note)
    assert seen["runs"] > 40
    assert seen["preemptions"] > 50
    assert seen["frames > 1"] > 5
    assert {"chunked", "caching"} <= modes.keys()


#: Findings of both versions (docs/findings.md), F11 among them, in which the engine dies.
FOUND = ("fault-unwritten-pages", "fault-livelock", "fault-draft-padding-starves", "fault-draft-padding-asserts")


@pytest.mark.parametrize("name", FOUND)
def test_what_breaks_a_rule_breaks_it_in_the_file(recorded, name):
    scenario = read_scenario(str(SCENARIOS / f"{name}.toml"))
    before = recorded.files()
    run = drive(recorded.session, scenario, policy=scenario.config.policy)
    assert isinstance(run, Run)
    assert run.violations
    (file,) = recorded.files() - before
    assert [f.violation.rule for f in check(file).failures] == [v.rule for v in run.violations]


def test_no_token_of_a_live_run_is_in_its_file(recorded):
    capabilities = campaign.probe(recorded.session, "vllm-fcfs").started.capabilities
    before = recorded.files()
    run = drive(recorded.session, campaign.generated(3, "vllm-fcfs", capabilities), policy="vllm-fcfs")
    assert isinstance(run, Run)
    (file,) = recorded.files() - before
    said = {t for e in run.events for t in getattr(e, "prompt", ())}
    shown = {t for _, e in read(file) for t in getattr(e, "prompt", ())}
    assert said
    assert not said & shown
