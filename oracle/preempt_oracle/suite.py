"""The conformance suite: families of generated workloads against one scheduler, and how each rule came out of each.

What the pytest plugin shows test by test. A family is run when the first of its results is asked for, and once.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from attrs import Factory, define, field

from preempt_oracle.adapters.protocol import HarnessError, Session
from preempt_oracle.campaign import Budget, Campaign, Save, Seeds, campaign, probe
from preempt_oracle.known import Ledger
from preempt_oracle.verdict import Tally
from preempt_properties.families import FAMILIES, family
from preempt_properties.scenario import Scenario
from preempt_properties.workload import workload
from preempt_spec.system import observable

LOOK = 500  # generated workloads among which a family must be for the suite to have it


def unsaved(*_: object) -> tuple[str, str]:
    """Keep no scenario files: see `campaign.Save`."""
    return "", ""


class OfFamily(Seeds):
    """Those of the generated workloads that are of one family."""

    def __init__(self, seed: int, policy: str, capabilities: frozenset[str], name: str) -> None:
        super().__init__(seed, policy, capabilities)
        self.name = name

    def scenario(self) -> Scenario:
        """The next one."""
        while True:
            found = super().scenario()
            if family(found) == self.name:
                return found


@define
class Suite:
    """One scheduler under one policy. `seed`: of the first workload; `workloads`: of each family.

    Raises what `campaign.probe` raises.
    """

    connect: Callable[[], Session]
    policy: str
    seed: int = 0
    workloads: int = 100
    known: Ledger = Factory(lambda: Ledger(()))
    save: Save = unsaved
    rules: frozenset[str] = field(init=False)  # those that can be observed
    families: tuple[str, ...] = field(init=False)  # those that the scheduler's capabilities let a workload be of
    _ran: dict[str, Campaign] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        session = self.connect()
        try:
            started = probe(session, self.policy).started
        finally:
            session.close()
        self.rules = frozenset(observable(started.header.observes))
        seeds = range(self.seed, self.seed + LOOK)
        found = {family(workload(Random(seed), self.policy, capabilities=started.capabilities)) for seed in seeds}
        self.families = tuple(name for name in reversed([*FAMILIES]) if name in found)

    def ran(self, name: str) -> Campaign:
        """What came of a family. Raises HarnessError if the scheduler, or its adapter, could not be driven on."""
        if name not in self._ran:
            self._ran[name] = campaign(
                self.connect,
                self.policy,
                self.seed,
                Budget(self.workloads),
                self.save,
                known=self.known,
                source=lambda can: OfFamily(self.seed, self.policy, can, name),
            )
        found = self._ran[name]
        if found.interrupted:
            raise KeyboardInterrupt
        if found.broken:
            raise HarnessError(found.broken)
        return found

    def all(self) -> Tally:
        """All families together."""
        first, *others = (self.ran(name).tally for name in self.families)
        joined = Tally(first.engine, first.version, first.policy, deviations=first.deviations, spec=first.spec)
        for tally in (first, *others):
            joined.join(tally)
        return joined


def broken(
    adapter: str | None = None,
    policy: str | None = None,
    *,
    stdio: str | None = None,
    workloads: int = 100,
    seed: int = 0,
) -> frozenset[str]:
    """The rules that a scheduler breaks in so many generated workloads, of all families alike.

    For tests of an adapter: put a fault into your scheduler, and see that it is seen. `adapter` is MODULE:CLASS,
    `stdio` a command; one of the two. Raises HarnessError, ClickException.
    """
    from preempt_oracle.cli.target import target

    found = target(None, adapter, stdio)
    ran = campaign(found.connect, found.policy(policy), seed, Budget(workloads), unsaved, tries=0)
    if ran.broken:
        raise HarnessError(ran.broken)
    return frozenset(ran.tally.times)
