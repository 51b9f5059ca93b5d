"""What the reference scheduler makes findable, and when: see `reference`."""

from __future__ import annotations

from collections.abc import Iterable

from preempt_spec import events as ev
from preempt_spec.memory import Slot
from preempt_spec.policies.outputs import confirmed
from preempt_spec.policies.policy import Publish, Twins
from preempt_spec.record import Record
from preempt_spec.view import Place


class Findable(Record):
    """Pages become findable when the pass that fills them is planned, or once it came back."""

    def publish_full_pages(self) -> None:
        """Pages that this step fills become findable as far as their tokens are known; the others later."""
        if self.state.limits.caching and self.policy.publish is Publish.SCHEDULE:
            for r, (start, tokens) in self.state.plan.granted.items():
                self.publish(r, start + tokens, len(self.state.plan.granted))

    def publish(self, request: str, upto: int, after: int) -> None:
        """Pages of known tokens, as far as `upto`, become findable."""
        r = self.state.request(request)
        for g, m in enumerate(self.state.memory):
            table = r.tables[g][: min(upto, len(r.tokens)) // m.page]
            full = tuple(b for b in table if m.block(b).published is None)
            if full:
                self._act(ev.Publish(request, full, after, g))

    def commit(self, due: Iterable[str]) -> tuple[ev.Act, ...]:
        """Where pages are findable once they are there: those of the frame that came back are."""
        self.acts = []
        if self.policy.publish is Publish.COMMIT and self.state.limits.caching:
            for r in due:
                if r in self.state.requests and self.state.request(r).place is Place.RUNNING:
                    written = confirmed(self.state, r)
                    self.merge(r, written)
                    self.publish(r, written, 0)
        return tuple(self.acts)

    def merge(self, request: str, upto: int) -> None:
        """Pages that somebody else has published already give way to those."""
        r = self.state.request(request)
        for g, m in enumerate(self.state.memory):
            if self.policy.twins is not Twins.MERGED:
                return
            at: dict[Slot, int] = {b.published: i for i, b in sorted(m.blocks.items(), reverse=True)}
            found = [(b, at.get(r.prefix((i + 1) * m.page), b)) for i, b in enumerate(r.tables[g][: upto // m.page])]
            twins = [(b, other) for b, other in found if other != b and m.block(b).published is None]
            if twins:
                self.merged.add(request)
                self._act(ev.Exchange(request, tuple(b for b, _ in twins), tuple(other for _, other in twins), 0, g))
