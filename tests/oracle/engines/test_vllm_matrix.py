"""Every listed version of vLLM has exactly what was found in it, and refuses by name what it does not have.

All of them: `pytest -m matrix`. In every run: those that are driven there, with fewer workloads.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from preempt_oracle.adapters.protocol import HarnessError, Refused, Session, Started
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.engines import environments, vllm_versions
from preempt_oracle.engines.environments import Environment
from preempt_oracle.found import findings
from preempt_oracle.version_matrix import Child, Wanted, compare, run_row
from preempt_properties.scenario import Config

pytestmark = pytest.mark.vllm

SPEC = environments.ENGINES["vllm"]
WHOLE = (pytest.mark.matrix, pytest.mark.slow)
PARAMS = [pytest.param(v, marks=() if v in SPEC.driven else WHOLE) for v in SPEC.versions]
CONFIG = Config("vllm-fcfs", 4, 2, 2, 16, 8, caching=True, whole_fit=False)
#: Trait -> a configuration that asks for it, and what the refusal says.
ASKED: dict[str, tuple[dict[str, Any], str]] = {
    "whole-fit": ({"whole_fit": True}, "config.whole_fit: vLLM {} has no scheduler_reserve_full_isl"),
    "watermark": ({"watermark": 1}, "config.watermark: vLLM {} has none"),
    "stale": ({"frames": 3}, "config.frames: 3: vLLM {} does not account for what flies of a victim: two at most"),
}


def environment(version: str) -> Environment:
    found = environments.ready("vllm", version)
    if found is None:
        pytest.skip(f"needs `preempt-oracle engines install vllm=={version}`")
    return found


@pytest.fixture(scope="module", params=PARAMS)
def child(request: pytest.FixtureRequest) -> Iterator[tuple[str, Child]]:
    """One process for all tests of a version: importing vLLM takes half a minute."""
    found = environment(request.param)
    child = Child(lambda: Stdio(found.command, f"vllm=={request.param}", env=found.env))
    yield request.param, child
    child.end()


@pytest.mark.parametrize("policy", SPEC.policies)
def test_a_version_has_exactly_what_was_found_in_it(child, policy):
    version, process = child
    listed = findings("vllm", SPEC.versions)
    wanted = Wanted("vllm", version, policy, workloads=60 if version in SPEC.driven else 200)
    row = compare(wanted, run_row(wanted, process, listed, lambda *_: None), listed)
    assert row.odd == ()


def test_what_a_version_does_not_have_is_refused_by_name(child):
    version, process = child
    session = process.connect()
    has = vllm_versions.traits(version)
    for trait, (changes, said) in ASKED.items():
        answer = session.start(evolve(CONFIG, **changes))
        if trait in has:
            assert isinstance(answer, Started)
            session.stop()
        else:
            assert isinstance(answer, Refused)
            assert answer.reason.startswith(said.format(version))
    started = session.start(CONFIG)
    assert isinstance(started, Started)
    for kind in ("reset", "pause"):
        assert (kind in started.capabilities) == (kind in has)
        if kind not in has:
            refused = session.control(kind)
            assert isinstance(refused, Refused)
            assert kind in refused.reason
    session.stop()
    session.options = {"v2_runner": True}
    answer = session.start(CONFIG)
    assert isinstance(answer, Started if "v2-runner" in has else Refused)


def test_a_listed_version_that_is_not_what_the_table_says_is_a_broken_harness():
    version = SPEC.versions[-1]
    found = environment(version)
    code = f"""
import runpy, sys
sys.path.insert(0, {str(found.child.parent)!r})
import child
child.claim()
from vllm.v1.core.sched.scheduler import Scheduler
del Scheduler._request_blocks_can_be_freed
runpy.run_path({str(found.child)!r}, run_name="__main__")
"""
    with_care = Stdio([found.python, "-c", code], f"vllm=={version}", env=found.env)
    try:
        reply = with_care.exchange({"id": 1, "do": "start", "config": {}})
    finally:
        with_care.close()
    assert (reply["event"], reply["origin"], reply["kind"]) == ("engine_error", "adapter", "Unsupported")
    assert f"vLLM {version} lacks the trait 'fence'" in str(reply["message"])


def test_a_checkout_is_driven_and_called_unverified(monkeypatch, tmp_path):
    """The same files by way of --engine-python, whose PYTHONPATH is left alone."""
    found = environment(SPEC.versions[-1])
    monkeypatch.setenv("PYTHONPATH", found.env["PYTHONPATH"])
    from preempt_oracle.cli.target import target

    chosen = target("vllm", engine_python=str(Path(found.python)))
    assert chosen.label == "vllm (unverified)"
    session = chosen.connect()
    try:
        started = session.start(CONFIG)
    except HarnessError as e:  # pragma: no cover - says why
        pytest.fail(str(e))
    finally:
        session.close()
    assert isinstance(started, Started)
    assert isinstance(session, Session)
