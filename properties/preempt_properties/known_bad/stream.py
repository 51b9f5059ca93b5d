"""What the user sees of a preempted request (bugs of kinds C and H)."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import MIXED, KnownBad
from preempt_spec import events as ev


class RepeatsATokenAfterResume(KnownBad):
    """Emits the token before the preemption again when a request has resumed."""

    rule = "output/stream"
    bug = "vllm #28827"

    def emits(self, request: str, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Twice, for whoever was preempted once."""
        return (*tokens, *tokens) if self.state.request(request).incarnation else tokens


class DropsTheTokenOfAResume(KnownBad):
    """Takes the last chunk of a re-prefill for one in the middle, and drops what was sampled."""

    rule = "output/stream"
    bug = "nano-vllm 8d63a98"

    def emits(self, request: str, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Nothing, for whoever was preempted once."""
        return () if self.state.request(request).incarnation else tokens


class EmitsAPlaceholder(KnownBad):
    """Emits a placeholder in place of the token after a resume."""

    rule = "output/stream"
    bug = "vllm #40768"

    def emits(self, request: str, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """A token nobody sampled."""
        return tuple(-1 for _ in tokens) if self.state.request(request).incarnation else tokens


class EndsOneTokenEarly(KnownBad):
    """Counts a placeholder as an output and ends a preempted request one token early."""

    rule = "output/stream"
    bug = "vllm #49860"

    def is_finished(self, request: str) -> bool:
        """One token short, for whoever was preempted."""
        r = self.state.request(request)
        return len(r.tokens) - r.prompt + (1 if r.incarnation else 0) >= r.max_tokens


class AsksForMoreThanIsKnown(KnownBad):
    """Schedules a running request beyond its last known token."""

    rule = "output/stream"
    bug = "nano-vllm #211"
    policies = MIXED

    def step(self) -> ev.Step:
        """The last grant, if it ends inside its page, is one token longer than the sequence."""
        step = super().step()
        if not step.requests or sum(step.tokens) >= self.state.limits.budget or step.start is None:
            return step
        end = step.start[-1] + step.tokens[-1]
        if end % self.state.pages[0] == 0 or end < len(self.state.request(step.requests[-1]).tokens):
            return step
        return evolve(step, tokens=(*step.tokens[:-1], step.tokens[-1] + 1))
