"""vLLM's own books, read and never touched: queues, free list, reference counts, tables.

Runs in the engine's Python (standard library only). Whatever is read here or wrapped in `vllm_watch` is checked to
exist first, so that a changed vLLM is a broken adapter and not an engine that looks clean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines import vllm_seams as seams
    from preempt_oracle.engines.child import Unsupported, require
    from preempt_oracle.engines.vllm_offload import Offload
else:
    import vllm_seams as seams
    from child import Unsupported, require

#: Pools of at most this many usable blocks are walked block by block in every step.
SMALL = 64


class Books:
    """One scheduler's queues and pool. Raises `Unsupported` if something that is read or wrapped is missing."""

    def __init__(self, scheduler: Any, traits: frozenset[str]) -> None:
        """`traits`: of its version, see `vllm_versions`."""
        _check(scheduler, traits)
        self.scheduler = scheduler
        self.manager = scheduler.kv_cache_manager
        self.pool = self.manager.block_pool
        (single,) = self.manager.coordinator.single_type_managers
        self.owned = single.req_to_blocks  # a defaultdict: read it with get(), or it grows
        self.small = len(self.pool.blocks) <= SMALL + 1
        self.past = 0  # preemptions of requests that are over
        self.offload: Offload | None = None  # whoever knows who loads, and what the host has free

    def free(self) -> int:
        """Free blocks as the pool counts them, evictable ones included."""
        return int(self.pool.free_block_queue.num_free_blocks)

    def waiting(self) -> list[Any]:
        """The requests that wait, in the order in which vLLM would look at them."""
        found: list[Any] = []
        for name in ("kv_holding_waiting", "skipped_waiting"):  # 0.31 and later; before that
            queue = getattr(self.scheduler, name, None)
            if queue:
                found += queue
        held_back = bool(found)
        found += seams.in_order(self.scheduler.waiting)
        if self.offload is not None:
            loading = {*self.offload.loading(), *self.offload.dying()}
            found = [request for request in found if request.request_id not in loading]
        if held_back and self.scheduler.policy.value == "priority":
            found.sort()  # the better head of the two queues comes next
        return found

    def place(self, request: Any) -> int | None:
        """Where a request waits, counted as in `waiting`; None if it does not."""
        for index, other in enumerate(self.waiting()):
            if other is request:
                return index
        return None

    def free_ids(self) -> list[int]:
        """The free list from front to back; a list that runs in circles is cut at twice the size of the pool."""
        found: list[int] = []
        block = self.pool.free_block_queue.fake_free_list_head.next_free_block
        end = self.pool.free_block_queue.fake_free_list_tail
        while block is not None and block is not end and len(found) <= 2 * len(self.pool.blocks):
            found.append(block.block_id)
            block = block.next_free_block
        return found

    def held(self, running: set[str], waiting: list[Any]) -> list[list[Any]]:
        """Who has blocks or computed tokens without running, requests that vLLM no longer knows included."""
        computed = {request.request_id: request.num_computed_tokens for request in waiting}
        found = [
            [name, len(blocks), computed.get(name, 0)]
            for name, blocks in self.owned.items()
            if blocks and name not in running
        ]
        if self.offload is not None:
            # Who loads holds memory, as is told of each load; who was cancelled meanwhile does until it is over.
            apart = {*self.offload.loading(), *self.offload.dying()}
            found = [entry for entry in found if entry[0] not in apart]
        names = {name for name, _, _ in found}
        return found + [[name, 0, tokens] for name, tokens in computed.items() if tokens and name not in names]

    def observed(self) -> dict[str, Any]:
        """The scheduler's own books, as an `observed` record."""
        waiting = self.waiting()
        running = [request.request_id for request in self.scheduler.running]
        record: dict[str, Any] = {
            "free": [self.free()],
            "running": running,
            "waiting": [request.request_id for request in waiting],
            "held": self.held(set(running), waiting),
        }
        if self.offload is not None:
            record["loading"] = self.offload.loading()
        if self.small:
            record["free_ids"] = [self.free_ids()]
            record["refs"] = [
                [0, block.block_id, block.ref_cnt]
                for block in self.pool.blocks
                if block.ref_cnt not in (0, 1) and not block.is_null
            ]
        return record

    def counted(self, admitted: list[str]) -> dict[str, Any]:
        """vLLM's own counters: preemptions since the start, and tokens it counts as cached for who comes first.

        Both are kept request by request; a preempted request's second prefill is not counted again.
        """
        requests = self.scheduler.requests
        first = [(name, requests[name]) for name in admitted if name in requests]
        return {
            # Who was cancelled while it loads is over, and still known until the load is.
            "preemptions": self.past + sum(r.num_preemptions for r in requests.values() if not r.is_finished()),
            "cached": [
                [name, request.prefill_stats.num_cached_tokens, request.prefill_stats.num_external_cached_tokens]
                for name, request in first
                if request.prefill_stats is not None and not request.num_preemptions
            ],
        }


def _check(scheduler: Any, traits: frozenset[str]) -> None:
    """Check that every attribute read or wrapped is there. Raises `Unsupported` naming the first that is missing."""
    require(scheduler, ("schedule", "update_from_output", "add_request", "finish_requests", "requests", "running"))
    require(scheduler, ("num_spec_tokens", "num_lookahead_tokens", "update_draft_token_ids"))
    require(scheduler, ("waiting", "max_model_len", "kv_cache_manager", "_free_request"))
    require(scheduler.kv_cache_manager, ("allocate_slots", "get_computed_blocks", "block_pool", "coordinator"))
    require(scheduler.kv_cache_manager.coordinator, ("single_type_managers",))
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    if len(managers) != 1:
        raise Unsupported(f"one KV cache group was asked for, the coordinator has {len(managers)}")
    require(managers[0], ("req_to_blocks",))
    pool = scheduler.kv_cache_manager.block_pool
    require(pool, ("blocks", "null_block", "free_block_queue", "free_blocks", "cache_full_blocks"))
    require(pool, ("_maybe_evict_cached_block", "reset_prefix_cache"))
    require(pool.free_block_queue, ("num_free_blocks", "fake_free_list_head", "fake_free_list_tail"))
    require(pool.null_block, ("block_id", "ref_cnt", "block_hash", "is_null", "next_free_block"))
    if pool.null_block.block_id != 0:
        raise Unsupported(f"the null block is block {pool.null_block.block_id}, not 0")
    for trait, owner, names in (
        ("preempt-method", scheduler, ("_preempt_request",)),
        ("reset", scheduler, ("reset_prefix_cache",)),
        ("v2-runner", scheduler, ("use_v2_model_runner",)),
        ("pause", scheduler, ("set_pause_state", "pause_state")),
        ("whole-fit", scheduler, ("scheduler_reserve_full_isl",)),
        ("watermark", scheduler.kv_cache_manager, ("watermark_blocks",)),
        ("cadence", scheduler, ("current_step",)),
        ("holding-queue", scheduler, ("kv_holding_waiting",)),
    ):
        if trait in traits:
            require(owner, names)
    if "preempt-method" not in traits:
        require(scheduler.kv_cache_manager, ("free",))
        require(scheduler.waiting, ("prepend_request",))
    require(scheduler.waiting, ("pop_request",))
    require(scheduler, ("scheduler_config", "max_num_scheduled_tokens", "policy"))
