"""Frames in flight: outputs that come back late, twice, to the wrong one or not at all (bugs of kind C)."""

from __future__ import annotations

from typing import ClassVar

from attrs import evolve

from preempt_properties.known_bad.base import MIXED, KnownBad
from preempt_properties.scenario import Scenario
from preempt_spec import events as ev
from preempt_spec.edit import change
from preempt_spec.policies.policy import Policy, Stale
from preempt_spec.view import Due, Fate, Place


class Flying(KnownBad):
    """Several of its frames fly at once."""

    policies: ClassVar[tuple[str, ...]] = MIXED
    needs = frozenset({"frames"})

    def due(self, e: ev.Deliver) -> dict[str, Due]:
        """What the frame owes."""
        return dict(self.state.frames.get(e.frame, {}))


class Dropping(Flying):
    """Several of its frames fly at once, and what is stale of them is to be dropped."""

    @classmethod
    def contract(cls, policy: Policy) -> Policy:
        """A victim may resume at once, and computes anew what still flies."""
        return evolve(policy, stale=Stale.DROP)

    @classmethod
    def scene(cls, scenario: Scenario) -> Scenario:
        """With many frames: some still fly when a victim runs again."""
        return evolve(scenario, config=evolve(scenario.config, frames=4))


def rows(e: ev.Deliver, keep: list[int]) -> ev.Deliver:
    """A delivery of some of its rows, in that order."""
    return evolve(
        e,
        requests=tuple(e.requests[i] for i in keep),
        tokens=tuple(e.tokens[i] for i in keep),
        accepted=None if e.accepted is None else tuple(e.accepted[i] for i in keep),
        proposed=None if e.proposed is None else tuple(e.proposed[i] for i in keep),
    )


class DropsWhatItShouldAppend(Flying):
    """Drops what flies for a victim although nothing will compute it again: a token is lost."""

    rule = "frame/once"
    bug = "sglang #39645"

    def disposes(self, fate: Fate) -> str:
        """Only the live are appended."""
        return "delivered" if fate is Fate.LIVE else "dropped"


class AppendsWhatItComputesAgain(Dropping):
    """Appends what flew for a victim, which computes the same position again."""

    rule = "frame/once"
    bug = "vllm #28827"

    def disposes(self, fate: Fate) -> str:
        """Everything of the living is appended."""
        return "dropped" if fate is Fate.GONE else "delivered"


class AnswersTheGone(KnownBad):
    """Delivers to a request that was cancelled while its frame flew."""

    rule = "frame/once"
    bug = "TensorRT-LLM #6147"

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """Nothing is said to be dropped."""
        return tuple(evolve(x, disposition=None) if isinstance(x, ev.Deliver) else x for x in super().deliver(e))


class DeliversAFrameTwice(KnownBad):
    """Processes the outputs of the same frame a second time."""

    rule = "frame/once"
    bug = "vllm-omni #7681"

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """And again, before anybody ends."""
        out = super().deliver(e)
        return (out[0], *out)


class DeliversARowTwice(KnownBad):
    """Has a preempted request in its batch twice and appends to it for each row."""

    rule = "frame/once"

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """The last row of whoever was preempted once."""
        again = [i for i, r in enumerate(e.requests) if r in self.state.requests and self.state.request(r).incarnation]
        return super().deliver(rows(e, [*range(len(e.requests)), *again[-1:]]))


class LosesTheOutputOfItsVictim(Flying):
    """Forgets the rows of its victims: what flies for them comes back to nobody."""

    rule = "frame/once"
    bug = "TensorRT-LLM #10943"

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """The rows of the others."""
        due = self.due(e)
        return super().deliver(rows(e, [i for i, r in enumerate(e.requests) if due[r].fate is not Fate.DELIVER]))


class DeliversToWhoTookItsRow(Flying):
    """Looks up by row who gets an output, and the row of its victim is somebody else's by now."""

    rule = "frame/once"
    bug = "TensorRT-LLM #13592"

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """The first who runs and was not in that frame."""
        due = self.due(e)
        other = next((r for r in self.state.running if r not in due), None)
        stale = next((r for r in e.requests if due[r].fate is Fate.DELIVER), None)
        if other is not None and stale is not None:
            e = evolve(e, requests=tuple(other if r == stale else r for r in e.requests))
        return super().deliver(e)


class RollsBackWhoResumed(Dropping):
    """Takes a dropped output of before the preemption off the computed tokens of after it."""

    rule = "frame/once"
    bug = "vllm #46066"

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """One token back, for whoever runs again."""
        due, out = self.due(e), super().deliver(e)
        for r in e.requests:
            q = self.state.requests.get(r)
            if due[r].fate is Fate.DROP and q is not None and q.place is Place.RUNNING and q.computed:
                self.state = change(self.state, r, computed=q.computed - 1)
        return out


class ResolvesAPlaceholderTwice(Dropping):
    """Takes a dropped output of before the preemption for one that was promised after it."""

    rule = "queue/visit-once"
    also = frozenset({"victim/duty"})  # the one passed over lacked a block
    bug = "vllm #49620"

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """One placeholder less, for whoever runs again."""
        due, out = self.due(e), super().deliver(e)
        for r in e.requests:
            q = self.state.requests.get(r)
            if due[r].fate is Fate.DROP and q is not None and q.placeholders:
                self.state = change(self.state, r, placeholders=q.placeholders - 1)
        return out


class KeepsPlaceholdersOfItsVictim(Flying):
    """Does not clear a victim's placeholders: it resumes with promises that nobody will keep."""

    rule = "output/stream"
    also = frozenset({"queue/visit-once"})  # if it thinks that its last output flies
    bug = "vllm #49860"

    def preempt(self, victim: str, requester: str) -> None:
        """The count survives."""
        promised = self.state.request(victim).placeholders
        super().preempt(victim, requester)
        self.state = change(self.state, victim, placeholders=promised)


class DeliversOutOfOrder(Flying):
    """Processes the later of two frames first when both come back at once."""

    rule = "output/stream"

    def prepare(self) -> None:
        """Nothing is held back."""
        self.held: ev.Deliver | None = None
        self.idle = False

    def step(self) -> ev.Step:
        """An empty step: what flies comes back now, all of it."""
        step = super().step()
        self.idle = not step.requests
        return step

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """The first waits for the second."""
        held, self.held = self.held, None
        if held is not None:
            return (*super().deliver(e), *super().deliver(held))
        if self.idle and len(self.state.frames) > 1:
            self.held = e
            return ()
        return super().deliver(e)


class ResumesBeforeItsOutputCame(Flying):
    """Resumes a victim while an output that will be appended still flies: its position is computed twice."""

    rule = "queue/order"
    bug = "vllm #41190"

    def next_waiting(self) -> str | None:
        """The head, whatever flies for it."""
        return next(iter(self.state.waiting), None)


class GrantsNothing(Flying):
    """Keeps a running request that waits for its output in the batch, with no token."""

    rule = "output/stream"

    def step(self) -> ev.Step:
        """Everybody who runs is in the batch."""
        step = super().step()
        idle = tuple(r for r in self.state.running if r not in step.requests)
        start = tuple(self.state.request(r).computed for r in idle)
        return evolve(
            step,
            requests=(*step.requests, *idle),
            tokens=(*step.tokens, *(0 for _ in idle)),
            start=(*(step.start or ()), *start),
        )


class DiscardsFramesNotTokens(Dropping):
    """Counts what it has to discard in frames: of a stale output of several tokens it drops the first."""

    rule = "output/stream"
    bug = "vllm #49620"
    needs = frozenset({"frames", "drafts"})

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """The accepted drafts of a stale row are appended."""
        due = self.due(e)
        stale = {r for r in e.requests if r in due and due[r].fate is Fate.DROP}
        out = super().deliver(e)
        told = out[0]
        if not isinstance(told, ev.Deliver) or told.emitted is None:
            return out
        kept = tuple(
            tokens[1:] if r in stale else shown
            for r, tokens, shown in zip(e.requests, e.tokens, told.emitted, strict=True)
        )
        return (evolve(told, emitted=kept), *out[1:])


class ForgetsToDiscardAtItsNextPreemption(Dropping):
    """Starts to count anew what it has to discard when a request is preempted again: the rest is appended."""

    rule = "frame/once"
    bug = "vllm #41190"

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """Of whoever was preempted twice nothing is dropped."""
        s, due = self.state, self.due(e)
        again = {r for r in e.requests if r in s.requests and s.request(r).incarnation > 1 and r in due}
        out = super().deliver(e)
        told = out[0]
        if not isinstance(told, ev.Deliver) or told.disposition is None:
            return out
        kept = tuple("delivered" if r in again else x for r, x in zip(e.requests, told.disposition, strict=True))
        return (evolve(told, disposition=kept), *out[1:])


class DiesOfAStaleOutput(Flying):
    """Has deleted the slot of its victim when an output of before comes for it."""

    rule = "live/survives"
    bug = "TensorRT-LLM #6147"

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """It looks the slot up."""
        slots = {r for r in self.state.requests if self.state.request(r).place is Place.RUNNING}
        lost = [r for r in e.requests if r not in slots and self.due(e)[r].fate is Fate.DELIVER]
        if lost:
            raise KeyError(lost[0])
        return super().deliver(e)


class DiesForTheGone(KnownBad):
    """Believes that a request lives until its frame is back, and looks it up."""

    rule = "live/survives"
    bug = "vllm #52969"

    def deliver(self, e: ev.Deliver) -> tuple[ev.Event, ...]:
        """It is gone."""
        for r in e.requests:
            self.state.request(r)
        return super().deliver(e)
