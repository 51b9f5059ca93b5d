"""Engines whose victims come back later, or give their blocks back later, than most. The ancestors here are right."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import BUT_LAZY, RECOMPUTING, KnownBad
from preempt_spec import events as ev
from preempt_spec.policies.policy import Policy, Release, Return
from preempt_spec.policies.queues import requeue_at


class Acking(KnownBad):
    """Requeues a victim with the next step, when the worker has acknowledged. Nothing is wrong."""

    @classmethod
    def contract(cls, policy: Policy) -> Policy:
        """A declared limbo."""
        return evolve(policy, returns=Return.ACK)

    def prepare(self) -> None:
        """Nobody is in limbo."""
        self.limbo: list[str] = []

    def requeue(self, victim: str) -> None:
        """Not yet."""
        self.limbo.append(victim)

    def abort(self, request: str) -> ev.Abort:
        """Also of who is in limbo."""
        self.limbo = [r for r in self.limbo if r != request]
        return super().abort(request)

    def begin(self) -> None:
        """Who was preempted in the step before, or between, and still lives is back."""
        super().begin()
        back, self.limbo = self.limbo, []
        for victim in back:
            if victim in self.state.requests:
                self.acknowledged(victim)

    def acknowledged(self, victim: str) -> None:
        """Now."""
        super().requeue(victim)


class NeverAcknowledges(Acking):
    """Waits for an acknowledgement that went to a queue which nobody reads."""

    rule = "live/progress"
    bug = "TensorRT-LLM #18115"

    def acknowledged(self, victim: str) -> None:
        """Nothing."""


class AcknowledgesTwice(Acking):
    """Requeues a victim once for each of two workers that acknowledge."""

    rule = "queue/one-place"
    bug = "TensorRT-LLM #9931"

    def acknowledged(self, victim: str) -> None:
        """And again."""
        super().acknowledged(victim)
        super().acknowledged(victim)


class ResumesWithoutAcknowledgement(Acking):
    """Has a victim in its batch again while the worker has not let go of it yet."""

    rule = "queue/one-place"
    policies = BUT_LAZY
    bug = "FastDeploy #3292"

    def acknowledged(self, victim: str) -> None:
        """It stays in limbo."""
        self.limbo.append(victim)

    def serve_running(self) -> None:
        """The first in limbo goes on, if every gate is open."""
        super().serve_running()
        for victim in self.limbo[:1]:
            nothing = ((),) * len(self.state.groups)
            tokens = self.first_tokens(victim, 0)
            if victim not in self.state.plan.demoted and tokens and self.may_admit(victim, tokens, 0, nothing):
                self.grant(victim, tokens)

    def observe(self) -> ev.Observed:
        """It counts as running."""
        o = super().observe()
        return evolve(o, running=(*(o.running or ()), *(r for r in self.limbo if r in self.state.plan.granted)))


class RemembersItsPlace(Acking):
    """Requeues a victim where it would have stood when it was preempted, whoever came meanwhile."""

    rule = "queue/front"
    policies = ("vllm-priority",)

    def prepare(self) -> None:
        """No place is remembered."""
        super().prepare()
        self.places: dict[str, int] = {}

    def requeue(self, victim: str) -> None:
        """The place is noted."""
        super().requeue(victim)
        self.places[victim] = requeue_at(self.state, victim)

    def acknowledged(self, victim: str) -> None:
        """And taken."""
        known = len(self.state.request(victim).tokens)
        self._act(ev.Requeue(victim, 0, "waiting", self.places[victim], known))


class Lazy(KnownBad):
    """Leaves a victim its blocks until somebody needs them; who comes back first keeps them. Nothing is wrong."""

    policies = RECOMPUTING

    @classmethod
    def contract(cls, policy: Policy) -> Policy:
        """It may."""
        return evolve(policy, release=Release.LAZY)


class NeverReclaims(Lazy):
    """Leaves its victims their blocks for good, and preempts others: planned preemptions are never carried out."""

    rule = "victim/minimal"
    also = frozenset({"victim/necessity"})
    bug = "xinfer #12"

    def pressure(self, request: str) -> tuple[int, int]:
        """Only what is free counts."""
        need, supply = super().pressure(request)
        return need, supply - sum(len(self.spare(g, "")) for g in range(len(self.state.groups)))

    def spare(self, group: int, request: str) -> set[int]:
        """It will never have them."""
        return super().spare(group, request) if not request else set()


class ReclaimsTwice(Lazy):
    """Takes a victim's blocks when they are needed, and once more."""

    rule = "pool/free-once"
    bug = "sglang #12224"

    def reclaim(self, holder: str) -> None:
        """Twice."""
        super().reclaim(holder)
        super().reclaim(holder)


class ReclaimsFromWhoResumed(Lazy):
    """Takes back what a victim was left, though it runs again with it."""

    rule = "pool/free-once"
    bug = "FastDeploy #5502"

    def grant(self, request: str, tokens: int, hit: int = 0, blocks: tuple[tuple[int, ...], ...] = ()) -> None:
        """As soon as it is back."""
        held = request in self.holders()
        super().grant(request, tokens, hit, blocks)
        if held:
            self.reclaim(request)


class ComesBackWithoutItsBlocks(Lazy):
    """Believes that a victim still has what was taken from it while it waited."""

    rule = "resume/hit"
    bug = "LMDeploy #3589"

    def prepare(self) -> None:
        """Nobody was preempted."""
        self.had: dict[str, int] = {}

    def reclaim(self, holder: str) -> None:
        """The computed tokens are noted."""
        self.had[holder] = self.state.request(holder).computed
        super().reclaim(holder)

    def grant(self, request: str, tokens: int, hit: int = 0, blocks: tuple[tuple[int, ...], ...] = ()) -> None:
        """And believed."""
        had = min(self.had.pop(request, 0), tokens - 1)
        nothing = ((),) * len(self.state.groups)
        if had > hit and not hit:
            super().grant(request, tokens - had, had, nothing)
        else:
            super().grant(request, tokens, hit, blocks)
