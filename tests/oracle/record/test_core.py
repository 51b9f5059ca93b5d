"""vLLM's own engine core with the class that `--scheduler-cls` names: its loop, its queue of batches, its shutdown."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from preempt_oracle.check import check
from preempt_oracle.engines import environments
from preempt_oracle.engines.vllm_versions import EVERY_RUN
from preempt_oracle.record.settings import PREFIX
from preempt_oracle.trace import wire
from preempt_oracle.trace.reader import read
from preempt_oracle.verdict import Verdict

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).parents[3]
SYNC, ASYNC = (f"preempt_oracle.record.vllm.Recording{kind}Scheduler" for kind in ("", "Async"))


def cores(version: str, runs: list[tuple[int, str]], folder: Path, **settings: str) -> list[dict[str, Any]]:
    """What came of each run, in one process: importing vLLM takes half a minute."""
    found = environments.ready("vllm", version)
    if found is None:
        pytest.skip(f"needs `preempt-oracle engines install vllm=={version}`")
    beside = folder / "beside"
    beside.mkdir()
    for name in ("attr", "attrs", "msgspec", "backports"):
        (beside / name).symlink_to(next(iter(__import__(name).__path__)))
    roots = [str(ROOT / part) for part in ("spec", "properties", "oracle")]
    env = {**found.env, "PYTHONPATH": os.pathsep.join([*roots, str(beside), found.env.get("PYTHONPATH", "")])}
    env |= {PREFIX + name: value for name, value in settings.items()}
    command = [found.command[0], str(Path(__file__).with_name("core_child.py")), json.dumps(runs)]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    answers: list[dict[str, Any]] = json.loads(ended.stdout)
    return answers


@pytest.mark.parametrize("version", EVERY_RUN)
def test_an_engine_core_that_records_serves_the_same_and_its_files_conform(version, tmp_path):
    directory = tmp_path / "files"
    directory.mkdir()
    runs = [(0, ""), (0, SYNC), (1, ""), (1, ASYNC), (0, ASYNC), (1, SYNC)]
    plain, recorded, ahead, recorded_ahead, wrong, wrong_ahead = cores(
        version, runs, tmp_path, DIR=str(directory), ONLINE="on"
    )
    for its, other, name in ((recorded, plain, SYNC), (recorded_ahead, ahead, ASYNC)):
        assert its.pop("class") == name
        other.pop("class")
        assert its == other
        assert len(its["seen"]) >= 22
    assert f"vLLM needs {SYNC}" in wrong["error"]
    assert f"vLLM needs {ASYNC}" in wrong_ahead["error"]
    files = sorted(directory.iterdir())
    assert len(files) == 2
    frames = set()
    for file in files:
        tally = check(file)
        assert (tally.verdict, tally.lost) == (Verdict.CONFORMS, 0), tally.failures or tally.missing
        assert tally.preemptions > 5
        lines = [line for _, line in read(file)]
        assert isinstance(lines[0], wire.Header)
        frames.add(lines[0].limits.frames)
        assert {"stop", "length"} == {line.reason for line in lines if isinstance(line, wire.Finish)}
        assert sum(isinstance(line, wire.Abort) for line in lines) >= 1
    assert frames == {1, 2}
