"""Requests that are cancelled, and what is counted of the others (bugs of kinds H and I)."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import SWAPPING, KnownBad
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


class KeepsABlockOfTheAborted(KnownBad):
    """Takes back all blocks of an aborted request but the last, which it thinks is still in use."""

    rule = "edge/abort"
    bug = "sglang #40251"

    def abort(self, request: str) -> ev.Abort:
        """One too few."""
        done = super().abort(request)
        return evolve(done, blocks=tuple(table[:-1] for table in done.blocks or ()))


class KeepsTheAbortedSwapped(KnownBad):
    """Leaves an aborted request in the queue of those whose KV the host holds."""

    rule = "edge/abort"
    bug = "vllm #6865"
    policies = SWAPPING
    needs = frozenset({"host"})

    def prepare(self) -> None:
        """Nobody was aborted."""
        self.gone: tuple[str, ...] = ()

    def abort(self, request: str) -> ev.Abort:
        """It is noted."""
        self.gone = (*self.gone, request) if self.state.request(request).place is Place.SWAPPED else self.gone
        return super().abort(request)

    def observe(self) -> ev.Observed:
        """And still stands there, for a step."""
        o = super().observe()
        ghosts = tuple(r for r in self.gone if r not in self.state.requests)
        self.gone = ()
        return evolve(o, swapped=(*(o.swapped or ()), *ghosts))


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


class CountsVictimsOnce(KnownBad):
    """Counts the requests that were ever preempted, and not the preemptions."""

    rule = "edge/stats"
    bug = "vllm #49984"

    def prepare(self) -> None:
        """None."""
        self.again = 0

    def preempt(self, victim: str, requester: str) -> None:
        """A second time is not counted."""
        self.again += self.state.request(victim).incarnation > 0
        super().preempt(victim, requester)

    def observe(self) -> ev.Observed:
        """Too few."""
        return evolve(super().observe(), preemptions=self.state.preemptions - self.again)


class CountsMoreCachedThanThereIs(KnownBad):
    """Adds the cached tokens of every admission of a request to those of the one before."""

    rule = "edge/stats"
    bug = "sglang #11900"

    def observe(self) -> ev.Observed:
        """Of a resume, all that is known and one page more."""
        o, s = super().observe(), self.state
        told = tuple(
            evolve(h, tokens=len(s.request(h.request).tokens) + s.pages[0]) if s.request(h.request).preempted else h
            for h in o.cached or ()
        )
        return evolve(o, cached=told)


class CountsBelowNothing(KnownBad):
    """Takes the cached tokens of the first admission and the external ones of the resume: what is left is negative."""

    rule = "edge/stats"
    bug = "vllm #36755"

    def observe(self) -> ev.Observed:
        """More of them are external than there are."""
        o = super().observe()
        back = [h for h in o.cached or () if self.state.request(h.request).preempted]
        told = tuple(evolve(h, external=h.tokens + 1) if h in back else h for h in o.cached or ())
        return evolve(o, cached=told)
