"""The reference scheduler hands blocks out and takes them back: grants, releases, the way to the host and back."""

from __future__ import annotations

from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.paging import Paging
from preempt_spec.policies.outputs import confirmed
from preempt_spec.policies.policy import Idle, Memory
from preempt_spec.policies.pressure import entries
from preempt_spec.policies.queues import requeue_at
from preempt_spec.policies.victims import fenced
from preempt_spec.state import needed_pages
from preempt_spec.view import HOLE, Fate, Place


class Holding(Paging):
    """What requests hold; who is served, and at whose cost, `reference.Reference` decides."""

    def swap_out(self, victim: str) -> int:
        """Copy all its KV to the host, if the policy does so and all of it fits there. Returns the tokens kept."""
        s, r = self.state, self.state.request(victim)
        if self.policy.memory is not Memory.SWAP or not r.computed:
            return 0
        pairs = []
        for g, group in enumerate(s.groups):
            pages = needed_pages(group, r.computed)
            if len(pages) > s.host_free(g):
                return 0  # all or nothing
            unused = (b for b in range(s.host_extent(g)) if not s.host_used(g, b))
            pairs += [(page, r.tables[g][page], next(unused), g) for page in pages]
        self.backups[victim] = tuple((g, page, dst) for page, _, dst, g in pairs)
        out = tuple((src, dst, g) for _, src, dst, g in pairs)
        self._act(ev.Swap(victim, "out", out, len(s.plan.granted)))
        return r.computed

    def release(self, victim: str) -> None:
        """All blocks go back, and what the host does not hold counts as computed no more."""
        kept, tables = self.swap_out(victim), self.owned(victim)
        until = self.fences(victim)
        self._act(ev.Release(victim, len(self.state.plan.granted), tables, until, kept, 0, kept))
        if self.policy.idle is Idle.STARVED:  # room was to be made, not a cache to be filled
            for g, table in enumerate(tables):
                self.withdraw(g, tuple(b for b in table if self.state.is_free(g, b)))

    def clear(self, group: int, lack: int, keep: tuple[int, ...], request: str) -> None:
        """Who waits gives back what it was left, the last one first, until there is room for `request`."""
        for w in reversed(self.holders()):
            if len(self.state.free_ids(group) - set(keep)) >= lack:
                return
            if w != request:
                self.reclaim(w)

    def reclaim(self, holder: str) -> None:
        """What a victim was left goes back: now somebody needs it."""
        self.release(holder)

    def requeue(self, victim: str) -> None:
        """Back into a queue, where the policy says, with every token it has."""
        r = self.state.request(victim)
        queue = "swapped" if r.computed and self.policy.memory is Memory.SWAP else "waiting"
        at = requeue_at(self.state, victim, queue)
        self._act(ev.Requeue(victim, len(self.state.plan.granted), queue, at, len(r.tokens)))

    def shed(self, request: str) -> None:
        """Blocks that a sliding window has passed go back while the request runs."""
        r = self.state.request(request)
        for g, group in enumerate(self.state.groups):
            if group.kind == "sliding":
                upto = needed_pages(group, confirmed(self.state, request)).start
                passed = tuple(b for b in r.tables[g][:upto] if b != HOLE)
                if passed:
                    self._act(ev.Shed(request, passed, len(self.state.plan.granted), g))

    def take_back(self, victim: str) -> None:
        """Turn the victim's standing grant into one that was made and undone."""
        self._replan({r: g for r, g in self.state.plan.granted.items() if r != victim}, victim)

    def grant(self, request: str, tokens: int, hit: int = 0, blocks: tuple[tuple[int, ...], ...] = ()) -> None:
        """Tokens for a request, with the blocks they lack behind those it has or hit."""
        r = self.state.request(request)
        start = max(hit, r.computed) if r.place is Place.WAITING else r.computed
        new = []
        for g in range(len(self.state.groups)):
            had = blocks[g] if blocks else ()
            lack = entries(self.state, request, start + tokens, g) - len(r.tables[g]) - len(had)
            self.clear(g, lack, had, request)
            fresh = self.pick_blocks(g, max(lack, 0), had)
            self.withdraw(g, fresh)
            new.append((*had, *fresh))
            if new[-1]:
                self.deltas.append(ev.Delta(request, g, new[-1]))
        waited = r.place is Place.WAITING
        if waited and hit:
            self.hits.append(ev.Hit(request, hit))
        drafts = max(start + tokens - len(r.tokens) - r.placeholders, 0)
        self._do(mi.Grant(request, tokens, start, tuple(new), hit if waited else None, drafts))
        if r.place is Place.SWAPPED:
            self.swap_in(request)

    def swap_in(self, request: str) -> None:
        """Bring its KV back, into the blocks it owns now; the host blocks are free then."""
        after, tables = len(self.state.plan.granted), self.state.request(request).tables
        backup = self.backups[request]
        self._act(ev.Swap(request, "in", tuple((src, tables[g][page], g) for g, page, src in backup), after))
        self.drop_backup(request)

    def fences(self, request: str) -> int | None:
        """The frame until which blocks given up now are fenced, because it may still write them."""
        flying = [f for f, due in self.state.frames.items() if request in due and due[request].fate is not Fate.GONE]
        return max(flying) if flying and fenced(self.state, request) else None
