"""Who makes way for an admission, for whom, and how many (bugs of kind G)."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import DISPLACING, KnownBad
from preempt_properties.scenario import Add, Scenario
from preempt_spec.policies.displacing import leaving_key
from preempt_spec.view import Place


class DisplacesAnEqual(KnownBad):
    """Lets a waiting request take the place of one of the same priority."""

    rule = "victim/choice"
    policies = DISPLACING

    def choose_displaced(self, request: str) -> str | None:
        """Whoever is no better."""
        s = self.state
        old = [r for r in s.running if r not in s.plan.admitted]
        who = [r for r in old if s.request(r).priority >= s.request(request).priority]
        return max(who, key=lambda r: leaving_key(s.request(r)), default=None)


class DisplacesABetterOne(KnownBad):
    """Reads priorities the other way round where it looks for a victim."""

    rule = "victim/choice"
    policies = DISPLACING

    def choose_displaced(self, request: str) -> str | None:
        """Whoever is better."""
        s = self.state
        old = [r for r in s.running if r not in s.plan.admitted]
        who = [r for r in old if s.request(r).priority < s.request(request).priority]
        return min(who, key=lambda r: leaving_key(s.request(r)), default=None)


class DisplacesBelowTheThreshold(KnownBad):
    """Takes any worse priority for one that is worse enough."""

    rule = "victim/choice"
    policies = DISPLACING

    def choose_displaced(self, request: str) -> str | None:
        """Whoever is worse, by however little."""
        s = self.state
        old = [r for r in s.running if r not in s.plan.admitted]
        who = [r for r in old if s.request(r).priority > s.request(request).priority]
        return max(who, key=lambda r: leaving_key(s.request(r)), default=None)


class DisplacesTheFirstOfEquals(KnownBad):
    """Of those with the worst priority displaces who came in first."""

    rule = "victim/choice"
    policies = DISPLACING

    def choose_displaced(self, request: str) -> str | None:
        """The worst, the earliest of them."""
        best = super().choose_displaced(request)
        if best is None:
            return None
        s = self.state
        worst = [r for r in s.running if r not in s.plan.admitted and s.request(r).priority == s.request(best).priority]
        return min(worst, key=lambda r: leaving_key(s.request(r)))


class GoesOnDisplacing(KnownBad):
    """Displaces everybody it may, although the first who went was enough."""

    rule = "victim/minimal"
    policies = DISPLACING

    def may_enter(self, request: str) -> bool:
        """Not before nobody is left to displace."""
        return super().may_enter(request) and self.choose_displaced(request) is None


class DisplacesBesideAFreeSlot(KnownBad):
    """Displaces somebody although a slot is free."""

    rule = "victim/necessity"
    policies = DISPLACING

    def has_slot(self, request: str) -> bool:
        """Never."""
        return False


class DisplacesForNothing(KnownBad):
    """Displaces somebody for a slot, and only then looks whether there are blocks for who wanted it."""

    rule = "victim/trigger"
    policies = DISPLACING

    @classmethod
    def engine(cls, scenario: Scenario) -> Scenario:
        """The last to come is long: a slot alone is not enough."""
        script = list(scenario.script)
        at = max(i for i, c in enumerate(script) if isinstance(c, Add))
        add, longest = script[at], scenario.config.max_length
        assert isinstance(add, Add)
        script[at] = evolve(add, prompt=(add.prompt * longest)[: longest - 1], max_tokens=1)
        return evolve(scenario, script=tuple(script))

    def make_way(self, request: str) -> None:
        """One victim, and whatever comes of it."""
        if not self.has_slot(request):
            victim = self.choose_displaced(request)
            if victim is not None and self.state.request(victim).place is Place.RUNNING:
                self.displace(victim, request)
                self.requeue(victim)
