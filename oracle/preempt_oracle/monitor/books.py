"""The engine's own books at the end of a step, compared with the shadow as whole columns.

Where everything agrees, the clauses of Close hold and only their counts are added; where anything does not, the
answer is False and the clauses themselves say what is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from preempt_oracle.monitor.counts import Counts
from preempt_oracle.monitor.shadow import Shadow
from preempt_oracle.trace import wire


class Books:
    """Comparisons over one shadow."""

    def __init__(self, shadow: Shadow, counts: Counts, count: Counter[str]) -> None:
        self.s, self.c, self.count = shadow, counts, count

    def quiet(self, e: wire.Step, grown: Mapping[str, tuple[int, ...]]) -> bool:
        """Before the tables of `grown` grow: nothing but growth happens in this step, and all books agree with it."""
        s, m = self.s, self.s.memory[0]
        if s.aborted or e.resumed or e.hits or e.drafts:
            return False
        if not self._observed(e.observed, m.nfree - sum(map(len, grown.values()))):
            return False
        if len(e.sent) != len(grown):
            return False
        for x in e.sent:
            if x.full or x.group or grown.get(x.request) != x.blocks:
                return False
            r = s.requests[x.request]
            if len(r.sent[0]) != len(r.tables[0]):
                return False
        return len(grown) < 2 or len({x.request for x in e.sent}) == len(grown)

    def settle(self, e: wire.Step, grew: int) -> None:
        """Count and apply a quiet step."""
        self._add(self.c.told, grew)
        self._count_observed(e.observed)
        self._add(self.c.held, len(self.s.waiting) if e.observed.held is not None else 0)
        for x in e.sent:
            self.s.requests[x.request].sent[0].extend(x.blocks)

    def agree(self, e: wire.Step) -> bool:
        """After a step with preemptions or admissions: every book agrees."""
        s, plan = self.s, self.s.plan
        if s.aborted or plan.published or plan.pending or not self._observed(e.observed, s.memory[0].nfree):
            return False
        if plan.requeued and not all(v in s.waiting for v in plan.requeued):
            return False
        requests, admitted = s.requests, plan.admitted
        sent: set[str] = set()
        for x in e.sent:
            r = requests.get(x.request)
            if r is None or x.group or x.request in sent or x.request in plan.demoted:
                return False
            sent.add(x.request)
            if x.full:
                if [*x.blocks] != r.tables[0]:
                    return False
            elif x.request in admitted or [*r.sent[0], *x.blocks] != r.tables[0]:
                return False
        if not sent.issuperset(admitted) or not sent.issuperset([d.request for d in e.blocks]):
            return False
        if any(x not in plan.granted for x in sent):
            return False
        back = {a for a in admitted if requests[a].preempted}
        if {x.request for x in e.resumed} != back or len(e.resumed) != len(back):
            return False
        if any(x.known is not None and x.known != len(requests[x.request].tokens) for x in e.resumed):
            return False
        return not e.drafts and all(h.request in admitted for h in e.hits)

    def count_agreed(self, e: wire.Step) -> None:
        """Count such a step."""
        s, c, plan, o = self.s, self.c, self.s.plan, e.observed
        self._count_observed(o)
        self._add(c.told, len(e.sent))
        self._add(c.announced, 1 if e.resumed else 0)
        self._add(c.known, sum(x.known is not None for x in e.resumed))
        self._add(c.victims, len(plan.demoted))
        if o.held is not None:
            gone = sum(v in s.waiting for v in plan.demoted)
            self._add(c.held, sum(w not in plan.demoted for w in s.waiting))
            self._add(c.reset, gone)
        if o.waiting is not None:
            self._add(c.places, len(plan.requeued))

    def _observed(self, o: wire.Observed, free: int) -> bool:
        s = self.s
        if o.free_ids is not None or o.held or (o.free is not None and o.free != (free,)):
            return False
        if o.refs is not None and (o.refs or s.memory[0].nshared):
            return False
        if o.running is None:
            return o.waiting is None
        if len(s.rows) + len(s.waiting) != len(s.requests):
            return False  # somebody is in limbo
        return o.waiting is not None and [*o.running] == s.running and [*o.waiting] == s.waiting

    def _count_observed(self, o: wire.Observed) -> None:
        c = self.c
        if o.free is not None:
            self._add(c.free, 1)
        if o.refs is not None:
            self._add(c.refs, 1)
        if o.running is not None:
            self._add(c.queues, 1)

    def _add(self, rules: tuple[str, ...], n: int) -> None:
        if n:
            for rule in rules:
                self.count[rule] += n
