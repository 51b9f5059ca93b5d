"""The reference scheduler at the head of a full house: a waiting request takes the place of worse ones."""

from __future__ import annotations

from preempt_spec import events as ev
from preempt_spec.holding import Holding
from preempt_spec.policies.displacing import displaces, next_displaced, slots


class Displacing(Holding):
    """Decisions about victims of an admission; see `reference.Reference` for all others."""

    def make_way(self, request: str) -> None:
        """Displace, one at a time, until `request` may be admitted; nobody, if not even all of them were enough.

        Whether it passes every other gate is known before anybody goes: a victim for nothing would be computed again.
        """
        if not displaces(self.policy) or self.has_slot(request):
            return
        state, acts, victims = self.state, [*self.acts], list[str]()
        while (victim := self.choose_displaced(request)) is not None:
            self.displace(victim, request)
            victims.append(victim)
            if self.may_enter(request):
                for v in victims:
                    self.requeue(v)
                return
        self.state, self.acts = state, acts

    def has_slot(self, request: str) -> bool:
        """Whether nobody has to make way for it."""
        need, supply = slots(self.state, request)
        return need <= supply

    def choose_displaced(self, request: str) -> str | None:
        """The policy's arg-max."""
        return next_displaced(self.state, request)

    def displace(self, victim: str, request: str) -> None:
        """It goes, and gives back what it had."""
        after = len(self.state.plan.granted)
        self._act(ev.Demote(victim, after, "admission", (request,), "slots", *slots(self.state, request)))
        self.release(victim)

    def may_enter(self, request: str) -> bool:
        """Whether all gates are open to it now."""
        raise NotImplementedError
