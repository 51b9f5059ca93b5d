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
from preempt_spec.micro import expand
from preempt_spec.policies.policy import Policy
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.rules import RULES, Violation
from preempt_spec.state import initial
from preempt_spec.system import clauses, run
from preempt_spec.transition import apply_micro

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


def finders(variant: type[KnownBad], scenario: Scenario) -> list[str]:
    """The names of the clauses of its rule that find something in the event that shows a variant's fault."""
    mine = [(micro, clause) for micro, _, clause in RULES[variant.rule].clauses]
    heard: set[str] = set()

    def pure(head: ev.Header, contract: Policy) -> Judge:
        states, active = [initial(head, contract)], clauses(head.observes)

        def look(event: ev.Event) -> list[Violation]:
            outcome = run(states[-1], event, active)
            if not outcome.violations:
                states[:] = [outcome.state]
                return []
            for m in expand(event, len(states[-1].memory)):
                found = [c.__name__ for micro, c in mine if isinstance(m, micro) and any([*c(states[-1], m)])]
                heard.update(found)
                if found:
                    break
                states[:] = [apply_micro(states[-1], m)]
            return list(outcome.violations)

        return look

    shown(variant, scenario, pure)
    return sorted(heard)
