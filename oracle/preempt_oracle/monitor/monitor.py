"""The monitor: feed it the events of a trace, in order; it says which rules break, and how often each was tested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import wraps
from typing import Any

from preempt_oracle.monitor.change import change
from preempt_oracle.monitor.cohort import Cohort
from preempt_oracle.monitor.counts import Active
from preempt_oracle.monitor.shadow import Shadow
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_oracle.trace.steady import Steady, SteadyDeliver, SteadyStep, whole
from preempt_spec import SPEC_VERSION
from preempt_spec import micro as mi
from preempt_spec.events import Deliver, Header
from preempt_spec.policies.policy import Policy
from preempt_spec.rules import Violation
from preempt_spec.rules.rule import Clause, advisory
from preempt_spec.system import admissible, clauses, judge
from preempt_spec.view import View


class Monitor:
    """Judges one run of one scheduler.

    `feed` raises `Malformed` for an event that makes no sense. After the first violation the shadow state is not to be
    trusted: `feed` then ignores what follows, and `violations` keeps what was found.

    `spec`: the version of the specification to judge by (UnknownVersion if there is none). `advised` holds what its
    advisory rules said of the event fed last: that ends nothing.
    """

    def __init__(self, header: Header, policy: Policy, spec: str = SPEC_VERSION) -> None:
        self.shadow = Shadow(header, policy)
        self.active = clauses(header.observes, spec)
        self.spec = spec
        self.advised: list[Violation] = []
        self._judging = _noting(self.active, advisory(spec), self.advised)
        self._exercised: Counter[str] = Counter()
        self.violations: list[Violation] = []
        self.steps = 0
        self.grants = 0
        self._cohort = Cohort(self.shadow, self._judging, self._exercised)
        # The short cuts hold for streams in which whatever a frame owes came once; by a version that asks nobody for
        # that, all goes the slow way.
        self._short = any(rule == "frame/once" for rule, _ in self.active[Deliver])

    @property
    def exercised(self) -> Counter[str]:
        """How often each rule was put to the test so far."""
        self._cohort.flush()
        return self._exercised

    def feed(self, event: wire.Event | Steady) -> list[Violation]:
        """Judge and apply one event. Returns its violations: all of the first micro-event that has any."""
        if self.advised:
            self.advised.clear()
        if self.violations:
            return []
        if type(event) is SteadyStep or type(event) is wire.Step:
            self.steps += 1
            self.grants += len(event.requests)
        broken = self._shortly(event) if self._short else None
        if broken is None:
            broken = self._slowly(whole(event))
        self.violations = broken
        return broken

    def _shortly(self, event: wire.Event | Steady) -> list[Violation] | None:
        broken: list[Violation] | None = None
        if type(event) is SteadyStep:
            broken = self._cohort.steady_step(event)
            if broken is None:
                broken = self._cohort.step(event.whole())
        elif type(event) is SteadyDeliver:
            broken = self._cohort.steady_deliver(event)
        elif type(event) is wire.Step:
            broken = self._cohort.step(event)
        elif type(event) is wire.Deliver:
            broken = self._cohort.deliver(event)
        elif type(event) is wire.Finish:
            broken = self._cohort.finish(event)
        return broken

    def _slowly(self, event: wire.Event) -> list[Violation]:
        s = self.shadow
        if type(event) is wire.Step:
            s.melt_all()
        for m in mi.expand(to_spec(event), len(s.memory)):
            admissible(s, m)
            broken = judge(s, m, self._judging, self._exercised)
            if broken:
                return broken
            change(s, m)
        return []


def _noting(active: Active, advice: frozenset[str], into: list[Violation]) -> Active:
    """The clauses, those of the advisory rules made to note what they find and to say that all is well.

    So every short cut treats them as what they are: clauses like the others, which nothing comes of.
    """

    def noting(rule: str, clause: Clause) -> Clause:
        @wraps(clause)  # counts.py knows clauses by their names
        def noted(s: View, e: Any) -> Iterator[str | None]:
            for message in clause(s, e):
                if message is not None:
                    into.append(Violation(rule, message))
                yield None

        return noted

    if not advice:
        return active
    return {
        micro: tuple((rule, noting(rule, clause) if rule in advice else clause) for rule, clause in rows)
        for micro, rows in active.items()
    }
