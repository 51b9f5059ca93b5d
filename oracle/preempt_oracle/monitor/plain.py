"""Plain preemptions, admissions and finishes: what is just as the policy has it is proved at a glance, then counted.

Each method answers whether it proved and applied what it was given; if not, nothing has happened, and the clauses say
whether anything is wrong. What the policy leaves to choose is asked of the policy's own functions.
"""

from __future__ import annotations

from preempt_oracle.monitor.change import demote, enter, give_back, own, requeue
from preempt_oracle.monitor.counts import Ledger
from preempt_oracle.monitor.shadow import Shadow
from preempt_oracle.trace import wire
from preempt_spec.policies.admission import hit_limit, oversize
from preempt_spec.policies.blocks import blocks_for
from preempt_spec.policies.policy import AfterPreemption, Memory, Need, Oversize, Release
from preempt_spec.policies.pressure import growth
from preempt_spec.policies.queues import next_admitted, requeue_at
from preempt_spec.policies.victims import victim
from preempt_spec.view import Place


class Plain:
    """Proofs over one shadow, of one group."""

    def __init__(self, shadow: Shadow, ledger: Ledger) -> None:
        self.s, self.n = shadow, ledger
        self._closed = shadow.policy.after_preemption is AfterPreemption.CLOSED
        self._sized = shadow.policy.oversize is Oversize.SCHEDULER
        self._uncached = not shadow.limits.caching and not shadow.hosts

    def returned(self, request: str, blocks: tuple[tuple[int, ...], ...]) -> bool:
        """Whether these are the blocks it owns, each once."""
        table = tuple(self.s.requests[request].tables[0])
        return blocks == (table,) and (not self.s.memory[0].many or len(set(table)) == len(table))

    def preemption(self, out: wire.Demote, back: wire.Release, again: wire.Requeue) -> bool:
        """A victim of growth: preempted, released and requeued in one go."""
        s, n, plan, name = self.s, self.n, self.s.plan, out.request
        r, who = s.requests.get(name), out.beneficiaries
        if r is None or r.place is not Place.RUNNING or len(who) != 1 or name != back.request or name != again.request:
            return False
        grower = s.requests.get(who[0])
        if grower is None or grower.place is not Place.RUNNING or out.cause != "growth":
            return False
        if out.cause not in s.policy.causes or plan.fenced or back.until is not None or back.computed or back.drafts:
            return False
        if s.policy.memory is Memory.SWAP or back.kept or again.queue != "waiting":
            return False
        if s.policy.release is Release.LAZY:
            return False  # what counts as supply is for the clauses
        if not r.tables[0] or not (back.blocks is None or self.returned(name, back.blocks)):
            return False
        need = 1 if s.policy.need is Need.ONE_FREE else growth(s, who[0], 0)
        if need <= s.memory[0].nfree or victim(s, who[0]) != name:
            return False
        granted = plan.granted
        if name in granted or (again.known is not None and again.known != len(r.tokens)):
            return False
        if again.index is not None and again.index != requeue_at(s, name):
            return False
        n.demoted += 1
        if plan.served == who:
            n.further += 1
        else:
            n.first += 1
        n.amid += bool(granted or plan.pending)
        n.released += 1
        n.returned += back.blocks is not None
        n.zeroed += (back.computed is not None) + (back.drafts is not None)
        n.requeued += 1
        n.remembered += again.known is not None
        n.placed += again.index is not None
        demote(s, out)
        give_back(s, back)
        requeue(s, again)
        return True

    def admission(self, request: str, tokens: int, blocks: tuple[int, ...], hit: int) -> bool:
        """The first that waits is admitted behind a hit of whole pages, if any, with blocks of its own behind it."""
        s, n, plan, m, limits = self.s, self.n, self.s.plan, self.s.memory[0], self.s.limits
        r = s.requests.get(request)
        if r is None or r.place is not Place.WAITING or s.odd or r.tables[0] or r.base:
            return False
        if (s.frames or s.swapped or s.waiting[0] != request) and next_admitted(s) != request:
            return False
        if plan.skipped or request in plan.demoted or (self._closed and plan.demoted):
            return False
        known, end, shared = len(r.tokens), hit + tokens, hit // m.page
        if tokens < 1 or end > min(known, len(blocks) * m.page) or tokens > limits.budget - plan.spent:
            return False
        if len(s.running) >= limits.max_running or (end < known and not limits.chunked):
            return False
        lack = (max(blocks_for(known, m.page), len(blocks)) if limits.whole_fit else len(blocks)) - shared
        if hit:
            if hit % m.page or hit > hit_limit(s, request) or len(set(blocks)) < len(blocks):
                return False
            if min(blocks) < m.reserved or max(blocks) >= m.total or not s.resident(request, hit, (blocks,)):
                return False
            lack += sum([m.is_free(b) for b in blocks[:shared]])
        fresh = blocks[shared:]
        if not fresh or lack + (limits.watermark if s.running else 0) > m.nfree or not m.fresh(fresh):
            return False
        if self._sized and oversize(s, r):
            return False
        n.plain += 1
        n.growth += 1
        n.admitted += 1
        n.sized += self._sized
        n.uncached += self._uncached
        if hit:
            own(s, r, (blocks,), hit)
        else:
            r.split()
            m.hand_out(blocks, r)
            r.tables[0].extend(blocks)
        enter(s, r, hit, tokens)
        return True
