"""Schedulers that are right, each with a knob turned that no profile turns: whoever accuses one of them is wrong."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import BadCache, KnownBad
from preempt_properties.known_bad.flight import Dropping
from preempt_properties.known_bad.provenance import Committing
from preempt_properties.known_bad.returns import Acking, Lazy
from preempt_properties.overlap import OVERLAP
from preempt_spec.policies.policy import Oversize, Policy


class Right(KnownBad):
    """Nothing is wrong."""

    rule = ""


class RightAndRefusing(Right):
    """Nothing is wrong, with a scheduler that refuses by itself what can never fit."""

    needs = frozenset({"reject"})

    @classmethod
    def contract(cls, policy: Policy) -> Policy:
        """Refusing is the scheduler's business."""
        return evolve(policy, oversize=Oversize.SCHEDULER)


class RightBeyond(Right):
    """Nothing is wrong, with all that goes beyond one frame, tier and group."""

    needs = OVERLAP - {"offload"}


class RightWithACache(BadCache):
    """Nothing is wrong, with a host cache."""

    rule = ""
    needs = frozenset({"frames", "drafts", "reset", "pause", "offload"})


class AcksRightly(Acking):
    """Its victims are in limbo for a while, which its policy declares."""

    rule = ""
    needs = OVERLAP - {"offload"}


class ReleasesLazilyRightly(Lazy):
    """Its victims keep their blocks until somebody needs them, which its policy declares."""

    rule = ""
    needs = frozenset({"frames", "reset", "pause"})


class CommitsRightly(Committing):
    """It publishes at commit, which its policy declares."""

    rule = ""
    needs = frozenset({"frames", "drafts", "reset", "pause"})


class DropsRightly(Dropping):
    """It drops what flies for a victim, which its policy declares.

    Under FCFS: two requests of equal priority could preempt each other before an output of either comes back, for ever.
    """

    rule = ""
    policies = ("vllm-fcfs",)
    needs = frozenset({"frames", "drafts", "reset", "pause", "groups"})


#: The reference, and all that differ from it and are right.
RIGHT: tuple[type[KnownBad], ...] = (
    Right,
    RightAndRefusing,
    RightBeyond,
    RightWithACache,
    AcksRightly,
    ReleasesLazilyRightly,
    CommitsRightly,
    DropsRightly,
)
