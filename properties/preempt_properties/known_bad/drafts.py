"""Drafts: proposed, verified, rejected, and outlived by a preemption (bugs of kinds B and C)."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import MIXED, KnownBad
from preempt_properties.scenario import Scenario
from preempt_spec import events as ev
from preempt_spec.edit import change
from preempt_spec.policies.blocks import pages_for
from preempt_spec.view import Fate, Place


class Drafting(KnownBad):
    """It speculates."""

    needs = frozenset({"drafts", "frames"})

    @classmethod
    def scene(cls, scenario: Scenario) -> Scenario:
        """Two drafts or more."""
        config = scenario.config
        return evolve(scenario, config=evolve(config, drafts=config.drafts or min(2, config.budget - 1)))

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
    also = frozenset({"queue/admission"})  # if they exceed its budget
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
        whole = tokens > 1 and max(hit, r.computed) + tokens == len(r.tokens)
        return tokens + self.kept.pop(request, 0) if whole else tokens


class VerifiesWhatNobodyProposed(Drafting):
    """Has one draft more verified than were proposed: a placeholder that is left from the step before."""

    rule = "output/stream"
    bug = "vllm #46899"

    def grant(self, request: str, tokens: int, hit: int = 0, blocks: tuple[tuple[int, ...], ...] = ()) -> None:
        """One token more for whoever runs and speculates, if the budget allows."""
        s, r = self.state, self.state.request(request)
        more = r.place is Place.RUNNING and r.drafts and s.plan.spent + tokens < s.limits.budget
        super().grant(request, tokens + 1 if more else tokens, hit, blocks)


class TakesItsLastTokenForADraft(Drafting):
    """Counts the last known token among the drafts behind it: nothing is left to sample the first of them from."""

    rule = "output/stream"

    def step(self) -> ev.Step:
        """One draft more, of the same tokens."""
        step = super().step()
        return evolve(step, drafts=tuple(evolve(d, tokens=d.tokens + 1) for d in step.drafts))


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


class RollsBackAcceptedDrafts(Drafting):
    """Sets the computed tokens back by the drafts that were accepted: their KV is computed again."""

    rule = "frame/once"
    bug = "vllm #57562"

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """As if they had been rejected."""
        kept, out = {r: len(new) - 1 for r, new in zip(e.requests, e.tokens, strict=True)}, super().deliver(e)
        for r, n in kept.items():
            q = self.state.requests.get(r)
            if q is not None and q.place is Place.RUNNING:
                self.state = change(self.state, r, computed=q.computed - n)
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


class CountsNoDraftsInItsNeed(Drafting):
    """Preempts until the next token fits, and then allocates for its drafts as well: the last of them has no slot."""

    rule = "pool/capacity"
    bug = "sglang #14939"

    def pressure(self, request: str) -> tuple[int, int]:
        """Of one token, if it is behind its prefill."""
        s, r = self.state, self.state.request(request)
        if not r.drafts or r.computed + 1 < len(r.tokens):
            return super().pressure(request)
        need = max(pages_for(g, r.computed + 1) - len(t) for g, t in zip(s.groups, r.tables, strict=True))
        return max(need, 0), min(self.free(g) for g in range(len(s.groups)))
