"""What is drawn hangs on the seed and on nothing else: in particular not on how this process hashes strings."""

import os
import subprocess
import sys

import pytest

DRAW = """
from random import Random
from preempt_properties.strategies import stream
from preempt_spec.policies.profiles import PROFILES

for policy in PROFILES:
    for seed in range(40):
        drawn = stream(Random(seed), policy, lambda header: lambda event: True)
        print(policy, drawn.scheduler, sorted(drawn.header.observes), drawn.events)
"""


def drawn(hashing: str) -> str:
    env = {**os.environ, "PYTHONHASHSEED": hashing, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", DRAW], env=env, capture_output=True, text=True, check=True).stdout


@pytest.mark.long
def test_a_seed_draws_the_same_streams_however_strings_are_hashed():
    streams = drawn("0")
    assert len(streams.splitlines()) >= 200
    assert drawn("1") == streams
