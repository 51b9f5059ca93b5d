"""Real schedulers of vLLM, recorded as in production, and judged twice: by the adapter that drives them, and by the
files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen
from msgspec.structs import replace

from preempt_oracle import campaign
from preempt_oracle.adapters.protocol import Refused, Session
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.check import check
from preempt_oracle.cli.scenarios import read as read_scenario
from preempt_oracle.drive import Run, drive
from preempt_oracle.engines import environments
from preempt_oracle.engines.vllm_versions import EVERY_RUN
from preempt_oracle.record.settings import PREFIX
from preempt_oracle.trace import wire
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


def start(version: str, directory: Path, beside: Path, how: str, **settings: str) -> Recorded:
    """An engine's process with a recording scheduler in it; `how`: see `recording_child`."""
    found = environments.ready("vllm", version)
    if found is None:
        pytest.skip(f"needs `preempt-oracle engines install vllm=={version}`")
    asked = [found.command[0], "-c", "import sys; print(sys.version_info[:2])"]
    theirs = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if theirs != str(sys.version_info[:2]):
        pytest.skip(f"vLLM's Python is {theirs}: our dependencies cannot be lent to it")
    env = variables(found, beside, DIR=str(directory), **settings) | {"RECORDING": how}
    command = [found.command[0], str(Path(__file__).with_name("recording_child.py"))]
    return Recorded(Session(Stdio(command, f"recording vLLM {version}", env=env)), directory)


@pytest.fixture(scope="module", params=EVERY_RUN)
def recorded(request, tmp_path_factory) -> Iterator[Recorded]:
    """One process per version: importing vLLM takes half a minute. Nothing is hashed: events are compared."""
    directory, beside = tmp_path_factory.mktemp("recorded"), tmp_path_factory.mktemp("beside")
    found = start(request.param, directory, beside, "inside", CONTENT="plain", ONLINE="on", PART_MB="64")
    yield found
    found.session.close()


@pytest.fixture(scope="module", params=EVERY_RUN)
def hashed(request, tmp_path_factory) -> Iterator[Recorded]:
    """As in production: a process beside the engine, and hashes."""
    directory, beside = tmp_path_factory.mktemp("recorded"), tmp_path_factory.mktemp("beside")
    found = start(request.param, directory, beside, "beside", ONLINE="on")
    yield found
    found.session.close()


def same(event: wire.Event, small: bool) -> wire.Event:
    """An event without what differs between the two by its nature; see docs/recording.md.

    Times of arrival are the front end's here, and the script's there; the adapter tells how many drafts were proposed,
    the recorder how many the scheduler kept; and the books of a pool that is looked at as a large one are fewer.
    """
    if isinstance(event, wire.Arrive):
        return replace(event, arrival=0)
    if isinstance(event, wire.Deliver):
        tokens = event.tokens if event.emitted is None else event.emitted
        told = event.disposition or tuple("delivered" for _ in event.requests)
        return replace(event, proposed=None, emitted=tokens, disposition=told)
    observed = getattr(event, "observed", None)
    if observed is not None and not small:
        bare = replace(observed, free_ids=None, refs=None, preemptions=None)
        return replace(event, observed=bare)
    return event


@pytest.mark.parametrize("policy", ["vllm-fcfs", "vllm-priority"])
def test_the_recorder_sees_what_the_adapter_sees(recorded, policy):
    """Event by event: what is put together from columns is what was watched call by call."""
    seen: Counter[str] = Counter()
    capabilities = campaign.probe(recorded.session, policy).started.capabilities
    for seed in range(int(os.environ.get("PREEMPT_ORACLE_SEEDS", "120"))):
        before = recorded.files()
        run = drive(recorded.session, campaign.generated(seed, policy, capabilities), policy=policy)
        if isinstance(run, Refused):
            continue
        (file,) = recorded.files() - before
        (_, header), *lines, (_, footer) = read(file)
        assert isinstance(header, wire.Header)
        assert isinstance(footer, wire.Footer)
        small = "free-ids" in header.observes
        mine = [same(event, small) for _, event in lines if not isinstance(event, (wire.Header, wire.Footer))]
        theirs = [same(event, small) for event in run.events if not isinstance(event, wire.Reject)]
        refused = {e.request for e in run.events if isinstance(e, wire.Reject)}
        theirs = [e for e in theirs if not (isinstance(e, wire.Arrive) and e.request in refused)]
        limits = run.header.limits
        for number, (one, other) in enumerate(zip(mine, theirs, strict=False)):
            fields = [name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name, None)]
            where = f"seed {seed}, {policy}, {limits}, event {number} of {file}"
            assert one == other, (where, [(name, getattr(one, name), getattr(other, name, other)) for name in fields])
        assert len(mine) == len(theirs)
        assert footer.lost == 0
        tally = check(file, policy)
        assert [f.violation for f in tally.failures] == list(run.violations)
        seen["runs"] += 1
        seen["preemptions"] += tally.preemptions
        seen["violations"] += bool(run.violations)
        seen["small" if small else "large"] += 1
        seen["frames > 1"] += limits.frames > 1
        seen.update(name for name in ("chunked", "caching", "watermark", "drafts") if getattr(limits, name))
        seen.update(type(e).__name__ for e in run.events)
        seen.update(act.__class__.__name__ for e in run.events for act in getattr(e, "acts", ()))
    print(dict(seen))  # `pytest -s` shows how much was compared
    assert min(seen["small"], seen["large"]) > 20, seen
    assert seen["preemptions"] > 50, seen
    assert seen["frames > 1"] > 5, seen
    assert {"chunked", "caching", "drafts", "Abort", "Control", "Withdraw", "Publish"} <= seen.keys()
    assert policy == "vllm-fcfs" or seen["Plan"] > 3, seen  # FCFS never takes a grant back


#: Findings of both versions (docs/findings.md), F11 among them, in which the engine dies.
FOUND = ("fault-unwritten-pages", "fault-livelock", "fault-draft-padding-starves", "fault-draft-padding-asserts")


@pytest.mark.parametrize("name", FOUND)
def test_what_breaks_a_rule_breaks_it_in_the_file(hashed, name):
    recorded = hashed
    scenario = read_scenario(str(SCENARIOS / f"{name}.toml"))
    before = recorded.files()
    run = drive(recorded.session, scenario, policy=scenario.config.policy)
    assert isinstance(run, Run)
    assert run.violations
    (file,) = recorded.files() - before
    assert [f.violation.rule for f in check(file).failures] == [v.rule for v in run.violations]


def test_no_token_of_a_live_run_is_in_its_file(hashed):
    recorded = hashed
    capabilities = campaign.probe(recorded.session, "vllm-fcfs").started.capabilities
    before = recorded.files()
    run = drive(recorded.session, campaign.generated(3, "vllm-fcfs", capabilities), policy="vllm-fcfs")
    assert isinstance(run, Run)
    (file,) = recorded.files() - before
    said = {t for e in run.events for t in getattr(e, "prompt", ())}
    shown = {t for _, e in read(file) for t in getattr(e, "prompt", ())}
    assert said
    assert not said & shown
