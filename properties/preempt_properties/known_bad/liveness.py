"""What never ends, what is refused, what falls over (bugs of kind G)."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import KnownBad
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
