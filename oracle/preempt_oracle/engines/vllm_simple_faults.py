"""Faults of vLLM's `SimpleCPUOffloadConnector`, for `smoke vllm --inject --option connector=simple`.

Runs in the engine's Python (standard library only). Wrapped are the connector's own methods, its manager's and its host
pool's: what the worker is told is what a broken connector would tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines.faults import Fault, Injection
    from preempt_oracle.engines.vllm_offload_faults import HOST, of_any, told
else:
    from faults import Fault, Injection
    from vllm_offload_faults import HOST, of_any, told


def _side(scheduler: Any) -> Any:
    return scheduler.connector.scheduler_manager


def _gpu(scheduler: Any) -> Any:
    return scheduler.kv_cache_manager.block_pool


def _blocks(pool: Any, ids: Iterable[int]) -> list[Any]:
    return [pool.blocks[block] for block in ids]


def _loads_of(message: Any, scheduler: Any) -> list[Any]:
    """The scheduler's records of the loads that a message asks for."""
    return [x for x in _side(scheduler)._reqs_to_load.values() if x.load_event == message.load_event >= 0]


def _store_not_issued(into: Injection, _: Any, message: Any) -> None:
    if message.store_gpu_blocks:
        # Sliced, not popped: the lists are the manager's own record of the copy.
        message.store_gpu_blocks = message.store_gpu_blocks[:-1]
        message.store_cpu_blocks = message.store_cpu_blocks[:-1]
        into.acted()


def _load_not_issued(into: Injection, scheduler: Any, message: Any) -> None:
    if message.load_event >= 0:
        for record in _loads_of(message, scheduler):
            _side(scheduler)._cleanup_load_request(record.request.request_id)
            scheduler.finished_recving_kv_req_ids.add(record.request.request_id)
        message.load_event, message.load_gpu_blocks, message.load_cpu_blocks = -1, [], []
        into.acted()


def _pages_swapped(into: Injection, _: Any, message: Any) -> None:
    if len(message.load_cpu_blocks) > 1:
        first, *middle, last = message.load_cpu_blocks
        message.load_cpu_blocks = [last, *middle, first]
        into.acted()


def _cut_short(into: Injection, _: Any, message: Any) -> None:
    if len(message.load_cpu_blocks) > 1:
        message.load_cpu_blocks = message.load_cpu_blocks[:-1]
        message.load_gpu_blocks = message.load_gpu_blocks[:-1]
        into.acted()


def _into_a_free_block(into: Injection, scheduler: Any, message: Any) -> None:
    queue = _gpu(scheduler).free_block_queue
    if message.load_gpu_blocks and queue.num_free_blocks:
        free = queue.fake_free_list_tail.prev_free_block.block_id
        message.load_gpu_blocks = [*message.load_gpu_blocks[:-1], free]
        into.acted()


def _over_another(into: Injection, scheduler: Any, message: Any) -> None:
    own = {*message.store_cpu_blocks}
    others = [b.block_id for b in _side(scheduler).cpu_block_pool.blocks if b.block_hash and b.block_id not in own]
    if own and others:
        message.store_cpu_blocks = [others[0], *message.store_cpu_blocks[1:]]
        into.acted()


def _found_before_it_is_there(into: Injection, scheduler: Any, message: Any) -> None:
    pool = _side(scheduler).cpu_block_pool
    for gpu, cpu in zip(message.store_gpu_blocks, message.store_cpu_blocks, strict=True):
        source = _gpu(scheduler).blocks[gpu]
        pool._insert_block_hash(source.block_hash, pool.blocks[cpu], num_tokens=source.block_hash_num_tokens)
        into.acted()


def _resumes_before_its_load(into: Injection, scheduler: Any, message: Any) -> None:
    for record in _loads_of(message, scheduler):
        scheduler.finished_recving_kv_req_ids.add(record.request.request_id)
        into.acted()


def _does_not_hold_what_it_stores(into: Injection, scheduler: Any) -> None:
    """What it references for a store it lets go at once; so that its books add up, it takes it back at the end."""
    side, pool = _side(scheduler), _gpu(scheduler)

    def build(original: Callable[..., Any], *args: Any) -> Any:
        message = original(*args)
        if message.store_gpu_blocks:
            pool.free_blocks(_blocks(pool, message.store_gpu_blocks))
            into.acted()
        return message

    def complete(original: Callable[..., Any], gpu: list[int], *args: Any) -> Any:
        pool.touch(_blocks(pool, gpu))
        return original(gpu, *args)

    into.wrap(scheduler.connector, "build_connector_meta", build)
    into.wrap(side, "_process_store_completion", complete)


def _lets_go_twice(into: Injection, scheduler: Any) -> None:
    pool = _gpu(scheduler)

    def complete(original: Callable[..., Any], gpu: list[int], *args: Any) -> Any:
        answer = original(gpu, *args)
        owned = [block for block in _blocks(pool, gpu) if block.ref_cnt]
        if owned:
            pool.free_blocks(owned)
            into.acted()
        return answer

    into.wrap(_side(scheduler), "_process_store_completion", complete)


def _never_lets_go(into: Injection, scheduler: Any) -> None:
    pool = _gpu(scheduler)

    def complete(original: Callable[..., Any], gpu: list[int], *args: Any) -> Any:
        for block in _blocks(pool, gpu):
            block.ref_cnt += 1  # counted, and written down nowhere
            into.acted()
        return original(gpu, *args)

    into.wrap(_side(scheduler), "_process_store_completion", complete)


def _gives_up_what_it_loads(into: Injection, scheduler: Any) -> None:
    """The host blocks of a load may be evicted while it is under way, and are the next to go."""
    side = _side(scheduler)
    host = side.cpu_block_pool
    queue = host.free_block_queue

    def allocated(original: Callable[..., Any], request: Any, *args: Any) -> Any:
        answer = original(request, *args)
        record = side._reqs_to_load.get(request.request_id)
        if record is not None and record.load_event is None:
            blocks = _blocks(host, record.transfer_meta.cpu_block_ids)
            host.free_blocks(blocks)
            for block in blocks:
                if not block.ref_cnt:
                    queue.remove(block)
                    queue.prepend_n([block])
            into.acted()
        return answer

    def cleanup(original: Callable[..., Any], name: str) -> Any:
        record = side._reqs_to_load.get(name)
        if record is not None:
            host.touch(_blocks(host, record.transfer_meta.cpu_block_ids))
        return original(name)

    into.wrap(scheduler.connector, "update_state_after_alloc", allocated)
    into.wrap(side, "_cleanup_load_request", cleanup)


FAULTS: tuple[Fault, ...] = (
    of_any("store-not-issued", told(_store_not_issued)),
    of_any("load-not-issued", told(_load_not_issued)),
    of_any("wrong-page-loaded", told(_pages_swapped)),
    of_any("load-cut-short", told(_cut_short)),
    of_any("load-into-free-block", told(_into_a_free_block)),
    of_any("stores-over-another", told(_over_another)),
    Fault(
        "found-before-stored",
        "Lets a page be loaded that is still being stored.",
        ("swap/host-pool",),
        told(_found_before_it_is_there),
        config=HOST,
    ),
    of_any("resumes-before-load", told(_resumes_before_its_load)),
    Fault(
        "store-not-held",
        "Hands out blocks while a copy to the host still reads them.",
        ("swap/fence", "live/survives"),
        _does_not_hold_what_it_stores,
        why="in the step in which the block is handed out; or vLLM fails over it first",
        config=HOST,
    ),
    Fault(
        "store-let-go-twice",
        "Lets a block go twice that was stored: it is free while a request owns it.",
        ("pool/conserve", "pool/refcount", "queue/admission"),
        _lets_go_twice,
        why="which sees it first depends on whether anybody else holds the block, and whether somebody is let in by it",
        config=HOST,
    ),
    Fault(
        "store-never-let-go",
        "Keeps a reference of a block that was stored.",
        ("pool/refcount", "pool/conserve", "victim/necessity"),
        _never_lets_go,
        also=("queue/visit-once",),
        why="a block that a table names has one reference too many, one that nobody names is missing from the pool; or "
        "in the very step somebody is preempted, or kept waiting, for the want of it",
        config=HOST,
    ),
    Fault(
        "evicts-what-it-loads",
        "Gives a host block up that a load still reads.",
        ("swap/fence", "swap/host-pool"),
        _gives_up_what_it_loads,
        why="while the load reads it; or before the load begins, which then finds nothing there",
        config=HOST,
    ),
)
