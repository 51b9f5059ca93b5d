"""Faults of continuous batching: its blocks, on the device and on the host. See `transformers_faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
else:
    from faults import Fault, Injection

HOST: dict[str, Any] = {"policies": ("hf-cb-offload",), "config": {"host_blocks": True}}


def _allocator(cb: Any) -> Any:
    (allocator,) = cb.cache.cache_allocators.values()
    return allocator


def _forgets_last(into: Injection, cb: Any, when: Any) -> None:
    def free(original: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
        table = _allocator(cb).block_table.get(request_id)
        if table and when(bool(args or kwargs), request_id):
            into.acted()
            table.pop()
        return original(request_id, *args, **kwargs)

    into.wrap(cb.cache, "free_blocks", free)


def _leaks_of_victim(into: Injection, cb: Any) -> None:
    served: list[Any] = []

    def schedule(original: Any, *args: Any) -> Any:
        answer = original(*args)
        served[:] = answer[0] or ()
        return answer

    into.wrap(cb.scheduler, "schedule_batch", schedule)
    # Somebody was served: else the engine would look for more room at once, and perhaps find none.
    _forgets_last(into, cb, lambda offloaded, _: offloaded and bool(served))


def _leaks_at_finish(into: Injection, cb: Any) -> None:
    scheduler = cb.scheduler
    _forgets_last(into, cb, lambda offloaded, name: not offloaded and name not in scheduler._requests_to_cancel)


def _leaks_at_abort(into: Injection, cb: Any) -> None:
    scheduler, pool = cb.scheduler, cb.cache.pool

    def roomy(_: bool, name: str) -> bool:
        # Nobody misses the block in this very step: else what follows from the leak is noticed before it.
        free = pool.num_free_sectors + pool.count_free_blocks(0)
        return name in scheduler._requests_to_cancel and free > len(scheduler.active_requests)

    _forgets_last(into, cb, roomy)


def _frees_twice(into: Injection, cb: Any) -> None:
    def free(original: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
        table = list(_allocator(cb).block_table.get(request_id, ()))
        answer = original(request_id, *args, **kwargs)
        if table and not (args or kwargs):
            into.acted()
            cb.cache.pool.free_blocks(_allocator(cb).index, table[-1:])
        return answer

    into.wrap(cb.cache, "free_blocks", free)


def _given_twice(into: Injection, cb: Any) -> None:
    allocator = _allocator(cb)

    def allocate(original: Any, request_id: str, *args: Any) -> Any:
        before = len(allocator.block_table.get(request_id, ()))
        answer = original(request_id, *args)
        others = [t[-1] for name, t in allocator.block_table.items() if name != request_id and t]
        if len(allocator.block_table[request_id]) > before and others:
            into.acted()
            allocator.block_table[request_id][-1] = others[0]
        return answer

    into.wrap(allocator, "allocate_cache_to_request", allocate)


def _allocates_before_it_looks(into: Injection, cb: Any) -> None:
    allocator, scheduler = _allocator(cb), cb.scheduler

    def store(original: Any, state: Any, length: int, *args: Any) -> Any:
        fits = original(state, length, *args)
        waits = state.request_id not in scheduler.active_requests
        if not fits and waits and cb.cache.pool.num_free_sectors + cb.cache.pool.count_free_blocks(allocator.index):
            into.acted()
            if not cb.cache.pool.count_free_blocks(allocator.index):
                cb.cache.pool.allocate_sector(allocator.index)
            allocator.block_table.setdefault(state.request_id, []).extend(cb.cache.pool.get_free_blocks(0, 1))
        return fits

    into.wrap(cb.cache, "can_store_request_tokens", store)


def _reads_pages_swapped(into: Injection, cb: Any) -> None:
    page = _allocator(cb).tokens_per_page

    def extend(original: Any, request_id: str, past: int, length: int, read: Any, write: Any) -> Any:
        at = None if read is None else len(read[0])
        answer = original(request_id, past, length, read, write)
        if at is not None and len(read[0]) - at >= 2 * page:
            into.acted()
            first, second = read[0][at : at + page], read[0][at + page : at + 2 * page]
            read[0][at : at + 2 * page] = second + first
        return answer

    into.wrap(cb.cache, "extend_read_and_write_indices", extend)


def _copies_nothing(into: Injection, cb: Any) -> None:
    manager = cb.offloading_manager

    def offload(original: Any, victims: Any, tables: Any) -> Any:
        if manager._cpu_pool is None:
            return original(victims, tables)
        before = manager._cpu_tensor.clone()
        gone = original(victims, tables)
        if gone:
            into.acted()
            manager._cpu_tensor.copy_(before)
        return gone

    into.wrap(manager, "_offload_to_cpu", offload)


def _restores_in_the_wrong_place(into: Injection, cb: Any) -> None:
    def restore(original: Any, batch: Any) -> Any:
        back = [f.state.request_id for f in batch if f.state.is_cpu_offloaded]
        tables = [blocks for r in back for blocks in cb.offloading_manager._request_id_to_cpu_blocks[r].values()]
        for blocks in tables:
            if len(blocks) > 1:
                into.acted()
                blocks.reverse()
        return original(batch)

    into.wrap(cb.offloading_manager, "restore_scheduled_requests", restore)


def _restores_nothing(into: Injection, cb: Any) -> None:
    def restore(original: Any, batch: Any) -> Any:
        back = any(f.state.is_cpu_offloaded for f in batch)
        view = _allocator(cb)._copy_view
        before = view.clone() if back else None
        answer = original(batch)
        if before is not None:
            into.acted()
            view.copy_(before)
        return answer

    into.wrap(cb.offloading_manager, "restore_scheduled_requests", restore)


def _host_leaks(into: Injection, cb: Any) -> None:
    pool = cb.offloading_manager._cpu_pool
    if pool is None:
        return

    def free(original: Any, index: int, blocks: list[int]) -> Any:
        into.acted()
        return original(index, blocks[:-1])

    into.wrap(pool, "free_blocks", free)


def _never_swaps(into: Injection, cb: Any) -> None:
    def offload(original: Any, victims: Any, tables: Any) -> Any:
        into.acted()
        return set()

    into.wrap(cb.offloading_manager, "_offload_to_cpu", offload)


MEMORY: tuple[Fault, ...] = (
    Fault("leaks-of-victim", "Forgets the last block of a victim.", ("pool/conserve",), _leaks_of_victim),
    Fault("leaks-at-finish", "Forgets the last block of a request that is done.", ("pool/conserve",), _leaks_at_finish),
    Fault(
        "leaks-at-abort",
        "Forgets the last block of a cancelled request.",
        ("pool/conserve",),
        _leaks_at_abort,
        also=("pool/refcount",),
        script=("abort",),
    ),
    Fault("frees-twice", "Frees the last block of a request that is done twice.", ("pool/free-once",), _frees_twice),
    Fault("given-twice", "Gives a request a block that another one has.", ("pool/conserve",), _given_twice),
    Fault(
        "allocates-before-it-looks",
        "Leaves a block with a waiting request that did not fit.",
        ("pool/all-or-nothing",),
        _allocates_before_it_looks,
        also=("pool/conserve", "pool/refcount"),
    ),
    Fault(
        "reads-pages-swapped",
        "Tells the pass to read two pages of a request in each other's place.",
        ("resume/message",),
        _reads_pages_swapped,
    ),
    Fault(
        "copies-nothing",
        "Marks a victim as copied out, and copies nothing.",
        ("swap/round-trip",),
        _copies_nothing,
        **HOST,
    ),
    Fault(
        "restores-in-the-wrong-place",
        "Restores a victim's blocks in reverse order.",
        ("swap/round-trip",),
        _restores_in_the_wrong_place,
        **HOST,
    ),
    Fault(
        "restores-nothing",
        "Lets a victim go on in new blocks without copying.",
        ("swap/round-trip",),
        _restores_nothing,
        also=("resume/provenance",),
        **HOST,
    ),
    Fault("host-leaks", "Forgets the last host block of who comes back.", ("swap/host-pool",), _host_leaks, **HOST),
    Fault("never-swaps", "Resets a victim though the host has room.", ("swap/host-pool",), _never_swaps, **HOST),
)
