"""Looks into one continuous-batching processor of transformers while it works.

Runs in the engine's Python, next to `transformers_child`. Bound methods of its scheduler, cache and offloading manager
are wrapped, last of all, so that a fault put into them stays underneath and is seen.

What is copied between the tiers is read off the memory itself: no forward pass writes it in this mode, so whenever a
frame would, each block it writes gets a stamp of its own, and a copy is where a stamp turns up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.child import Reply
    from preempt_oracle.engines.transformers_build import RESERVED
else:
    from child import Reply
    from transformers_build import RESERVED


def free_blocks(pool: Any) -> list[int]:
    """The ids in a pool's free lists; of sectors that nobody holds, too: a sector is a block here."""
    return [
        *pool.free_sectors,
        *(leaf for trees in pool._free_blocks for tree in trees.trees.values() for leaf in tree),
    ]


class Stamps:
    """A number of its own in the first bytes of each block that was written."""

    def __init__(self, torch: Any, device: Any, host: Any) -> None:
        self.torch = torch
        self.device = device[:, :8].view(torch.int64)  # [blocks, 1]
        self.host = None if host is None else host[:, :8].view(torch.int64)
        self.last = 0
        self.device.zero_()
        if self.host is not None:
            self.host.zero_()

    def put(self, blocks: Iterable[int]) -> None:
        """The blocks are written."""
        for block in blocks:
            self.last += 1
            self.device[block, 0] = self.last

    def wipe(self, blocks: Iterable[int], host: bool = False) -> None:
        """The blocks hold nothing."""
        tier: Any = self.host if host else self.device
        for block in blocks:
            tier[block, 0] = 0

    def read(self, host: bool = False) -> list[int]:
        """The stamp of each block of a tier."""
        tier = self.host if host else self.device
        return [] if tier is None else [int(x) for x in tier[:, 0].tolist()]


class Watch:
    """The acts and block deltas of one step, and what came back outside of one."""

    def __init__(self, torch: Any, processor: Any) -> None:
        self.processor = processor
        self.scheduler, self.cache = processor.scheduler, processor.cache
        self.manager = processor.offloading_manager
        (self.allocator,) = self.cache.cache_allocators.values()
        host = self.manager._cpu_views.get(next(iter(self.cache.cache_allocators))) if self.manager._cpu_pool else None
        self.stamps = Stamps(torch, self.allocator._copy_view, host)
        self.preempted: set[str] = set()  # demoted and not yet granted tokens again
        self.offloading: list[Any] | None = None  # while room is made: who starved, and the tokens it was denied
        self.victims: dict[str, Reply] = {}  # of the offloading in hand: their releases
        self.granted = 0  # in the pass that is over; in the one that runs, `looked`
        self.looked: int | None = None
        self.begin()
        self._hook()

    def begin(self) -> None:
        """A step or a delivery begins."""
        self.acts: list[Reply] = []
        self.deltas: list[list[Any]] = []
        self.hits: list[list[Any]] = []
        self.matched: dict[str, tuple[int, list[int]]] = {}  # by a hit of this pass: grants made before, its blocks
        self.back: list[str] = []  # who was preempted and runs again by a hit alone
        self.returned: dict[str, list[int]] = {}
        self.granted = 0

    # -- what there is ------------------------------------------------------------------------------------------------

    def table(self, request: str) -> list[int]:
        """The blocks of a request in the allocator's books."""
        return list(self.allocator.block_table.get(request, ()))

    def free(self) -> list[int]:
        """The free list; what is only kept for its content counts as free."""
        return [*free_blocks(self.cache.pool), *self.allocator.ledger.cached_blocks]

    def fresh(self) -> list[str]:
        """Who waits without KV in the host tier, in order."""
        waiting = self.scheduler.waiting_requests
        return [r for r in self.scheduler.waiting_requests_order if r not in waiting or not waiting[r].is_cpu_offloaded]

    def swapped(self) -> list[str]:
        """Who waits with it."""
        waiting = self.scheduler.waiting_requests
        return [r for r in self.scheduler.waiting_requests_order if r in waiting and waiting[r].is_cpu_offloaded]

    def findable(self) -> set[int]:
        """The blocks that a prefix may be found in."""
        return {*self.allocator.ledger.hash_to_block.values()}

    def references(self) -> dict[int, int]:
        """How often each block is held, as the allocator counts."""
        free = self.free()
        count = dict.fromkeys(free, 0)
        for block in range(RESERVED, self.allocator.num_blocks + RESERVED):
            if block not in count:
                count[block] = self.allocator.ledger.shared_ref_counts.get(block, 1)
        return {**count, **{b: -free.count(b) for b in free if free.count(b) > 1}}  # freed twice: less than nothing

    # -- the hooks ----------------------------------------------------------------------------------------------------

    def _hook(self) -> None:
        scheduler, cache, manager, allocator = self.scheduler, self.cache, self.manager, self.allocator
        allocate, free_cache, schedule = (
            allocator.allocate_cache_to_request,
            cache.free_blocks,
            scheduler.schedule_batch,
        )
        finish, wait, offload = scheduler.finish_request, scheduler.add_waiting_request, manager.offload_requests
        restore, drop = manager.restore_scheduled_requests, manager.free_request_cpu_cache
        to_cpu, acquire = manager._offload_to_cpu, allocator.acquire_prefix_blocks
        mark, evict, grant = cache.mark_complete_blocks, cache.evict_cached_blocks, scheduler._schedule_request

        def acquiring(request_id: str, *args: Any) -> Any:
            answer = acquire(request_id, *args)
            self.matched[request_id] = self.looked or 0, self.table(request_id)
            return answer

        def allocating(request_id: str, *args: Any) -> Any:
            _, hit = self.matched.pop(request_id, (0, []))
            before = len(allocator.block_table.get(request_id, ())) - len(hit)
            answer = allocate(request_id, *args)
            if added := self.table(request_id)[before:]:
                self.deltas.append([request_id, 0, added])
            if hit:
                self.hits.append([request_id, scheduler.active_requests[request_id].position_offset])
            return answer

        def granting(state: Any, *args: Any) -> Any:
            if self.looked is not None:
                self.looked += 1
            return grant(state, *args)

        def marking(state: Any, *args: Any) -> Any:
            table, found = self.table(state.request_id), self.findable()
            answer = mark(state, *args)
            self._changed(state.request_id, table)
            if fresh := sorted(self.findable() - found):
                self._act("publish", request=state.request_id, blocks=fresh)
            return answer

        def evicting() -> Any:
            return self._withdrawing(evict)

        def freeing(request_id: str, *args: Any, **kwargs: Any) -> Any:
            if self.offloading is not None:
                self._demoted(request_id)
            back = self._withdrawing
            return back(lambda: self._returning(request_id, lambda: free_cache(request_id, *args, **kwargs)))

        def finishing(request_id: str) -> Any:
            if self.offloading is not None:
                self._demoted(request_id)
            return finish(request_id)

        def waiting(state: Any) -> Any:
            answer = wait(state)
            if self.offloading is not None:
                self._requeued(state)
            return answer

        def scheduling(*args: Any, **kwargs: Any) -> Any:
            self.looked = 0
            answer = schedule(*args, **kwargs)
            self.granted, self.looked = len(answer[0] or ()), None
            self._running_by_hits()
            return answer

        def making_room() -> Any:
            return self._making_room(offload)

        def copying_out(victims: Any, tables: Any) -> Any:
            return self._copying_out(to_cpu, victims, tables)

        def restoring(batch: Any) -> Any:
            return self._restoring(restore, batch)

        def dropping(state: Any) -> Any:
            return self._host_freed(lambda: drop(state))

        allocator.allocate_cache_to_request, cache.free_blocks = allocating, freeing
        scheduler.schedule_batch, scheduler.finish_request, scheduler.add_waiting_request = (
            scheduling,
            finishing,
            waiting,
        )
        manager.offload_requests, manager.restore_scheduled_requests = making_room, restoring
        manager.free_request_cpu_cache, manager._offload_to_cpu = dropping, copying_out
        allocator.acquire_prefix_blocks, scheduler._schedule_request = acquiring, granting
        cache.mark_complete_blocks, cache.evict_cached_blocks = marking, evicting

    def _running_by_hits(self) -> None:
        """Who was taken among those who run by a hit of this pass, and found no room behind it."""
        for request, (after, blocks) in self.matched.items():
            computed = self.scheduler.active_requests[request].position_offset
            act: Reply = {"act": "load", "after": after, "request": request, "computed": computed, "hit": computed}
            self.acts.append({**act, "blocks": [blocks], "runs": True})
            if request in self.preempted:
                self.back.append(request)
        self.matched = {}

    def _changed(self, request: str, before: list[int]) -> None:
        """Blocks of a table that gave way to others."""
        pairs = [(old, new) for old, new in zip(before, self.table(request), strict=False) if old != new]
        if pairs:
            self._act("exchange", request=request, blocks=[a for a, _ in pairs], instead=[b for _, b in pairs])

    def _withdrawing(self, act: Any) -> Any:
        """What can be found no more."""
        before = self.findable()
        answer = act()
        if gone := sorted(before - self.findable()):
            self._act("withdraw", blocks=gone)
        return answer

    def _returning(self, request: str, give_back: Any) -> Any:
        """What really came back: the blocks of its table, or others, that lost a reference."""
        table, before = self.table(request), self.references()
        answer = give_back()
        after = self.references()
        lost = {b: before[b] - after[b] for b in before if before[b] > after[b]}
        back = [b for b in table for _ in range(lost.get(b, 0))]
        back += [b for b, n in lost.items() if b not in table for _ in range(n)]
        if self.offloading is None:
            self.returned.setdefault(request, []).extend(back)
        elif back:
            self.victims[request]["blocks"][0].extend(back)
        return answer

    def _making_room(self, offload: Any) -> Any:
        scheduler = self.scheduler
        self.offloading = list(scheduler.starved_requests)
        self.victims = {}
        try:
            answer = offload()
        finally:
            self.offloading = None
        for request, release in self.victims.items():
            state = scheduler.waiting_requests.get(request)
            release["computed"] = state.position_offset if state is not None else 0
            if state is not None and state.is_cpu_offloaded:
                release["kept"] = state.position_offset
        return answer

    def _demoted(self, request: str) -> None:
        """Somebody loses its memory while room is made: a victim."""
        if request in self.victims:
            return
        starved = self.offloading or []
        left = [(s, n) for s, n in starved if s.request_id not in self.victims]
        need = sum(self.allocator.needs_new_blocks(s.request_id, s.current_len(), n) for s, n in left)
        demote: Reply = {"act": "demote", "after": self.granted, "request": request, "cause": "growth"}
        demote |= {"beneficiaries": [s.request_id for s, _ in starved], "need": need, "supply": len(self.free())}
        self.victims[request] = {"act": "release", "after": self.granted, "request": request, "blocks": [[]]}
        self.acts += [demote, self.victims[request]]
        self.preempted.add(request)
        self.back = [name for name in self.back if name != request]

    def _requeued(self, state: Any) -> None:
        name = state.request_id
        queue = "swapped" if state.is_cpu_offloaded else "waiting"
        index = (self.swapped() if state.is_cpu_offloaded else self.fresh()).index(name)
        known = len(state.initial_tokens) + len(state.generated_tokens)
        self._act("requeue", request=name, queue=queue, index=index, known=known)

    # -- copies -------------------------------------------------------------------------------------------------------

    def _copying_out(self, to_cpu: Any, victims: Any, tables: Any) -> Any:
        """Each copy, as it turned up: a block of the host tier that has a stamp which only a device block had."""
        before, source = self.stamps.read(host=True), {s: b for b, s in enumerate(self.stamps.read()) if s}
        answer = to_cpu(victims, tables)
        after = self.stamps.read(host=True)
        owner = {block: state.request_id for state in victims for t in tables[state.request_id].values() for block in t}
        # Who shares a block has its own copy of it: for whom a copy is says the engine, what it holds the stamp.
        kept = self.manager._request_id_to_cpu_blocks
        names = [state.request_id for state in victims]
        meant = {host: r for r in names for ids in kept.get(r, {}).values() for host in ids}
        copies: dict[str, list[list[int]]] = {}
        for block, (old, new) in enumerate(zip(before, after, strict=True)):
            if new != old and new in source:
                copies.setdefault(meant.get(block, owner.get(source[new], "")), []).append([source[new], block, 0])
        for request, blocks in copies.items():
            swap: Reply = {"act": "swap", "after": self.granted, "request": request, "direction": "out"}
            # The allocator has its blocks back by now; nobody writes them before the copy, which comes first.
            self.acts.insert(self.acts.index(self.victims[request]), {**swap, "blocks": blocks})
        return answer

    def _restoring(self, restore: Any, batch: Any) -> Any:
        back = [f.state.request_id for f in batch if f.state.is_cpu_offloaded]
        if not back:
            return restore(batch)
        held = {r: [b for ids in self.manager._request_id_to_cpu_blocks.get(r, {}).values() for b in ids] for r in back}
        self.stamps.wipe(b for request in back for b in self.table(request))  # what stands there is of before
        before, host = self.stamps.read(), self.stamps.read(host=True)
        in_use = {*range(len(host))} - {*free_blocks(self.manager._cpu_pool)}
        at = len(self.acts)
        answer = self._host_freed(lambda: restore(batch))
        filled = {b: new for b, (old, new) in enumerate(zip(before, self.stamps.read(), strict=True)) if old != new}
        acts = []
        for request in back:
            blocks = []
            for block in [b for b in self.table(request) if b in filled]:
                mine = [h for h in (*held[request], *sorted(in_use)) if host[h] == filled[block]]
                blocks += [[mine[0], block, 0]] if mine else []
            if blocks:
                swap: Reply = {"act": "swap", "after": self.granted, "request": request, "direction": "in"}
                acts.append({**swap, "blocks": blocks})
        self.acts[at:at] = acts  # before their host blocks go back
        self.stamps.put(filled)  # a stamp stands in one place
        return answer

    def _host_freed(self, act: Any) -> Any:
        pool = self.manager._cpu_pool
        if pool is None:
            return act()
        before = free_blocks(pool)
        answer = act()
        back = free_blocks(pool)
        for block in before:
            back.remove(block)
        if back:
            self._act("evict", blocks=sorted(back))
            self.stamps.wipe(back, host=True)  # what a shared block is copied to is seen again then
        return answer

    def _act(self, act: str, **fields: Any) -> None:
        self.acts.append({"act": act, "after": self.granted, **fields})
