"""The monitor: feed it the events of a trace, in order; it says which rules break, and how often each was tested."""

from __future__ import annotations

from collections import Counter

from preempt_oracle.monitor.change import change
from preempt_oracle.monitor.cohort import Cohort
from preempt_oracle.monitor.shadow import Shadow
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_spec import micro as mi
from preempt_spec.events import Header
from preempt_spec.policies.policy import Policy
from preempt_spec.rules import Violation
from preempt_spec.system import admissible, clauses, judge


class Monitor:
    """Judges one run of one scheduler.

    `feed` raises `Malformed` for an event that makes no sense. After the first violation the shadow state is not to be
    trusted: `feed` then ignores what follows, and `violations` keeps what was found.
    """

    def __init__(self, header: Header, policy: Policy) -> None:
        self.shadow = Shadow(header, policy)
        self.active = clauses(header.observes)
        self._exercised: Counter[str] = Counter()
        self.violations: list[Violation] = []
        self.steps = 0
        self.grants = 0
        self._cohort = Cohort(self.shadow, self.active, self._exercised)

    @property
    def exercised(self) -> Counter[str]:
        """How often each rule was put to the test so far."""
        self._cohort.flush()
        return self._exercised

    def feed(self, event: wire.Event) -> list[Violation]:
        """Judge and apply one event. Returns its violations: all of the first micro-event that has any."""
        if self.violations:
            return []
        broken: list[Violation] | None = None
        if type(event) is wire.Step:
            self.steps += 1
            self.grants += len(event.requests)
            broken = self._cohort.step(event)
        elif type(event) is wire.Deliver:
            broken = self._cohort.deliver(event)
        elif type(event) is wire.Finish:
            broken = self._cohort.finish(event)
        if broken is None:
            broken = self._slowly(event)
        self.violations = broken
        return broken

    def _slowly(self, event: wire.Event) -> list[Violation]:
        s = self.shadow
        if type(event) is wire.Step:
            s.melt_all()
        for m in mi.expand(to_spec(event), len(s.memory)):
            admissible(s, m)
            broken = judge(s, m, self.active, self._exercised)
            if broken:
                return broken
            change(s, m)
        return []
