"""A reset that is incomplete at preemption or resume (bugs of kind B)."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import KnownBad
from preempt_spec import events as ev
from preempt_spec.policies.functions import requeue_at


class KeepsComputedTokens(KnownBad):
    """Gives the victim's blocks back and goes on counting their tokens as computed."""

    rule = "victim/reset"
    bug = "LMDeploy #3589"

    def release(self, victim: str) -> None:
        """The computed count survives."""
        r = self.state.request(victim)
        self._act(ev.Release(victim, len(self.state.plan.granted), r.tables, None, r.computed, 0))


class KeepsDrafts(KnownBad):
    """Keeps a victim's draft tokens, to be taken for verified ones after its resume."""

    rule = "victim/reset"
    bug = "vllm #31955"

    def release(self, victim: str) -> None:
        """One draft is left."""
        tables = self.state.request(victim).tables
        self._act(ev.Release(victim, len(self.state.plan.granted), tables, None, 0, 1))


class OnlyMarksItsVictim(KnownBad):
    """Sets the victim's status and touches neither its blocks nor its computed tokens."""

    rule = "victim/reset"
    bug = "vllm-omni #6053"

    def observe(self) -> ev.Observed:
        """Waiting victims hold what they held."""
        o = super().observe()
        held = tuple(ev.Held(v, 1, 1) for v in self.state.plan.demoted if v in self.state.waiting)
        return evolve(o, held=held or o.held)


class RecomputesThePromptOnly(KnownBad):
    """Requeues a victim as long as its prompt: the outputs are forgotten."""

    rule = "victim/keep-tokens"
    bug = "FastDeploy #3080"

    def requeue(self, victim: str) -> None:
        """Known tokens are the prompt's."""
        r, at = self.state.request(victim), requeue_at(self.state, victim)
        self._act(ev.Requeue(victim, len(self.state.plan.granted), "waiting", at, r.prompt))


class ResumesTowardsThePrompt(KnownBad):
    """Tells the worker that a resumed request is as long as its prompt."""

    rule = "victim/keep-tokens"
    bug = "vllm-ascend #11334"

    def tell_resumed(self) -> tuple[ev.Resumed, ...]:
        """Prompt lengths."""
        return tuple(ev.Resumed(x.request, self.state.request(x.request).prompt) for x in super().tell_resumed())


class FoldsInADraft(KnownBad):
    """Requeues a victim one token longer than what was ever accepted."""

    rule = "victim/keep-tokens"
    bug = "LMDeploy #4564"

    def requeue(self, victim: str) -> None:
        """A token nobody emitted."""
        r, at = self.state.request(victim), requeue_at(self.state, victim)
        self._act(ev.Requeue(victim, len(self.state.plan.granted), "waiting", at, len(r.tokens) + 1))


class ReleasesTwice(KnownBad):
    """Releases a victim again while it waits for its queue."""

    rule = "pool/free-once"
    bug = "sglang-jax #994"

    def release(self, victim: str) -> None:
        """Once, and once more."""
        super().release(victim)
        super().release(victim)


class ReleasesWhatItHad(KnownBad):
    """Takes the blocks of a victim back as often as it was preempted."""

    rule = "pool/free-once"
    bug = "vllm #51228"

    def release(self, victim: str) -> None:
        """The first one counts twice the second time."""
        r, tables = self.state.request(victim), self.owned(victim)
        if r.incarnation > 1:
            tables = tuple((*t, *t[:1]) for t in tables)
        self._act(ev.Release(victim, len(self.state.plan.granted), tables, None, 0, 0))


class CreditsTheAbortedTwice(KnownBad):
    """Takes the last block of a cancelled request back twice."""

    rule = "pool/free-once"
    bug = "OpenVINO GenAI #4332"

    def abort(self, request: str) -> ev.Abort:
        """It stands twice in what was taken back."""
        done = super().abort(request)
        return evolve(done, blocks=tuple((*t, *t[-1:]) for t in done.blocks or ()))


class TakesBackWhatIsNotThere(KnownBad):
    """At the end of a request credits its last block twice."""

    rule = "pool/free-once"
    bug = "vllm #51228"

    def finish(self, request: str) -> ev.Finish:
        """The last block of each group stands twice in what was taken back."""
        done = super().finish(request)
        return evolve(done, blocks=tuple((*t, *t[-1:]) for t in done.blocks or ()))
