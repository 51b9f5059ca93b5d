"""The engine's own books at the end of a step, compared with the shadow as whole columns.

Where everything agrees, the clauses of Close hold and only their counts are added; where anything does not, the
answer is False and the clauses themselves say what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from preempt_oracle.monitor.counts import Counts, Ledger
from preempt_oracle.monitor.growth import Grown, all_grow, growing_as_told
from preempt_oracle.monitor.shadow import Shadow
from preempt_oracle.trace import wire
from preempt_oracle.trace.raw import Deltas, Rest
from preempt_spec.policies.policy import Memory, Release
from preempt_spec.view import Place


class Books:
    """Comparisons over one shadow."""

    def __init__(self, shadow: Shadow, counts: Counts, ledger: Ledger) -> None:
        self.s, self.c, self.n = shadow, counts, ledger
        self._swaps = shadow.policy.memory is Memory.SWAP
        self._lazy = shadow.policy.release is Release.LAZY

    def quiet(self, e: wire.Step | Rest, given: Deltas) -> Grown | None:
        """Whose tables grow, if nothing else happens in this step, and all books agree.

        `given`: growth that was told as it is, apart from the event.
        """
        s = self.s
        if s.aborted or e.resumed or e.hits or s.cycle is not None or self._taxed(len(s.frames) + 1):
            return None
        told = growing_as_told(s, e, given)
        if told is None or told.full or not all_grow(s, told.grown):
            return None
        return told.grown if self._observed(e.observed, s.memory[0].nfree - told.fresh) else None

    def count_quiet(self, e: wire.Step | Rest, given: Deltas) -> None:
        """Count such a step."""
        self.n.told += len(e.sent) + len(given)
        o = e.observed
        self._count_observed(o)
        if o.held is not None:
            self.n.held += len(self.s.waiting)

    def agree(self, e: wire.Step, told: bool) -> bool:
        """After a step with preemptions or admissions: every book agrees. `told`: what was sent is known to."""
        s, plan = self.s, self.s.plan
        if s.aborted or plan.pending or s.cycle is not None or s.memory[0].fences:
            return False
        if plan.restored or self._taxed(len(s.frames)):
            return False
        if not self._observed(e.observed, s.memory[0].nfree):
            return False
        if plan.published and not self._written(plan.published):
            return False
        if e.observed.cached and not self._cached(e.observed.cached):
            return False
        for v in plan.demoted:
            if v in s.requests and s.requests[v].place is Place.LIMBO:
                return False
        for v in plan.requeued:
            if v not in s.waiting:
                return False
        if not told and not self._sent_agrees(e):
            return False
        requests, admitted = s.requests, plan.admitted
        back = {a for a in admitted if requests[a].preempted}
        if len(e.resumed) != len(back) or {x.request for x in e.resumed} != back:
            return False
        for x in e.resumed:
            if x.known is not None and x.known != len(requests[x.request].tokens):
                return False
        return all(h.request in admitted for h in e.hits)

    def _taxed(self, flying: int) -> bool:
        """Whether the price of preemption is to be looked at, or what is left in the host tier."""
        s = self.s
        return (s.policy.tax is not None and s.recomputed > 0) or (self._nobodys(flying) and len(s.host[0].blocks) > 0)

    def _nobodys(self, flying: int) -> bool:
        """Whether the host should be empty: it keeps what victims need, and nobody is swapped, or in between."""
        s = self.s
        if not self._swaps or s.swapped or s.plan.restored or flying > 1:
            return False
        return all(r.place is not Place.LIMBO for r in s.requests.values())

    def _written(self, published: Sequence[tuple[int, int]]) -> bool:
        """Whether blocks are what they were published as.

        What a running request attends holds its tokens as far as it is: that was looked at just now, or is known.
        """
        s, m = self.s, self.s.memory[0]
        owners, what, page = m.owner, m.published, m.page
        for g, b in published:
            r, findable = owners[b], what.get(b)
            if r is not None and findable is not None and r.place is Place.RUNNING and not r.suspect:
                tokens, _, end = findable
                table, at = r.tables[0], end // page - 1
                if r.tokens is tokens and end <= r.computed and at < len(table) and table[at] == b:
                    continue
            if not s.holds_page(g, b):
                return False
        return True

    def _cached(self, cached: tuple[wire.Cached, ...]) -> bool:
        s, plan = self.s, self.s.plan
        for told in cached:
            if told.request in plan.admitted:
                r = s.requests[told.request]
                most = len(r.tokens) if r.preempted else r.prompt
                if not 0 <= told.external <= told.tokens <= most:
                    return False
        return True

    def _sent_agrees(self, e: wire.Step) -> bool:
        s, plan = self.s, self.s.plan
        requests, admitted, granted = s.requests, plan.admitted, plan.granted
        sent: set[str] = set()
        for x in e.sent:
            name = x.request
            r = requests.get(name)
            if r is None or x.group or name in sent or name in plan.demoted or name not in granted:
                return False
            sent.add(name)
            if x.full:
                if [*x.blocks] != r.tables[0]:
                    return False
            elif name in admitted or [*r.sent[0], *x.blocks] != r.tables[0]:
                return False
        return sent.issuperset(admitted) and sent.issuperset([d.request for d in e.blocks])

    def count_agreed(self, e: wire.Step) -> None:
        """Count such a step."""
        s, n, plan, o = self.s, self.n, self.s.plan, e.observed
        self._count_observed(o)
        n.told += len(e.sent)
        n.announced += 1 if e.resumed else 0
        n.known += sum(x.known is not None for x in e.resumed)
        n.victims += len(plan.demoted)
        n.published += len(plan.published)
        n.cached += sum(told.request in plan.admitted for told in o.cached or ())
        if o.held is not None:
            n.held += sum(w not in plan.demoted for w in s.waiting)
            n.reset += sum(v in s.waiting for v in plan.demoted)
        if o.waiting is not None:
            n.places += len(plan.requeued)

    def _observed(self, o: wire.Observed, free: int) -> bool:
        s = self.s
        if (
            self._lazy
            and o.held is not None
            and any(r.tables[0] or r.base for r in map(s.requests.get, s.waiting) if r)
        ):
            return False  # who waits should hold something
        if o.free_ids is not None or o.held or (o.free is not None and o.free != (free,)):
            return False
        if o.refs is not None and {x.block: x.count for x in o.refs} != s.memory[0].many:
            return False
        if o.host_free is not None and o.host_free != (s.host_free(0),):
            return False
        if o.preemptions is not None and o.preemptions != s.preemptions:
            return False
        if o.running is None:
            return o.waiting is None
        if len(s.rows) + len(s.waiting) + len(s.swapped) != len(s.requests) or o.loading:
            return False  # somebody is in limbo, or loading
        if o.swapped is not None and [*o.swapped] != s.swapped:
            return False
        return o.waiting is not None and [*o.running] == s.running and [*o.waiting] == s.waiting

    def _count_observed(self, o: wire.Observed) -> None:
        n = self.n
        n.emptied += self._nobodys(len(self.s.frames))
        if o.free is not None:
            n.free += 1
        if o.refs is not None:
            n.refs += 1
        if o.running is not None:
            n.queues += 1
        if o.host_free is not None:
            n.host += 1
        if o.preemptions is not None:
            n.stats += 1
