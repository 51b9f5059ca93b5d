"""Who is preempted, why, and how many of them (bugs of kinds C and G)."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import (
    BUT_LAZY,
    DISPLACING,
    EVERYWHERE,
    MIXED,
    ONE_BY_ONE,
    RETRACTING,
    KnownBad,
)
from preempt_spec import events as ev
from preempt_spec.policies.victims import going_key
from preempt_spec.view import Place


class PreemptsForAnAdmission(KnownBad):
    """Lets a waiting request evict a running one."""

    rule = "victim/trigger"
    bug = "Dynamo #9718"
    policies = tuple(p for p in EVERYWHERE if p not in DISPLACING)

    def _act(self, act: ev.Act) -> None:
        if isinstance(act, ev.Demote):
            act = evolve(act, cause="admission", beneficiaries=self.state.waiting[:1])
        super()._act(act)


class CallsItAReset(KnownBad):
    """Preempts under pressure and says that the operator did."""

    rule = "victim/trigger"

    def _act(self, act: ev.Act) -> None:
        super()._act(evolve(act, cause="reset") if isinstance(act, ev.Demote) else act)


class PreemptsForNobody(KnownBad):
    """Preempts under pressure and cannot say for whom."""

    rule = "victim/trigger"

    def _act(self, act: ev.Act) -> None:
        super()._act(evolve(act, beneficiaries=()) if isinstance(act, ev.Demote) else act)


class PreemptsForAllAtOnce(KnownBad):
    """Preempts for one that cannot grow, and says that it was for all who run: their needs together."""

    rule = "victim/trigger"
    policies = ONE_BY_ONE

    def _act(self, act: ev.Act) -> None:
        if isinstance(act, ev.Demote) and act.beneficiaries:
            act = evolve(act, beneficiaries=self.state.running)
        super()._act(act)


class PreemptsAtTheLastBlock(KnownBad):
    """Takes a need equal to the supply for a shortage."""

    rule = "victim/necessity"
    also = frozenset({"victim/minimal"})  # if the first victim was needed

    def fits(self, request: str) -> bool:
        """Only if a block would be left."""
        need, supply = self.pressure(request)
        return need == 0 or need < supply


class WantsAFreeBlockFromEveryone(KnownBad):
    """Preempts unless a block is free, also for a request whose table need not grow."""

    rule = "victim/necessity"
    bug = "vidur 0.0.26, _can_allocate_request"

    def fits(self, request: str) -> bool:
        """One free block, and what it needs."""
        return super().fits(request) and self.pressure(request)[1] > 0


class TakesOneMore(KnownBad):
    """Preempts a second victim though the first made room enough."""

    rule = "victim/minimal"
    policies = BUT_LAZY

    def make_room(self, request: str) -> None:
        """And one more, if there is one."""
        before = len(self.state.plan.demoted)
        super().make_room(request)
        if len(self.state.plan.demoted) > before and self.state.request(request).place is Place.RUNNING:
            another = self.choose_victim(request)
            if another is not None:
                self.preempt(another, request)


class GoesOnBehindAFence(KnownBad):
    """Releases its victims behind a pass that still writes them, sees no free block, and takes the next victim."""

    rule = "victim/yield"
    bug = "TensorRT-LLM #18115"
    policies = MIXED
    needs = frozenset({"frames"})

    def fences(self, request: str) -> int | None:
        """Until the last frame that flies for it."""
        return max((f for f, due in self.state.frames.items() if request in due), default=None)


class LetsItStarve(KnownBad):
    """Passes over a running request that cannot grow, instead of preempting for it."""

    rule = "victim/duty"
    bug = "vllm #15996"

    def choose_victim(self, request: str) -> str | None:
        """Nobody."""
        return None


class SparesOthersForALoneRequest(KnownBad):
    """Preempts others only: a requester that is itself the victim just waits."""

    rule = "victim/duty"
    bug = "sglang #19881"
    policies = ONE_BY_ONE

    def choose_victim(self, request: str) -> str | None:
        """Anybody but the requester."""
        victim = super().choose_victim(request)
        return None if victim == request else victim


class PreemptsTheOldest(KnownBad):
    """Takes the head of the running queue."""

    rule = "victim/choice"

    def choose_victim(self, request: str) -> str | None:
        """The first in running."""
        return self.state.running[0]


class PreemptsTheRequester(KnownBad):
    """Preempts whoever cannot grow."""

    rule = "victim/choice"
    policies = BUT_LAZY

    def choose_victim(self, request: str) -> str | None:
        """Itself."""
        return request


class BreaksTiesBackwards(KnownBad):
    """Of equally bad requests takes the latest position instead of the earliest."""

    rule = "victim/choice"
    policies = ("vllm-priority",)

    def choose_victim(self, request: str) -> str | None:
        """The last of the worst."""
        s = self.state
        order = [(s.request(r).priority, s.request(r).arrival, i, r) for i, r in enumerate(s.running)]
        return max(order)[-1] if order else None


class TakesTheFirstOfEquals(KnownBad):
    """Of those with equally few outputs and equally long prompts takes the first, not the last."""

    rule = "victim/choice"
    policies = RETRACTING

    def choose_victim(self, request: str) -> str | None:
        """The tie the other way."""
        s = self.state
        order = [(*going_key(s.request(r)), -i, r) for i, r in enumerate(s.running)]
        return max(order)[-1] if len(order) > 1 else None


class SparesLongPrompts(KnownBad):
    """Of those with equally few outputs takes the shortest prompt: the least to compute again."""

    rule = "victim/choice"
    policies = RETRACTING

    def choose_victim(self, request: str) -> str | None:
        """Few outputs, then few tokens in all."""
        s = self.state
        requests = [(i, s.request(r)) for i, r in enumerate(s.running)]
        order = [(r.prompt - len(r.tokens), -r.prompt, i, r.id) for i, r in requests]
        return max(order)[-1] if len(order) > 1 else None


class IgnoresPriority(KnownBad):
    """Takes the last position although its policy looks at priorities."""

    rule = "victim/choice"
    policies = ("vllm-priority",)

    def choose_victim(self, request: str) -> str | None:
        """As under FCFS."""
        return self.state.running[-1] if self.state.running else None


class ReachesForPlannedRequests(KnownBad):
    """Takes as its victim a request that was served in this step, which its policy never does."""

    rule = "victim/choice"
    policies = ("nano-vllm", "vidur-vllm")

    def choose_victim(self, request: str) -> str | None:
        """The first one served, while there is one."""
        served = [r for r in self.state.running if r in self.state.plan.granted]
        return served[0] if served else super().choose_victim(request)
