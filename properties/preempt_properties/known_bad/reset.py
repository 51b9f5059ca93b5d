"""A reset that is incomplete at preemption or resume (bugs of kind B)."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import MIXED, RECOMPUTING, KnownBad
from preempt_spec import events as ev
from preempt_spec.policies.queues import requeue_at
from preempt_spec.view import Fate, Place


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


class NeverReleases(KnownBad):
    """Demotes and requeues its victim, and the release that was planned for it never comes."""

    rule = "victim/reset"
    bug = "TensorRT-LLM #18115"
    policies = RECOMPUTING

    def release(self, victim: str) -> None:
        """Nothing."""

    def requeue(self, victim: str) -> None:
        """It waits like any other."""
        known, at = len(self.state.request(victim).tokens), requeue_at(self.state, victim)
        self._act(ev.Requeue(victim, len(self.state.plan.granted), "waiting", at, known))


class ResumesWithoutItsOutputs(KnownBad):
    """Computes the prompt of a resumed request, and goes on with its last output: attended are the others too."""

    rule = "frame/once"
    bug = "pypto-lib #274"
    policies = MIXED

    def first_tokens(self, request: str, hit: int) -> int:
        """No more than the prompt."""
        tokens, r = super().first_tokens(request, hit), self.state.request(request)
        cut = self.state.limits.chunked and r.preempted and hit < r.prompt
        return min(tokens, r.prompt - hit) if cut else tokens

    def serve_running(self) -> None:
        """Who has computed its prompt and lacks several tokens is granted the last."""
        super().serve_running()
        plan = self.state.plan
        late = {
            r: (start + n - 1, 1) if n > 1 and start == self.state.request(r).prompt else (start, n)
            for r, (start, n) in plan.granted.items()
        }
        self.state = evolve(self.state, plan=evolve(plan, granted=late))


class FoldsInAPlaceholder(KnownBad):
    """Requeues a victim with the placeholder of an output that still flies among its tokens."""

    rule = "victim/keep-tokens"
    bug = "ROCm/ATOM #1703"
    policies = MIXED
    needs = frozenset({"frames"})

    def preempt(self, victim: str, requester: str) -> None:
        """How many are promised is noted."""
        self.promised = self.state.request(victim).placeholders
        super().preempt(victim, requester)
        self.promised = 0

    promised = 0

    def requeue(self, victim: str) -> None:
        """They count as known."""
        known, at = len(self.state.request(victim).tokens), requeue_at(self.state, victim)
        self._act(ev.Requeue(victim, len(self.state.plan.granted), "waiting", at, known + self.promised))


class AddsToWhatWasFolded(KnownBad):
    """Folds a victim's outputs into its prompt, and adds the one that still flew a second time when it resumes."""

    rule = "victim/keep-tokens"
    bug = "TensorRT-LLM #10943"
    policies = MIXED
    needs = frozenset({"frames"})

    def prepare(self) -> None:
        """Nothing came late."""
        self.late: set[str] = set()

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """What comes for a victim is noted."""
        due = self.state.frames.get(e.frame, {})
        self.late |= {r for r in e.requests if r in due and due[r].fate is Fate.DELIVER}
        return super().deliver(e)

    def tell_resumed(self) -> tuple[ev.Resumed, ...]:
        """One longer than it is."""
        told = super().tell_resumed()
        longer = tuple(evolve(x, known=(x.known or 0) + 1) if x.request in self.late else x for x in told)
        self.late -= {x.request for x in told}
        return longer


class RecyclesWhoEndsInTheQueue(KnownBad):
    """Ends a victim whose last output came late, and takes the blocks back that it had lost when it was preempted."""

    rule = "pool/free-once"
    bug = "FastDeploy #3292"
    policies = MIXED
    needs = frozenset({"frames"})

    def prepare(self) -> None:
        """Nobody was preempted."""
        self.had: dict[str, tuple[tuple[int, ...], ...]] = {}

    def release(self, victim: str) -> None:
        """What it had is noted."""
        self.had[victim] = self.owned(victim)
        super().release(victim)

    def finish(self, request: str) -> ev.Finish:
        """And credited again."""
        waits = self.state.request(request).place is Place.WAITING
        done = super().finish(request)
        return evolve(done, blocks=self.had[request]) if waits and request in self.had else done
