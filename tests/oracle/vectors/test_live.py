"""The recorded traces are what the installed vLLM versions do today."""

from __future__ import annotations

import pytest

from preempt_oracle.engines.environments import ENGINES, ready
from preempt_oracle.vectors import make

pytestmark = pytest.mark.vllm


def test_recording_again_gives_the_same_traces():
    for version in ENGINES[make.ENGINE].driven:
        if ready(make.ENGINE, version) is None:
            pytest.skip(f"needs `preempt-oracle engines install {make.ENGINE}=={version}`")
    assert not list(make.differences(make.record(), under="traces/"))
