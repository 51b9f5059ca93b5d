"""Drafts: proposed, verified, rejected, and outlived by a preemption (bugs of kinds B and C)."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import MIXED, KnownBad
from preempt_spec import events as ev
from preempt_spec.edit import change
from preempt_spec.view import Fate


class Drafting(KnownBad):
    """It speculates."""

    needs = frozenset({"drafts", "frames"})

    def rejected(self, e: ev.Deliver) -> dict[str, int]:
        """Drafts of the frame that were not accepted, per live request."""
        due = self.state.frames.get(e.frame, {})
        return {
            r: due[r].outputs - len(new)
            for r, new in zip(e.requests, e.tokens, strict=True)
            if r in due and due[r].fate is Fate.LIVE
        }


class SchedulesDraftsOfBefore(Drafting):
    """Keeps a victim's drafts, and has them verified when it resumes."""

    rule = "output/stream"
    bug = "vllm #31955"

    def prepare(self) -> None:
        """Nobody was preempted."""
        self.kept: dict[str, int] = {}

    def preempt(self, victim: str, requester: str) -> None:
        """They are noted."""
        self.kept[victim] = self.state.request(victim).drafts
        super().preempt(victim, requester)

    def first_tokens(self, request: str, hit: int) -> int:
        """Behind the last known token."""
        tokens, r = super().first_tokens(request, hit), self.state.request(request)
        whole = tokens and max(hit, r.computed) + tokens == len(r.tokens)
        return tokens + self.kept.pop(request, 0) if whole else tokens


class EmitsRejectedDrafts(Drafting):
    """Appends all drafts of a frame, whether they were accepted or not."""

    rule = "output/stream"
    bug = "LMDeploy #4564"

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """How many are rejected is looked up first."""
        self.over = self.rejected(e)
        return super().deliver(e)

    def emits(self, request: str, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """As many as were granted."""
        return (*tokens, *(0 for _ in range(self.over.get(request, 0))))


class CountsTheBonusTwice(Drafting):
    """Samples a token behind the accepted drafts and takes the last draft for one more."""

    rule = "output/stream"

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """One token more than the frame was granted."""
        full = {r for r, n in self.rejected(e).items() if n == 0 and len(e.tokens[e.requests.index(r)]) > 1}
        tokens = tuple((*new, new[-1]) if r in full else new for r, new in zip(e.requests, e.tokens, strict=True))
        return super().deliver(evolve(e, tokens=tokens))


class CountsDraftsAsAccepted(Drafting):
    """Reports every proposed draft as accepted."""

    rule = "output/stream"

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """As many as there were."""
        lost = self.rejected(e)
        told = e.accepted and tuple(n + lost.get(r, 0) for r, n in zip(e.requests, e.accepted, strict=True))
        return super().deliver(evolve(e, accepted=told))


class CountsRejectedDraftsAsComputed(Drafting):
    """Does not set the computed tokens back when drafts are rejected: what comes next starts too late."""

    rule = "frame/once"
    also = frozenset({"queue/visit-once"})  # if it thinks that nothing is left to compute
    bug = "vllm #57562"

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """They stay."""
        lost, out = self.rejected(e), super().deliver(e)
        for r, n in lost.items():
            if r in self.state.requests:
                self.state = change(self.state, r, computed=self.state.request(r).computed + n)
        return out


class SamplesFromEveryChunk(KnownBad):
    """Takes a chunk in the middle of a prefill for its last one, and appends what was sampled behind it."""

    rule = "output/stream"
    bug = "vllm-ascend #11334"
    policies = MIXED

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """A token for everybody in the frame."""
        due = self.state.frames.get(e.frame, {})
        early = tuple(r for r, x in due.items() if x.fate is Fate.LIVE and not x.outputs)
        return super().deliver(evolve(e, requests=(*e.requests, *early), tokens=(*e.tokens, *((0,) for _ in early))))


class GrantsNothing(KnownBad):
    """Keeps a running request for which there is no budget in its batch, with no token."""

    rule = "output/stream"
    policies = MIXED

    def step(self) -> ev.Step:
        """Everybody who runs is in the batch."""
        step = super().step()
        idle = tuple(r for r in self.state.running if r not in step.requests)
        start = tuple(self.state.request(r).computed for r in idle)
        return evolve(
            step,
            requests=(*step.requests, *idle),
            tokens=(*step.tokens, *(0 for _ in idle)),
            start=(*(step.start or ()), *start),
        )
