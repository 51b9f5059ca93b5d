"""Schedulers that make room behind a whole pass, for all who starved in it, and get that wrong."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import STARVING, KnownBad
from preempt_properties.scenario import Add, Scenario
from preempt_spec import events as ev
from preempt_spec.policies.policy import Idle, Reads
from preempt_spec.policies.queues import taking_turns
from preempt_spec.policies.victims import eligible


class TakesTheFirstWhoStarves(KnownBad):
    """Preempts the first of those who starved, not the last."""

    rule = "victim/choice"
    policies = STARVING

    def choose_victim(self, request: str) -> str | None:
        """The wrong end of the order."""
        return next(iter(eligible(self.state, request)), None)


class TakesAllWhoStarve(KnownBad):
    """Goes on preempting though those who are left fit together."""

    rule = "victim/minimal"
    policies = STARVING

    def content(self, hungry: tuple[str, ...]) -> bool:
        """Never, while somebody is left."""
        return not self.left(hungry)


class LetsThemStarve(KnownBad):
    """Makes room only when nobody at all could be served."""

    rule = "victim/duty"
    policies = STARVING

    def relieve(self, hungry: tuple[str, ...]) -> bool:
        """Not behind a batch."""
        return not self.state.plan.granted and super().relieve(hungry)


class PutsItsVictimsInFront(KnownBad):
    """Puts a victim in front of those who wait, where the back is its place."""

    rule = "queue/front"
    policies = STARVING

    def requeue(self, victim: str) -> None:
        """At the wrong end."""
        r = self.state.request(victim)
        queue = "swapped" if r.computed else "waiting"
        self._act(ev.Requeue(victim, len(self.state.plan.granted), queue, 0, len(r.tokens)))


class AdmitsBeforeAFinish(KnownBad):
    """Admits as soon as there is room again, though nobody finished since the last preemption."""

    rule = "queue/admission"
    policies = STARVING

    def may_admit(self, request: str, tokens: int, hit: int, blocks: tuple[tuple[int, ...], ...]) -> bool:
        """As if nobody had been preempted."""
        state = self.state
        self.state = evolve(state, gated=False)
        answer = super().may_admit(request, tokens, hit, blocks)
        self.state = state
        return answer


class LooksAtTheLastFirst(KnownBad):
    """Looks at those who wait from the last on, and passes over older ones that fit."""

    rule = "queue/order"
    policies = STARVING

    def admit_who_fits(self) -> None:
        """The wrong way round."""
        for r in reversed(taking_turns(self.state)):
            blocks, hit = self.find_prefix(r)
            tokens = self.first_tokens(r, hit)
            if not self.state.paused and tokens > 0 and self.may_admit(r, tokens, hit, blocks):
                self.grant(r, tokens, hit, blocks)


class RunsOnMoreThanItHit(KnownBad):
    """Takes one page more than it hit, whosever it is, where it lets who does not fit run on a hit alone."""

    rule = "resume/hit"
    policies = STARVING

    def adopt(self, request: str, hit: int, blocks: tuple[tuple[int, ...], ...]) -> None:
        """Another page that can be found."""
        m = self.state.memory[0]
        others = [b for b, x in sorted(m.blocks.items()) if x.published is not None and b not in blocks[0]]
        if len(blocks) == 1 and others and hit + m.page < len(self.state.request(request).tokens):
            super().adopt(request, hit + m.page, ((*blocks[0], others[0]),))
        else:
            super().adopt(request, hit, blocks)


class TakesWhatCanBeFound(KnownBad):
    """Admits into pages that nobody holds but that can be found, where their room is had behind a pass only."""

    rule = "queue/admission"
    policies = STARVING

    def may_admit(self, request: str, tokens: int, hit: int, blocks: tuple[tuple[int, ...], ...]) -> bool:
        """As if a findable page were a free one."""
        state, policy = self.state, self.policy
        self.policy = evolve(policy, idle=Idle.ON_DEMAND)
        self.state = evolve(state, policy=self.policy)
        answer = super().may_admit(request, tokens, hit, blocks)
        self.state, self.policy = state, policy
        return answer


class ReadsMoreThanThePool(KnownBad):
    """Admits beside those of whom a step reads so much already that what it shares with them goes beyond the pool."""

    rule = "queue/admission"
    policies = STARVING

    @classmethod
    def scene(cls, scenario: Scenario) -> Scenario:
        """Many on one long prompt, in no more pages than they need together."""
        c = scenario.config
        prompt = tuple(range(2 * c.page_size + 1))
        blocks = 5
        config = evolve(c, blocks=blocks, max_running=4, max_length=blocks * c.page_size, caching=True, chunked=True)
        config = evolve(config, budget=blocks * c.page_size, long_prefill=0)
        script = [evolve(a, prompt=prompt, max_tokens=2) if isinstance(a, Add) else a for a in scenario.script]
        return evolve(scenario, config=config, script=tuple(script))

    def may_admit(self, request: str, tokens: int, hit: int, blocks: tuple[tuple[int, ...], ...]) -> bool:
        """As if a step might read all that its requests hold."""
        state = self.state
        self.state = evolve(state, policy=evolve(state.policy, reads=Reads.ANY))
        answer = super().may_admit(request, tokens, hit, blocks)
        self.state = state
        return answer
