"""How long a known-bad scheduler stays unnoticed: generated workloads until a judge names the rule it breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from attrs import frozen

from preempt_properties.known_bad import KnownBad
from preempt_properties.play import header, play
from preempt_properties.scenario import Scenario
from preempt_properties.workload import CAPABILITIES, workload
from preempt_spec import events as ev
from preempt_spec.policies.policy import Policy
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.rules import Violation

#: Judges one event after the other of one run; the violations of an event, if any.
Judge = Callable[[ev.Event], list[Violation]]


@frozen
class Caught:
    """The first workload in which a scheduler was accused, and of what its first violating event was."""

    workloads: int  # played until then, this one included
    rules: tuple[str, ...]
    message: str


def first_violation(
    variant: type[KnownBad], policy: str, seed: int, judge: Callable[[ev.Header, Policy], Judge]
) -> list[Violation]:
    """What one workload, with the scene that the variant likes, shows of it."""
    return shown(variant, variant.scene(drawn(variant, policy, seed)), judge)


def generated(variant: type[KnownBad], policy: str, seed: int) -> Scenario:
    """A workload for the kind of engine that a variant is, drawn without a look at its fault."""
    return variant.engine(drawn(variant, policy, seed))


def drawn(variant: type[KnownBad], policy: str, seed: int) -> Scenario:
    """A workload of what a variant can do."""
    return workload(Random(seed), policy, capabilities=CAPABILITIES | variant.needs)


def shown(variant: type[KnownBad], scenario: Scenario, judge: Callable[[ev.Header, Policy], Judge]) -> list[Violation]:
    """What a scenario shows of a variant: the violations of its first violating event, or none."""
    contract = variant.contract(PROFILES[scenario.config.policy].contract)
    head = header(scenario.config)
    look = judge(head, contract)
    for event in play(scenario, variant(head, contract)):
        if broken := look(event):
            return broken
    return []


def caught(
    variant: type[KnownBad], policy: str, seeds: Iterator[int], judge: Callable[[ev.Header, Policy], Judge]
) -> Caught | None:
    """The first accusation, within these seeds."""
    for n, seed in enumerate(seeds, 1):
        if broken := first_violation(variant, policy, seed, judge):
            return Caught(n, tuple(sorted({v.rule for v in broken})), broken[0].message)
    return None
