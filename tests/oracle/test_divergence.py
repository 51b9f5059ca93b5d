"""The state of a failure: every known-bad scheduler's has one, and it shows the disagreement where one was told."""

from __future__ import annotations

from random import Random

import pytest

from preempt_oracle.divergence import diverged
from preempt_oracle.monitor import Monitor
from preempt_oracle.trace.convert import to_wire
from preempt_properties.known_bad import ZOO, KnownBad
from preempt_properties.play import header, play
from preempt_properties.workload import CAPABILITIES, workload
from preempt_spec.policies.profiles import PROFILES

#: The others break by what was not done, or when it was done: no figure of the engine's is at odds with the shadow's.
DISAGREE = {
    *("pool/capacity", "pool/conserve", "pool/free-once", "pool/refcount", "queue/front", "queue/order"),
    *("resume/hit", "resume/provenance", "victim/choice", "victim/keep-tokens", "victim/reset"),
}


@pytest.mark.long
@pytest.mark.parametrize("variant", ZOO, ids=lambda v: v.__name__)
def test_every_failure_has_its_state(variant: type[KnownBad]):
    policy = variant.policies[0]
    contract = variant.contract(PROFILES[policy].contract)
    for seed in range(400):
        scenario = variant.scene(workload(Random(seed), policy, capabilities=CAPABILITIES | variant.needs))
        head = header(scenario.config)
        monitor = Monitor(head, contract)
        for event in map(to_wire, play(scenario, variant(head, contract))):
            for violation in monitor.feed(event):
                if violation.rule == variant.rule:
                    seen = diverged(monitor, event, violation)
                    assert seen is not None
                    assert {"running", "waiting"} <= {c.what for c in seen.books}
                    if violation.rule in DISAGREE:
                        assert any(c.differs for c in seen.books), (violation, seen)
                    return
    pytest.fail("not accused within these workloads")
