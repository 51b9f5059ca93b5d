"""Same-step bookkeeping: the victim was already planned, or is planned again (bugs of kind A)."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import MIXED, KnownBad
from preempt_spec import events as ev
from preempt_spec.view import Place

PRIORITY = ("vllm-priority",)


class KeepsTheGrantOfItsVictim(KnownBad):
    """Preempts a request that this step has served already, and leaves it in the plan."""

    rule = "victim/unplan"
    bug = "vllm #23347"
    policies = PRIORITY

    def preempt(self, victim: str, requester: str) -> None:
        """Without taking the grant back."""
        after = len(self.state.plan.granted)
        short = self.pressure(requester)
        self._act(ev.Demote(victim, after, "growth", (requester,), "blocks", *short))
        self.release(victim)
        self.requeue(victim)


class KeepsDraftsInTheirMap(KnownBad):
    """Takes the victim's grant back and forgets the map of its speculative tokens."""

    rule = "victim/unplan"
    bug = "vllm #28558"

    def step(self) -> ev.Step:
        """With drafts for whoever was preempted."""
        step = super().step()
        return evolve(step, drafts=tuple(ev.Hit(a.request, 1) for a in step.acts if isinstance(a, ev.Demote)))


class HalfTakesBack(KnownBad):
    """Takes the victim's grant out of the plan and never refunds its tokens."""

    rule = "victim/unplan"
    bug = "vllm #23347"
    policies = PRIORITY

    def _act(self, act: ev.Act) -> None:
        if not isinstance(act, ev.Unplan):
            super()._act(act)


class RefundsTooMuch(KnownBad):
    """Gives the budget one token more back than the grant of its victim had taken."""

    rule = "victim/unplan"
    bug = "vllm #23713"
    policies = PRIORITY

    def _act(self, act: ev.Act) -> None:
        super()._act(evolve(act, tokens=act.tokens + 1) if isinstance(act, ev.Unplan) else act)


class GrantsItselfAfterItsPreemption(KnownBad):
    """A request that preempted itself sees room now, and is granted tokens all the same."""

    rule = "victim/unplan"
    bug = "tt-inference-server #2042"

    def make_room(self, request: str) -> None:
        """And then grant, whoever was the victim."""
        super().make_room(request)
        if request in self.state.plan.demoted:
            self._do_grant(request)

    def _do_grant(self, request: str) -> None:
        self.state = evolve(
            self.state,
            requests={
                **self.state.requests,
                request: evolve(self.state.requests[request], place=Place.RUNNING),
            },
        )
        self.grant(request, 1)


class VisitsASnapshot(KnownBad):
    """Walks over a copy of the running queue and serves a victim of this very walk again."""

    rule = "victim/unplan"
    bug = "inference-sim #349"

    def serve_running(self) -> None:
        """Victims are admitted again on the spot, if their first block fits."""
        super().serve_running()
        for victim in self.state.plan.demoted[:1]:
            if self.pressure(victim)[1] > 0:
                self.grant(victim, 1)


class GrantsTwice(KnownBad):
    """Serves the head of the running queue a second time at the end of its walk."""

    rule = "queue/visit-once"
    bug = "inference-sim #349"

    def step(self) -> ev.Step:
        """The first grant stands twice in the plan."""
        step = super().step()
        if not step.requests or step.start is None:
            return step
        return evolve(
            step,
            requests=(*step.requests, step.requests[0]),
            tokens=(*step.tokens, step.tokens[0]),
            start=(*step.start, step.start[0]),
        )


class PassesOverTheLast(KnownBad):
    """Ends its walk over the running queue one request early."""

    rule = "queue/visit-once"
    also = frozenset({"victim/duty"})  # the one passed over lacked a block
    bug = "aiconfigurator #1380"

    def visits(self) -> tuple[str, ...]:
        """All but the last, if there are several."""
        return self.state.running[:-1] or self.state.running


class StopsAtASelfPreemption(KnownBad):
    """Ends its walk when a request preempted itself, though its policy goes on: later ones get nothing."""

    rule = "queue/visit-once"
    bug = "vllm #26765"
    policies = PRIORITY

    def fits(self, request: str) -> bool:
        """Nothing does any more."""
        return not self.state.plan.self_preempted and super().fits(request)

    def choose_victim(self, request: str) -> str | None:
        """Nobody after that."""
        return None if self.state.plan.self_preempted else super().choose_victim(request)


class KeepsVictimsInRunning(KnownBad):
    """Splits its queues and leaves the victims in the old running queue as well."""

    rule = "queue/one-place"
    bug = "HabanaAI/vllm-fork #2247"

    def observe(self) -> ev.Observed:
        """Victims stand in both queues."""
        o = super().observe()
        return evolve(o, running=(*(o.running or ()), *self.state.plan.demoted))


class LosesItsVictim(KnownBad):
    """Preempts a request and never puts it back into a queue."""

    rule = "queue/one-place"

    def requeue(self, victim: str) -> None:
        """Nothing."""


class RequeuesTwice(KnownBad):
    """Puts its victim into the waiting queue, and once more when the step ends."""

    rule = "queue/one-place"
    bug = "tt-inference-server #2042"

    def requeue(self, victim: str) -> None:
        """And again."""
        super().requeue(victim)
        super().requeue(victim)


class PreemptsTwice(KnownBad):
    """Pauses a request that is paused already."""

    rule = "queue/one-place"
    bug = "TensorRT-LLM #9931"

    def requeue(self, victim: str) -> None:
        """Then preempt it again."""
        super().requeue(victim)
        self._act(ev.Demote(victim, len(self.state.plan.granted), "growth", (victim,)))


class OverspendsItsBudget(KnownBad):
    """Forgets what running requests were granted when it counts what admissions may have."""

    rule = "queue/admission"
    policies = MIXED

    def first_tokens(self, request: str, hit: int) -> int:
        """Of the whole budget."""
        s = self.state
        self.state = evolve(s, plan=evolve(s.plan, spent=0))
        tokens = super().first_tokens(request, hit)
        self.state = s
        return tokens
