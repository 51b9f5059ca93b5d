"""What never ends, what is refused, what falls over (bugs of kind G)."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import MIXED, ONE_BY_ONE, KnownBad
from preempt_properties.scenario import Add, Scenario
from preempt_spec import events as ev
from preempt_spec.policies.policy import Oversize, Policy


class NeverResumes(KnownBad):
    """Waits with every resume for something that has happened long ago."""

    rule = "live/progress"
    bug = "vllm #53250"

    def may_admit(self, request: str, tokens: int, hit: int, blocks: tuple[tuple[int, ...], ...]) -> bool:
        """Not whoever was preempted."""
        return not self.state.request(request).preempted and super().may_admit(request, tokens, hit, blocks)


class WaitsForAHalfEmptyPool(KnownBad):
    """Resumes nobody who needs more than half of the pool, though nothing else runs."""

    rule = "live/progress"
    bug = "TensorRT-LLM #16484"

    def may_admit(self, request: str, tokens: int, hit: int, blocks: tuple[tuple[int, ...], ...]) -> bool:
        """A utilization bound on top of the other gates."""
        s = self.state
        return 2 * len(s.request(request).tokens) <= s.total(0) * s.pages[0] and super().may_admit(
            request, tokens, hit, blocks
        )


class OneByOne(KnownBad):
    """Its prefills go one token at a time, and nobody waits for room for a whole sequence: going in circles is easy."""

    @classmethod
    def scene(cls, scenario: Scenario) -> Scenario:
        """Chunks of one token, no cache, no two requests that differ in rank."""
        budget = scenario.config.max_running + 1
        config = evolve(scenario.config, chunked=True, whole_fit=False, caching=False, long_prefill=1, budget=budget)
        script = [evolve(c, priority=0, arrival=0) if isinstance(c, Add) else c for c in scenario.script]
        return evolve(scenario, config=config, script=tuple(script))


class LetsEqualsChaseEachOther(OneByOne):
    """Takes of two equals the one that was admitted first: each has half of the pool in turn, and neither ends."""

    rule = "live/no-thrash"
    bug = "vllm #40004"
    policies = ("vllm-priority",)
    needs = frozenset({"ties"})


class PreemptsForFairness(KnownBad):
    """Preempts all but the head whenever somebody waits, and computes more than it delivers."""

    rule = "live/no-thrash"
    also = frozenset({"live/progress"})  # if nobody gets anywhere
    bug = "vllm #54644"
    policies = (*MIXED, "vidur-vllm")

    @classmethod
    def contract(cls, policy: Policy) -> Policy:
        """It may do so, and promises to be moderate."""
        return evolve(policy, causes=policy.causes | {"starvation"}, tax=1)

    @classmethod
    def scene(cls, scenario: Scenario) -> Scenario:
        """Without a cache, in which what was computed would be found."""
        return evolve(scenario, config=evolve(scenario.config, caching=False))

    def serve_running(self) -> None:
        """All but the head, the last one first."""
        for victim in self.state.running[:0:-1] if self.state.waiting else ():
            self._act(ev.Demote(victim, 0, "starvation", self.state.waiting[:1]))
            self.release(victim)
            self.requeue(victim)
        super().serve_running()


class Refusing(KnownBad):
    """A scheduler whose contract it is to refuse what can never fit."""

    needs = frozenset({"reject"})

    @classmethod
    def contract(cls, policy: Policy) -> Policy:
        """Refusing is the scheduler's business."""
        return evolve(policy, oversize=Oversize.SCHEDULER)


class RefusesTheLongest(Refusing):
    """Refuses what fits exactly."""

    rule = "live/oversize"

    def refuses(self, request: str) -> bool:
        """Off by one."""
        r = self.state.request(request)
        return r.prompt + r.max_tokens >= self.state.limits.max_length


class AdmitsWhatNeverFits(Refusing):
    """Takes any request, and starts it."""

    rule = "live/oversize"
    bug = "inference-sim #297"

    def refuses(self, request: str) -> bool:
        """Nothing."""
        return False


class RefusesWithoutAWord(Refusing):
    """Refuses what cannot fit and does not say why."""

    rule = "live/oversize"

    def arrive(self, e: ev.Arrive) -> tuple[ev.Event, ...]:
        """The reason is empty."""
        return tuple(evolve(x, reason="") if isinstance(x, ev.Reject) else x for x in super().arrive(e))


class DiesOfASelfPreemption(KnownBad):
    """Asks for another victim when the requester was the last one."""

    rule = "live/survives"
    also = frozenset({"victim/choice"})  # if somebody stands behind the requester after all
    bug = "sglang #19881"
    policies = ONE_BY_ONE

    def choose_victim(self, request: str) -> str | None:
        """Somebody behind the requester, of whom there may be none."""
        victim, running = super().choose_victim(request), self.state.running
        return running[running.index(request) + 1] if victim == request else victim


class DiesOfAFullPool(KnownBad):
    """Takes the first of the free blocks, also when there is none."""

    rule = "live/survives"

    def pressure(self, request: str) -> tuple[int, int]:
        """Looks at a free block before it counts them."""
        return super().pressure(request) if sorted(self.state.free_ids(0))[0] >= 0 else (0, 0)
