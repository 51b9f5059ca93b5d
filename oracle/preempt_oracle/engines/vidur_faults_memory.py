"""Faults of Vidur: its count of blocks. See `vidur_faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
    from preempt_oracle.engines.vidur_faults_parts import restarted
else:
    from faults import Fault, Injection
    from vidur_faults_parts import restarted


def _leaks_of_victim(into: Injection, engine: Any) -> None:
    scheduler, victims = engine.scheduler, restarted(into, engine)

    def free(original: Any, *ids: int) -> Any:
        answer = original(*ids)
        if victims and victims[-1].id in ids:
            into.acted()
            scheduler._num_allocated_blocks += 1
        return answer

    into.wrap(scheduler, "free", free)


def _leaks_at_finish(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    def on_batch_end(original: Any, batch: Any) -> Any:
        done = [request for request in batch.requests if request.completed]
        answer = original(batch)
        if done:
            into.acted()
            scheduler._num_allocated_blocks += 1
        return answer

    into.wrap(scheduler, "on_batch_end", on_batch_end)


def _frees_twice(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    def free(original: Any, *ids: int) -> Any:
        answer = original(*ids)
        if scheduler._num_allocated_blocks:  # below zero it would fail its own assertion
            into.acted()
            scheduler._num_allocated_blocks -= 1
        return answer

    into.wrap(scheduler, "free", free)


def _crashes_freeing_twice(into: Injection, engine: Any) -> None:
    def free(original: Any, *ids: int) -> Any:
        into.acted()
        original(*ids)
        return original(*ids)

    into.wrap(engine.scheduler, "free", free)


def _forgets_to_count(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    def allocate(original: Any, request_id: int, blocks: int) -> Any:
        answer = original(request_id, blocks)
        # With nobody behind it: whoever came next would be admitted into blocks that are not there.
        if blocks > 1 and not scheduler._request_queue:
            into.acted()
            scheduler._num_allocated_blocks -= 1
        return answer

    into.wrap(scheduler, "allocate", allocate)


def _grows_into_a_full_pool(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    def can_allocate(original: Any, request: Any) -> bool:
        if request.id in scheduler._allocation_map:
            room = scheduler._allocation_map[request.id] * scheduler._cache_config.block_size
            if not original(request) and request.num_processed_tokens > room:
                into.acted()
            return True
        return bool(original(request))

    into.wrap(scheduler, "_can_allocate_request", can_allocate)


def _grows_by_nothing(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    def allocate(original: Any, request_id: int, blocks: int) -> Any:
        if request_id in scheduler._allocation_map:
            into.acted()
            return None
        return original(request_id, blocks)

    into.wrap(scheduler, "allocate", allocate)


def _failed_admission_keeps_a_block(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    def can_allocate(original: Any, request: Any) -> Any:
        answer = original(request)
        if not answer and request.id not in scheduler._allocation_map:
            into.acted()
            scheduler._allocation_map[request.id] = 1
        return answer

    into.wrap(scheduler, "_can_allocate_request", can_allocate)


MEMORY: tuple[Fault, ...] = (
    Fault("leaks-of-victim", "Credits one block too few when it frees a victim.", ("pool/conserve",), _leaks_of_victim),
    Fault(
        "leaks-at-finish",
        "Counts one more block as allocated after a request is done.",
        ("pool/conserve",),
        _leaks_at_finish,
    ),
    Fault("frees-twice", "Credits a block of each freed request twice.", ("pool/free-once",), _frees_twice),
    Fault(
        "crashes-freeing-twice",
        "Frees a request a second time, which its own bookkeeping does not survive.",
        ("live/survives",),
        _crashes_freeing_twice,
    ),
    Fault(
        "forgets-to-count",
        "Forgets one block in its count when it allocates several.",
        ("pool/conserve",),
        _forgets_to_count,
    ),
    Fault(
        "grows-into-a-full-pool",
        "Lets a running request grow whether or not a block is free.",
        ("live/survives",),
        _grows_into_a_full_pool,
    ),
    Fault(
        "grows-by-nothing",
        "Grants a token that needs a new block without allocating one.",
        ("pool/capacity",),
        _grows_by_nothing,
    ),
    Fault(
        "failed-admission-keeps-a-block",
        "Notes a block for a request that it then does not admit.",
        ("pool/all-or-nothing",),
        _failed_admission_keeps_a_block,
    ),
)
