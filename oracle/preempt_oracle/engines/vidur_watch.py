"""Looks into one Vidur scheduler while it works: who grew, who was preempted for whom, what came back.

Runs in the engine's Python, next to `vidur_child`. Bound methods of one scheduler and of its requests are wrapped, so
that a fault injected into Vidur's classes stays underneath and is seen.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.child import Reply, require
else:
    from child import Reply, require


def load() -> types.SimpleNamespace:
    """Import Vidur without its execution-time predictors, which would pull in scikit-learn, pandas and wandb."""
    name = "vidur.execution_time_predictor"
    if name not in sys.modules:
        package = types.ModuleType(name)
        package.__path__ = []
        base = types.ModuleType(name + ".base_execution_time_predictor")
        for module in (package, base):
            module.BaseExecutionTimePredictor = object  # type: ignore[attr-defined]
        package.ExecutionTimePredictorRegistry = object  # type: ignore[attr-defined]
        sys.modules[package.__name__] = package
        sys.modules[base.__name__] = base
    from vidur.config import CacheConfig, VllmSchedulerConfig
    from vidur.entities import Request
    from vidur.scheduler.replica_scheduler import base_replica_scheduler
    from vidur.scheduler.replica_scheduler.vllm_replica_scheduler import VLLMReplicaScheduler

    require(VLLMReplicaScheduler, ("on_schedule", "on_stage_end", "on_batch_end", "add_request", "free"))
    require(VLLMReplicaScheduler, ("_can_allocate_request", "_allocate_request", "_get_next_batch"))
    require(Request, ("restart", "completed", "is_prefill_complete", "num_prefill_tokens", "num_processed_tokens"))
    require(base_replica_scheduler, ("MemoryPlanner",))
    return types.SimpleNamespace(
        scheduler=VLLMReplicaScheduler,
        base=base_replica_scheduler,
        request=Request,
        cache=CacheConfig,
        limits=VllmSchedulerConfig,
    )


class Live:
    """A request the harness may still name: Vidur's object, its length, and the made-up ids of its blocks."""

    def __init__(self, name: str, inner: Any) -> None:
        self.name = name
        self.inner = inner
        self.table: list[int] = []

    def computed(self) -> int:
        """Tokens whose KV is resident, in our terms (see the module's docstring)."""
        processed = int(self.inner.num_processed_tokens)
        return processed - 1 if self.inner.is_prefill_complete else processed


class Watch:
    """The acts and block deltas of one step of `scheduler`, and the made-up ids of its blocks.

    `repair`: reset the stage counter that `Request.restart` forgets.
    """

    def __init__(self, scheduler: Any, blocks: int, repair: bool) -> None:
        self.scheduler = scheduler
        self.repair = repair
        self.by_id: dict[int, Live] = {}  # Vidur's id -> request
        self.owners = [0] * blocks  # of the made-up ids
        self.scheduling = False
        self.begin()
        self._hook()

    def begin(self) -> None:
        """A step or a delivery begins: forget the one before."""
        self.acts: list[Reply] = []
        self.deltas: list[list[Any]] = []
        self.returned: dict[str, list[int]] = {}  # what came back outside of a step: finishes
        self.granted = 0
        self.lacking: Live | None = None  # whom the scheduler last asked about, unless there was room for it
        self.victim: Live | None = None

    def schedule(self, time: int) -> Any:
        """Ask the scheduler for a batch; None if it makes none."""
        self.scheduling = True
        try:
            batch = self.scheduler.on_schedule(time)
            self._place_victim()
        finally:
            self.scheduling = False
        return batch

    def free(self) -> int:
        """Free blocks by the scheduler's own counter."""
        return int(self.scheduler._cache_config.num_blocks - self.scheduler._num_allocated_blocks)

    def _hook(self) -> None:
        scheduler = self.scheduler
        can_allocate, allocate, free = scheduler._can_allocate_request, scheduler._allocate_request, scheduler.free

        def asking(inner: Any) -> Any:
            self._place_victim()
            self.lacking = self.by_id.get(inner.id)  # while it is asked, too: the engine may preempt before it answers
            answer = can_allocate(inner)
            if answer:
                self.lacking = None
            return answer

        def allocating(inner: Any) -> Any:
            before = scheduler._allocation_map.get(inner.id, 0)
            answer = allocate(inner)
            self._grow(self.by_id[inner.id], scheduler._allocation_map.get(inner.id, 0) - before)
            self.granted += 1  # `_get_next_batch` adds the grant right behind this call
            return answer

        def freeing(*ids: int) -> Any:
            before = scheduler._num_allocated_blocks
            answer = free(*ids)
            taken = before - scheduler._num_allocated_blocks
            for inner_id in ids:
                live = self.by_id[inner_id]
                # One id per call in this version; of several, each is credited with its table as far as the sum goes.
                share = taken if len(ids) == 1 else min(taken, len(live.table))
                taken -= share
                self._released(live, share)
            return answer

        scheduler._can_allocate_request = asking
        scheduler._allocate_request = allocating
        scheduler.free = freeing

    def watch(self, live: Live) -> None:
        """Follow a request from now on."""
        self.by_id[live.inner.id] = live
        inner, restart = live.inner, live.inner.restart

        def restarting() -> Any:
            # Somebody runs if and only if the map has it; a running request asks for one block, grown or not.
            grows = self.lacking is None or self.lacking.inner.id in self.scheduler._allocation_map
            need = {"need": 1} if grows else {}
            served = [] if self.lacking is None else [self.lacking.name]
            cause = "growth" if grows else "admission"
            self._act("demote", live, cause=cause, beneficiaries=served, **need, supply=self.free())
            answer = restart()
            if self.repair:
                inner._num_stage_processed_tokens = 0
                inner._is_prefill_stage_complete = False
            self.victim = live
            return answer

        inner.restart = restarting

    def _grow(self, live: Live, count: int) -> None:
        if count > 0:
            taken = [self._take() for _ in range(count)]
            live.table += taken
            self.deltas.append([live.name, 0, taken])

    def _take(self) -> int:
        """The lowest free id. Were Vidur to hand out more blocks than there are, two would have to be the same one."""
        block = min(range(len(self.owners)), key=lambda block: (self.owners[block], block))
        self.owners[block] += 1
        return block

    def _released(self, live: Live, count: int) -> None:
        """`count` blocks came back from `live`: normally its whole table; a repeated id if it was more than that."""
        table = live.table
        back = table[:count] if count <= len(table) else [table[i % len(table)] for i in range(count)] if table else []
        for block in table:
            self.owners[block] -= 1
        live.table = []
        if self.scheduling:
            self._act("release", live, blocks=[back], computed=live.computed())
        else:
            self.returned[live.name] = back

    def _place_victim(self) -> None:
        """The scheduler has moved on from a victim: see where it put it. Nothing else enters the queue meanwhile."""
        live, self.victim = self.victim, None
        if live is None:
            return
        for index, inner in enumerate(self.scheduler._request_queue):
            if inner is live.inner:
                self._act("requeue", live, queue="waiting", index=index, known=inner.num_prefill_tokens)
                return

    def _act(self, act: str, live: Live, **fields: Any) -> None:
        self.acts.append({"act": act, "request": live.name, "after": self.granted, **fields})
