"""Queues: where a victim goes back, who is next, which gates are checked (bugs of kind G)."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import BUT_LAZY, MIXED, ONE_BY_ONE, RETRACTING, KnownBad
from preempt_spec import events as ev


class RequeuesAtTheBack(KnownBad):
    """Puts a victim behind everybody who waits."""

    rule = "queue/front"
    bug = "vllm #41951"
    policies = ONE_BY_ONE

    def requeue(self, victim: str) -> None:
        """The last index."""
        s = self.state
        known = len(s.request(victim).tokens)
        self._act(ev.Requeue(victim, len(s.plan.granted), "waiting", len(s.waiting), known))


class RequeuesInFront(KnownBad):
    """Puts a victim before everybody who waits, though its policy sends it to the back."""

    rule = "queue/front"
    policies = RETRACTING

    def requeue(self, victim: str) -> None:
        """The first index."""
        s = self.state
        known = len(s.request(victim).tokens)
        self._act(ev.Requeue(victim, len(s.plan.granted), "waiting", 0, known))


class SinksItsVictims(KnownBad):
    """Says that it put the victim in front, and has it one place further back by the end of the step."""

    rule = "queue/front"
    bug = "FastDeploy #5506"
    policies = ONE_BY_ONE

    def observe(self) -> ev.Observed:
        """The victim and the one behind it are exchanged."""
        o = super().observe()
        victims, queue = self.state.plan.demoted, o.waiting or ()
        if not victims or len(queue) < 2 or queue[0] not in victims or queue[1] in victims:
            return o
        return evolve(o, waiting=(queue[1], queue[0], *queue[2:]))


class AdmitsTheYoungest(KnownBad):
    """Takes the next request from the wrong end of the queue."""

    rule = "queue/order"

    def next_waiting(self) -> str | None:
        """The last."""
        return self.state.waiting[-1] if self.state.waiting else None


class SkipsTheHeadThatDoesNotFit(KnownBad):
    """Admits whoever fits, past an older request that does not."""

    rule = "queue/order"

    def next_waiting(self) -> str | None:
        """The first that would be admitted at once."""
        for r in self.state.waiting:
            blocks, hit = self.find_prefix(r)
            tokens = self.first_tokens(r, hit)
            if tokens > 0 and self.may_admit(r, tokens, hit, blocks):
                return r
        return None


class ReversesRunning(KnownBad):
    """Puts admitted requests in front of the running queue instead of behind it."""

    rule = "queue/order"

    def observe(self) -> ev.Observed:
        """Running is upside down."""
        o = super().observe()
        return evolve(o, running=(o.running or ())[::-1])


class StaysAsAdmitted(KnownBad):
    """Does not sort who stays behind a preemption, as its policy has it."""

    rule = "queue/order"
    policies = RETRACTING

    def prepare(self) -> None:
        """Everybody who was admitted, in that order."""
        self.order: list[str] = []

    def grant(self, request: str, tokens: int, hit: int = 0, blocks: tuple[tuple[int, ...], ...] = ()) -> None:
        """Who is admitted is noted as the last."""
        if request not in self.state.running:
            self.order = [*(r for r in self.order if r != request), request]
        super().grant(request, tokens, hit, blocks)

    def observe(self) -> ev.Observed:
        """Running is as it would be."""
        return evolve(super().observe(), running=tuple(r for r in self.order if r in self.state.running))


class AdmitsAfterAPreemption(KnownBad):
    """Admits in a step that preempted: mostly the victim itself, into the blocks it has just lost."""

    rule = "queue/admission"
    policies = MIXED

    def may_admit(self, request: str, tokens: int, hit: int, blocks: tuple[tuple[int, ...], ...]) -> bool:
        """The gate after a preemption is open, to others than the victims."""
        s = self.state
        if request in s.plan.demoted:
            return False
        self.state = evolve(s, plan=evolve(s.plan, demoted=()))
        may = super().may_admit(request, tokens, hit, blocks)
        self.state = s
        return may

    def next_waiting(self) -> str | None:
        """Victims of this step stand aside, as its own queue says."""
        for victim in self.state.plan.demoted:
            if victim not in self.state.plan.skipped:
                self._act(ev.Skip(victim, "just preempted", len(self.state.plan.granted)))
        return super().next_waiting()


class AdmitsOneTooMany(KnownBad):
    """Compares running requests with their bound before counting the one it admits."""

    rule = "queue/admission"
    bug = "FastDeploy #7141"

    def may_admit(self, request: str, tokens: int, hit: int, blocks: tuple[tuple[int, ...], ...]) -> bool:
        """One slot more than there is."""
        s = self.state
        self.state = evolve(s, limits=evolve(s.limits, max_running=s.limits.max_running + 1))
        may = super().may_admit(request, tokens, hit, blocks)
        self.state = s
        return may


class ChecksTheFirstChunkOnly(KnownBad):
    """Promises room for the whole prompt and looks for room for its first chunk."""

    rule = "queue/admission"
    bug = "vllm #25538"
    policies = MIXED

    def may_admit(self, request: str, tokens: int, hit: int, blocks: tuple[tuple[int, ...], ...]) -> bool:
        """As without the whole-sequence gate."""
        s = self.state
        self.state = evolve(s, limits=evolve(s.limits, whole_fit=False))
        may = super().may_admit(request, tokens, hit, blocks)
        self.state = s
        return may


class IgnoresTheWatermark(KnownBad):
    """Admits into the blocks that are to stay free."""

    rule = "queue/admission"
    policies = tuple(p for p in ONE_BY_ONE if p in BUT_LAZY)  # others keep some free whatever their watermark

    def may_admit(self, request: str, tokens: int, hit: int, blocks: tuple[tuple[int, ...], ...]) -> bool:
        """As with a watermark of 0."""
        s = self.state
        self.state = evolve(s, limits=evolve(s.limits, watermark=0))
        may = super().may_admit(request, tokens, hit, blocks)
        self.state = s
        return may
