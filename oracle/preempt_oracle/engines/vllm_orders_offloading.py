"""`OffloadingConnector`: what it tells its worker, and its books on the host.

Runs in the engine's Python (standard library and vLLM only). A job per request and direction; the worker may end them
in any order. Evictions are chunks whose key in the cache policy is another, or gone, behind a decision; free host
blocks are the chunk pool's free list, which is another structure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines.child import Unsupported, require
    from preempt_oracle.engines.vllm_copies import IN, Job, Pairs
    from preempt_oracle.engines.vllm_orders import Order, Orders
else:
    from child import Unsupported, require
    from vllm_copies import IN, Job, Pairs
    from vllm_orders import Order, Orders


class OffloadingReader:
    """See `vllm_orders.Reader`."""

    in_order = False

    def __init__(self, connector: Any, host_blocks: int, workers: int) -> None:
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading import common

        require(common, ("OffloadingConnectorMetadata", "OffloadingWorkerMetadata"))
        self.messages = common
        require(connector, ("connector_scheduler",))
        side = connector.connector_scheduler
        require(side, ("manager", "config"))
        require(side.config, ("blocks_per_chunk", "num_workers"))
        self.pool = side.manager
        require(self.pool, ("_policy", "_free_list", "_num_allocated_chunks", "_num_chunks"))
        self.policy = self.pool._policy
        require(self.policy, ("chunks",))
        if self.pool._num_chunks != host_blocks:
            raise Unsupported(f"vLLM made {self.pool._num_chunks} host chunks of what should be {host_blocks}")
        if side.config.blocks_per_chunk != 1 or side.config.num_workers != workers:
            raise Unsupported(f"the connector was set up for other chunks than blocks, or not for {workers} workers")
        self.workers = workers
        self.chunks: dict[int, Any] = {}  # host block -> key, behind the last decision

    def orders(self, message: Any) -> Orders:
        """Jobs to load, to store and to flush."""
        if not isinstance(message, self.messages.OffloadingConnectorMetadata):
            raise Unsupported(f"the connector sends a {type(message).__name__}")
        if any(getattr(job, "sync", False) for job in message.load_jobs.values()):
            raise Unsupported("the connector loads synchronously, which was not asked for")
        loads, stores = (
            tuple(Order(number, (job.req_id,), _pairs(job)) for number, job in jobs.items())
            for jobs in (message.load_jobs, message.store_jobs)
        )
        return Orders(loads, stores, frozenset(message.jobs_to_flush or ()))

    def evicted(self, filled: Iterable[int]) -> list[int]:
        """The policy knows a chunk from the decision on that has it filled, whatever is `filled` by now."""
        now = {chunk.chunk_id: key for key, chunk in self.policy.chunks.items()}
        gone = sorted(block for block, key in self.chunks.items() if now.get(block) != key)
        self.chunks = now
        return gone

    def free(self) -> int:
        """Free chunks, and those that never were handed out."""
        return int(len(self.pool._free_list) + self.pool._num_chunks - self.pool._num_allocated_chunks)

    def answer(self, over: list[Job]) -> tuple[set[str], Any]:
        """Every job is reported by its number; a load by its request, too."""
        said = self.messages.OffloadingWorkerMetadata()
        loaded: set[str] = set()
        for job in over:
            said.completed_jobs[job.number] = self.workers
            if job.direction == IN:
                loaded.update(job.requests)
        return loaded, said if over else None


def _pairs(job: Any) -> Pairs:
    sources, targets = ([int(b) for b in spec.block_ids] for spec in (job.src_spec, job.dst_spec))
    if len(sources) != len(targets):
        raise Unsupported(f"a copy of {len(sources)} blocks into {len(targets)}")
    return tuple(zip(sources, targets, strict=True))
