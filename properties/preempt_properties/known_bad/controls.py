"""What the operator asks for between steps: reset and pause."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import KnownBad, often_paused
from preempt_properties.scenario import Scenario
from preempt_spec import events as ev


class RunsOnAfterAReset(KnownBad):
    """Resets its cache and leaves whoever runs as it is, on KV of before."""

    rule = "victim/duty"
    bug = "vllm #46066"
    needs = frozenset({"reset"})

    def control(self, kind: str) -> ev.Control:
        """Nobody is preempted."""
        s = self.state
        self.state = evolve(s, running=())
        done = super().control(kind)
        self.state = evolve(self.state, running=s.running)
        return done


class FindsPagesOfBeforeAReset(KnownBad):
    """Preempts everybody at a reset and leaves the hashes of their pages findable."""

    rule = "resume/publish"
    bug = "RBLN #136"
    needs = frozenset({"reset"})

    def withdraw(self, group: int, blocks: tuple[int, ...]) -> None:
        """Only what is handed out anew."""
        if self.resetting:
            return
        super().withdraw(group, blocks)

    resetting = False

    def control(self, kind: str) -> ev.Control:
        """Nothing is withdrawn."""
        self.resetting = True
        done = super().control(kind)
        self.resetting = False
        return done


class AdmitsWhilePaused(KnownBad):
    """Stops whoever runs when the operator pauses it, and goes on admitting."""

    rule = "queue/admission"
    bug = "xLLM #1640"
    needs = frozenset({"pause"})

    @classmethod
    def scene(cls, scenario: Scenario) -> Scenario:
        """Paused every other step."""
        return often_paused(scenario)

    def admit(self) -> None:
        """As if nobody had said anything."""
        s = self.state
        self.state = evolve(s, paused=False)
        super().admit()
        self.state = evolve(self.state, paused=s.paused)
