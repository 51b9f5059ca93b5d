"""The prediction against real vLLM schedulers: a few hundred workloads per version; a wrong prediction shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from preempt_oracle.adapters.protocol import Session
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.engines import environments
from preempt_oracle.lockstep.modes import POLICIES, select
from preempt_oracle.lockstep.predicted import VERSIONS, Predicted
from preempt_oracle.lockstep.run import Budget, Lockstep, lockstep
from preempt_spec.policies.policy import AfterSelf

pytestmark = pytest.mark.vllm

Campaign = Callable[..., Lockstep]


class Shared(Session):
    """A session that outlives the campaigns that use it: importing vLLM takes half a minute."""

    def close(self) -> None:
        pass


@pytest.fixture(scope="module", params=VERSIONS)
def campaign(request: pytest.FixtureRequest) -> Iterator[Campaign]:
    """Run modes (by policy and words) on one version."""
    found = environments.ready("vllm", request.param)
    if found is None:
        pytest.skip(f"needs `preempt-oracle engines install vllm=={request.param}`")
    child = Stdio(found.command, f"vLLM {request.param}", env=found.env)

    def run(policies: tuple[str, ...], words: str, workloads: int, predict: type[Predicted] = Predicted) -> Lockstep:
        return lockstep(lambda: Shared(child), select(policies, words), 0, Budget(workloads), tries=0, predict=predict)

    yield run
    child.close()


@pytest.mark.parametrize("policy", POLICIES)
def test_it_is_predicted_in_every_mode(campaign: Campaign, policy: str):
    out = campaign((policy,), "", 280)
    assert not out.broken
    assert out.first is None
    ran = [cell for cell in out.cells.values() if cell.steps]
    refused = Counter(mode.words[2] for mode, cell in out.cells.items() if not cell.steps)
    # 0.31.0 starts no drafter with its second runner.
    assert set(refused) <= ({"runner=2"} if out.version == "0.31.0" else set())
    assert len(ran) + refused.total() == 280
    assert out.steps > 5_000
    for what in ("preemption", "resume with a prefix hit", "stale output appended", "stale output dropped"):
        assert out.reached[what] > 5, what
    for what in ("control: reset with frames in flight", "abort of a running request in flight", "drafts"):
        assert out.reached[what] > 5, what
    if policy == "vllm-priority":
        assert out.reached["victim already granted"] > 5


class OtherVersion(Predicted):
    """What a self-preemption does to the rest of the step, as in the other version."""

    def serve_running(self) -> None:
        from attrs import evolve

        stop = self.policy.after_self is AfterSelf.STOP
        self.policy = evolve(self.policy, after_self=AfterSelf.CONTINUE if stop else AfterSelf.STOP)
        super().serve_running()
        self.policy = evolve(self.policy, after_self=AfterSelf.STOP if stop else AfterSelf.CONTINUE)


class LastRegistered(Predicted):
    """Hits the block that was registered last."""

    def prepare(self) -> None:
        super().prepare()
        found = self.pool._found
        self.pool.find = lambda page: found[page][-1] if page in found else None  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("wrong", "words", "field"), [(OtherVersion, "sync", "requests"), (LastRegistered, "sync,caching", "blocks")]
)
def test_a_wrong_prediction_shows(campaign: Campaign, wrong: type[Predicted], words: str, field: str):
    out = campaign(("vllm-priority",), words, 120, wrong)
    assert not out.broken
    assert out.first is not None
    assert field in out.first.fields
