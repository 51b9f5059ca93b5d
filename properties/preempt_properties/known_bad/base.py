"""What every known-bad scheduler is: the reference with one decision wrong, and the rule that must name it."""

from __future__ import annotations

from itertools import chain
from typing import ClassVar

from attrs import evolve

from preempt_properties.scenario import Control, Scenario, Step
from preempt_spec.offload import Offloading
from preempt_spec.policies.displacing import displaces
from preempt_spec.policies.policy import Policy, Release
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.policies.visits import passes_over
from preempt_spec.reference import Reference

#: Those whose reference makes room for one requester at a time: what most schedulers here get wrong. The others, which
#: make room behind a whole pass, have a few of their own (`starving`).
EVERYWHERE = tuple(p for p, profile in PROFILES.items() if not passes_over(profile.contract))
STARVING = tuple(p for p in PROFILES if p not in EVERYWHERE)
MIXED = ("vllm-fcfs", "vllm-priority")
RECOMPUTING = (*MIXED, "nano-vllm", "vidur-vllm")
CACHING = (*MIXED, "nano-vllm")
RETRACTING = ("sglang-retract", "sglang-priority")
#: Those in which a waiting request takes the place of worse ones.
DISPLACING = tuple(p for p, profile in PROFILES.items() if displaces(profile.contract))
#: Those whose victims serve one requester, and go in front, or to a place of their own.
ONE_BY_ONE = tuple(p for p in EVERYWHERE if p not in RETRACTING)
SWAPPING = ("vllm-v0-swap",)
BUT_LAZY = tuple(p for p in EVERYWHERE if PROFILES[p].contract.release is Release.AT_ONCE)


class KnownBad(Reference):
    """The reference, to be broken in one place. Subclasses say which rule they break, and where it was seen."""

    rule: ClassVar[str]
    also: ClassVar[frozenset[str]] = frozenset()  # rules that name the same fault in some workloads, just as rightly
    bug: ClassVar[str] = ""  # a public report of this kind of fault
    policies: ClassVar[tuple[str, ...]] = EVERYWHERE
    needs: ClassVar[frozenset[str]] = frozenset()  # capabilities its workloads must use beyond the usual ones

    @classmethod
    def contract(cls, policy: Policy) -> Policy:
        """The policy it claims to follow, from the profile's."""
        return policy

    @classmethod
    def engine(cls, scenario: Scenario) -> Scenario:
        """A workload, for the kind of engine it is: nobody searches without knowing that."""
        return scenario

    @classmethod
    def scene(cls, scenario: Scenario) -> Scenario:
        """A workload, with what it takes for the fault to have a chance in it soon: tests are in a hurry."""
        return cls.engine(scenario)


def often_paused(scenario: Scenario) -> Scenario:
    """The scenario, with every other step paused."""
    pauses = (Control("pause"), Step(), Control("resume"), Step())
    script = [pauses * c.count if isinstance(c, Step) else (c,) for c in scenario.script]
    return evolve(scenario, script=(*chain.from_iterable(script), *pauses * 3))


class BadCache(KnownBad, Offloading):
    """The reference with a host cache, to be broken in one place."""

    policies = MIXED
    needs = frozenset({"offload"})

    @classmethod
    def engine(cls, scenario: Scenario) -> Scenario:
        """With a host pool."""
        c = scenario.config
        config = evolve(c, host_blocks=c.host_blocks or c.blocks, caching=True, whole_fit=True, groups="full")
        return evolve(scenario, config=config)
