"""vLLM's `OffloadingConnector`, scheduler role, between the real scheduler and a made-up worker (`vllm_copies`).

Runs in the engine's Python (standard library and vLLM only). The worker does what vLLM's does, in its order: what a
step's message asks to flush is over before the step's frame runs; loads begin with the frame; stores begin behind it.
Where each observation comes from:

* copies: the connector's metadata, as the worker gets it. A store that is flushed by the very message that asks for
  it is ordered before the frame: it is told as a `swap` of the request that gets one of its blocks.
* evictions: chunks whose key in the cache policy is another, or gone, behind a decision.
* free host blocks: the chunk pool's free list, which is another structure, plus those that this message asks to fill:
  the pool counts them as taken before their copies begin.
* who loads: vLLM's queue of waiting requests that hold blocks, and their status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines.child import Unsupported, require
    from preempt_oracle.engines.vllm_copies import IN, OUT, Copies, Pairs
else:
    from child import Unsupported, require
    from vllm_copies import IN, OUT, Copies, Pairs

Event = dict[str, Any]

#: What is told of a host tier on top of the device.
OBSERVES = ("copies", "host")
#: Why a waiting request is passed over for a younger one: see `Watch._matched`.
PENDING = "connector: a copy of its own, or of what it would load, is in flight"


class Offload:
    """One scheduler's connector and the worker behind it."""

    def __init__(self, scheduler: Any, page_size: int, host_blocks: int, seed: int) -> None:
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading import common
        from vllm.v1.outputs import KVConnectorOutput

        self.output = KVConnectorOutput
        require(common, ("OffloadingConnectorMetadata", "OffloadingWorkerMetadata"))
        self.messages = common
        self.scheduler = scheduler
        self.copies = Copies(page_size, seed)
        self.hits: dict[str, int] = {}  # who loads -> tokens of its prefix hit on the device
        require(scheduler, ("connector", "kv_holding_waiting", "finished_recving_kv_req_ids"))
        self.connector = scheduler.connector
        require(self.connector, ("connector_scheduler", "get_num_new_matched_tokens"))
        side = self.connector.connector_scheduler
        require(side, ("manager", "config"))
        require(side.config, ("blocks_per_chunk", "num_workers"))
        self.pool = side.manager
        require(self.pool, ("_policy", "_free_list", "_num_allocated_chunks", "_num_chunks"))
        self.policy = self.pool._policy
        require(self.policy, ("chunks",))
        if self.pool._num_chunks != host_blocks:
            raise Unsupported(f"vLLM made {self.pool._num_chunks} host chunks of what should be {host_blocks}")
        if side.config.blocks_per_chunk != 1 or side.config.num_workers != 1:
            raise Unsupported("the connector was set up for other chunks than blocks, or for several workers")
        self.chunks: dict[int, Any] = {}  # host block -> key, behind the last decision

    # -- what is seen ------------------------------------------------------------------------------------------------

    def loading(self) -> list[str]:
        """Who holds blocks that copies fill, or have filled since, and is not running yet.

        vLLM has them in a queue of their own, except who has loaded all it knows and that is one token: it is taken
        for one that has nothing yet, blocks or no blocks, and loads again (docs/findings.md).
        """
        found = [r.request_id for r in self.scheduler.kv_holding_waiting if not r.is_finished()]
        owned = self.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks
        again = [r.request_id for r in self.scheduler.waiting if r.request_id in self.hits and owned.get(r.request_id)]
        return found + [name for name in again if name not in found]

    def dying(self) -> set[str]:
        """Who was cancelled and keeps its blocks until its load is over."""
        live = self.scheduler.requests
        return {
            job.request
            for job in self.copies.jobs.values()
            if job.direction == IN and job.request in live and live[job.request].is_finished()
        }

    def keeps(self, request: str, table: Sequence[int]) -> list[int]:
        """Blocks of one who loads that no copy fills: a prefix hit's, or what it loaded before."""
        filled = {dst for job in self.copies.jobs.values() if job.request == request for _, dst in job.pairs}
        return [block for block in table if block not in filled]

    def _free(self) -> int:
        return int(len(self.pool._free_list) + self.pool._num_chunks - self.pool._num_allocated_chunks)

    def _evicted(self) -> list[int]:
        now = {chunk.chunk_id: key for key, chunk in self.policy.chunks.items()}
        gone = sorted(block for block, key in self.chunks.items() if now.get(block) != key)
        self.chunks = now
        return gone

    # -- a step ------------------------------------------------------------------------------------------------------

    def dispatch(
        self, frame: int, output: Any, sent: Sequence[Sequence[Any]], starts: Mapping[str, int], given: dict[int, str]
    ) -> tuple[list[Event], list[Event], list[Event], int]:
        """A message reaches the worker: copies over before its frame, acts, copies begun with it, free host blocks.

        `given`: blocks that somebody gets in this step, and who.
        """
        message = output.kv_connector_metadata
        if not isinstance(message, self.messages.OffloadingConnectorMetadata):
            raise Unsupported(f"the connector sends a {type(message).__name__}")
        flush = set(message.jobs_to_flush or ())
        tiers = self.copies.tiers
        earlier = [job.done() for number in sorted(flush) if (job := self.copies.finish(number, frame)) is not None]
        evicted = self._evicted()
        acts: list[Event] = [{"act": "evict", "blocks": evicted}] if evicted else []
        stores = {number: (job.req_id, _pairs(job)) for number, job in message.store_jobs.items()}
        ordered: set[int] = set()
        for number in sorted(flush & stores.keys()):
            name, pairs = stores[number]
            heir = next((given[src] for src, _ in pairs if src in given), None)
            if heir is None:
                continue  # nobody gets any of its blocks: that it is over first changes nothing
            ordered.add(number)
            self.copies.start(number, name, OUT, pairs, frame)
            self.copies.finish(number, frame)
            blocks = [[src, dst, 0] for src, dst in pairs]
            acts.append({"act": "swap", "request": heir, "direction": OUT, "blocks": blocks})
        tiers.hear(sent)
        scheduled = output.num_scheduled_tokens
        tiers.run({name: (starts[name], tokens) for name, tokens in scheduled.items() if name in starts}, self._prefix)
        later: list[Event] = []
        for number, load in message.load_jobs.items():
            if getattr(load, "sync", False):
                raise Unsupported("the connector loads synchronously, which was not asked for")
            later.append(self.copies.start(number, load.req_id, IN, _pairs(load), frame).started())
        filled = 0
        for number, (name, pairs) in stores.items():
            if number not in ordered:
                filled += len(pairs)
                later.append(self.copies.start(number, name, OUT, pairs, frame).started())
                if number in flush:
                    over = self.copies.finish(number, frame)
                    assert over is not None
                    later.append(over.done())
        return earlier, acts, later, self._free() + filled

    def _prefix(self, name: str, position: int) -> Any:
        request = self.scheduler.requests.get(name)
        tokens = None if request is None else request.all_token_ids
        if tokens is None or position >= len(tokens):
            return name, position  # not known yet: it equals nothing but itself
        return getattr(request, "cache_salt", None), tuple(tokens[: position + 1])

    def report(self, frame: int) -> tuple[Any, list[Event]]:
        """What the worker says with a frame's outputs, and what of it was not told yet."""
        over, fresh = self.copies.report(frame)
        said = self.messages.OffloadingWorkerMetadata()
        loaded: set[str] = set()
        for job in over:
            said.mark_completed(job.number)
            if job.direction == IN:
                loaded.add(job.request)
        output = self.output(
            finished_recving=loaded or None, kv_connector_worker_meta=said if said.completed_jobs else None
        )
        return output, [job.done() for job in fresh]


def _pairs(job: Any) -> Pairs:
    sources, targets = ([int(b) for b in spec.block_ids] for spec in (job.src_spec, job.dst_spec))
    if len(sources) != len(targets):
        raise Unsupported(f"a copy of {len(sources)} blocks into {len(targets)}")
    return tuple(zip(sources, targets, strict=True))
