"""Faults in the real vLLM: each is caught by the rule it is meant for, and nothing is seen without them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from preempt_oracle.adapters.protocol import Session
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.engines import environments
from preempt_oracle.found import rules
from preempt_oracle.inject import Outcome, injected
from preempt_oracle.verdict import Verdict

pytestmark = pytest.mark.vllm

SPEC = environments.ENGINES["vllm"]


class Shared:
    """One child process for all tests of a version: importing vLLM takes half a minute."""

    def __init__(self, version: str) -> None:
        found = environments.ready("vllm", version)
        if found is None:
            pytest.skip(f"needs `preempt-oracle engines install vllm=={version}`")
        self.name = f"vllm=={version}"
        self.real = Stdio(found.command, self.name, env=found.env)

    def exchange(self, command: dict[str, Any]) -> dict[str, Any]:
        return self.real.exchange(command)

    def close(self) -> None:
        """Not yet."""


#: The versions of which all is checked; those that are not driven in every run, only with the whole matrix.
PARAMS = [
    pytest.param(v, marks=() if v in SPEC.driven else (pytest.mark.matrix, pytest.mark.slow)) for v in SPEC.checked
]


@pytest.fixture(scope="module", params=PARAMS)
def shared(request: pytest.FixtureRequest) -> Iterator[Shared]:
    one = Shared(request.param)
    yield one
    one.real.close()


@pytest.mark.parametrize("policy", SPEC.policies)
def test_every_fault_is_caught_by_the_rule_it_is_meant_for(shared, policy):
    found = injected(lambda: Session(shared), policy, known=rules(shared.name, policy))
    wrong = {
        row.fault.name: (row.outcome, row.named, row.note) for row in found.rows if row.outcome is not Outcome.CAUGHT
    }
    assert not wrong
    assert not found.alarms
    assert found.verdict is Verdict.CONFORMS
    assert len(found.rows) >= 40
