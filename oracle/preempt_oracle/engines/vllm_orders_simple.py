"""`SimpleCPUOffloadConnector`: what it tells its worker, and its books on the host.

Runs in the engine's Python (standard library and vLLM only). At most one store and one load per step, for everybody;
each direction is a stream of its own, on which copies end in the order in which they began. Device blocks that a copy
uses are referenced until it is over: those references are told as pins (`vllm_watch`). The host pool is a block pool
like the device's, whose first block is never handed out: host blocks are numbered from 0 behind it. A host block is
evicted when its hash goes; it is free if it stands in the free queue without one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines.child import Unsupported, require
    from preempt_oracle.engines.vllm_copies import IN, OUT, Job, Pairs
    from preempt_oracle.engines.vllm_orders import Order, Orders
else:
    from child import Unsupported, require
    from vllm_copies import IN, OUT, Job, Pairs
    from vllm_orders import Order, Orders

#: The host pool's null block.
RESERVED = 1


class SimpleReader:
    """See `vllm_orders.Reader`."""

    in_order = True

    def __init__(self, connector: Any, host_blocks: int, workers: int) -> None:
        from vllm.v1.simple_kv_offload import metadata

        require(metadata, ("SimpleCPUOffloadMetadata", "SimpleCPUOffloadWorkerMetadata"))
        self.messages = metadata
        require(connector, ("scheduler_manager",))
        side = connector.scheduler_manager
        if side is None:
            raise Unsupported("the connector was switched off: it needs prefix caching")
        require(side, ("cpu_block_pool", "_expected_worker_count"))
        self.pool = side.cpu_block_pool
        require(self.pool, ("blocks", "null_block", "free_block_queue"))
        require(self.pool.null_block, ("block_id", "ref_cnt", "block_hash", "next_free_block"))
        require(self.pool.free_block_queue, ("fake_free_list_head", "fake_free_list_tail"))
        if len(self.pool.blocks) != host_blocks + RESERVED or self.pool.null_block.block_id != 0:
            raise Unsupported(f"vLLM made {len(self.pool.blocks)} host blocks of what should be {host_blocks} and one")
        if side._expected_worker_count != workers:
            raise Unsupported(f"the connector was set up for {side._expected_worker_count} workers, not {workers}")
        self.workers = workers
        self.keys: dict[int, Any] = {}  # host block -> hash, behind the last decision
        self.names: dict[int, list[str]] = {}  # load event -> its requests, as the worker was told last

    def orders(self, message: Any) -> Orders:
        """One event to load, one to store; a step that preempts waits for everything."""
        if not isinstance(message, self.messages.SimpleCPUOffloadMetadata):
            raise Unsupported(f"the connector sends a {type(message).__name__}")
        self.names = {event: list(names) for event, names in message.load_event_to_reqs.items()}
        loads: tuple[Order, ...] = ()
        stores: tuple[Order, ...] = ()
        if message.load_event >= 0:
            pairs = _pairs(message.load_cpu_blocks, message.load_gpu_blocks, IN)
            loads = (Order(_number(message.load_event, IN), tuple(self.names.get(message.load_event, ())), pairs),)
        if message.store_event >= 0:
            pairs = _pairs(message.store_gpu_blocks, message.store_cpu_blocks, OUT)
            stores = (Order(_number(message.store_event, OUT), (), pairs),)
        return Orders(loads, stores, flush_all=bool(message.need_flush))

    def evicted(self, filled: Iterable[int]) -> list[int]:
        """A block that was filled and is found by nothing, or by something else, was given up."""
        now = {block: self.pool.blocks[block + RESERVED].block_hash for block in filled}
        gone = sorted(b for b, key in now.items() if key is None or self.keys.get(b, key) != key)
        self.keys = {b: key for b, key in now.items() if b not in gone}
        return gone

    def free(self) -> int:
        """Blocks in the free queue that are found by nothing."""
        count, queue = 0, self.pool.free_block_queue
        block = queue.fake_free_list_head.next_free_block
        seen = 0
        while block is not None and block is not queue.fake_free_list_tail and seen <= 2 * len(self.pool.blocks):
            count += block.block_hash is None
            seen += 1
            block = block.next_free_block
        return count

    def answer(self, over: list[Job]) -> tuple[set[str], Any]:
        """Stores by event; of loads, whom the last message names for the event."""
        loaded: set[str] = set()
        stored: dict[int, int] = {}
        for job in over:
            if job.direction == IN:
                loaded.update(self.names.get(job.number // 2, ()))
            else:
                stored[job.number // 2] = self.workers
        return loaded, self.messages.SimpleCPUOffloadWorkerMetadata(completed_store_events=stored) if stored else None


def _number(event: int, direction: str) -> int:
    # Loads and stores are counted apart.
    return 2 * event + (direction == IN)


def _pairs(sources: list[int], targets: list[int], direction: str) -> Pairs:
    if len(sources) != len(targets):
        raise Unsupported(f"a copy of {len(sources)} blocks into {len(targets)}")
    shift = (0, RESERVED) if direction == OUT else (RESERVED, 0)
    return tuple((src - shift[0], dst - shift[1]) for src, dst in zip(sources, targets, strict=True))
