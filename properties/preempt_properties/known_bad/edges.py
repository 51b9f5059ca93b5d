"""Requests that are cancelled (bugs of kind I)."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import KnownBad
from preempt_spec import events as ev
from preempt_spec.view import Place


class KeepsTheBlocksOfTheAborted(KnownBad):
    """Forgets an aborted request and not its blocks."""

    rule = "edge/abort"
    bug = "sglang #18701"

    def abort(self, request: str) -> ev.Abort:
        """The free count is that of before."""
        before = self.free_counts()
        return evolve(super().abort(request), observed=ev.Observed(free=before))


class KeepsTheAbortedQueued(KnownBad):
    """Leaves an aborted victim in its waiting queue."""

    rule = "edge/abort"
    bug = "xLLM #1640"

    def prepare(self) -> None:
        """Nobody was aborted."""
        self.gone: tuple[str, ...] = ()

    def abort(self, request: str) -> ev.Abort:
        """It is noted."""
        self.gone = (*self.gone, request)
        return super().abort(request)

    def observe(self) -> ev.Observed:
        """And still stands in the queue."""
        o = super().observe()
        ghosts = tuple(r for r in self.gone if r not in self.state.requests)
        self.gone = ()
        return evolve(o, waiting=(*(o.waiting or ()), *ghosts))


class RunsTheAborted(KnownBad):
    """Has a grant for an aborted request in its next plan."""

    rule = "edge/abort"
    bug = "vllm #6586"

    def prepare(self) -> None:
        """Nobody was aborted."""
        self.gone: tuple[str, ...] = ()

    def abort(self, request: str) -> ev.Abort:
        """Remember whoever ran."""
        if self.state.request(request).place is Place.RUNNING:
            self.gone = (request,)
        return super().abort(request)

    def step(self) -> ev.Step:
        """One token for it, in front."""
        step, gone = super().step(), self.gone
        self.gone = ()
        if not gone or gone[0] in self.state.requests:
            return step
        # Acts behind the ghost's grant keep their place.
        return evolve(
            step,
            requests=(*step.requests, *gone),
            tokens=(*step.tokens, 1),
            start=(*(step.start or ()), 0),
        )
