"""Faults in the memory of continuous batching: KV that comes back wrong, or goes on wrong. See `faults`.

Each wraps the offloading manager or the batch's tensors, underneath what reads the digests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
else:
    from faults import Fault, Injection

ROUND_TRIP, STREAM = ("swap/round-trip",), ("output/stream",)


def _allocator(cb: Any) -> Any:
    (allocator,) = cb.cache.cache_allocators.values()
    return allocator


def _restored(batch: Any) -> list[Any]:
    return [f.state for f in batch if f.state.is_cpu_offloaded]


def _after_restore(into: Injection, cb: Any, spoil: Any, least: int = 1) -> None:
    """Do something to the blocks of a request that was just restored; `spoil` is given its blocks of before, too."""
    allocator = _allocator(cb)

    def restore(original: Any, batch: Any) -> Any:
        states = _restored(batch)
        old = allocator._copy_view.clone()
        answer = original(batch)
        for state in states:
            table = allocator.block_table[state.request_id]
            full = table[: -(-state.position_offset // allocator.tokens_per_page)]
            if len(full) >= least:
                into.acted()
                spoil(allocator, full, old, state)
        return answer

    into.wrap(cb.offloading_manager, "restore_scheduled_requests", restore)


def _wrong_block(into: Injection, cb: Any) -> None:
    def spoil(allocator: Any, table: list[int], old: Any, state: Any) -> None:
        view = allocator._copy_view
        first, second = view[table[0]].clone(), view[table[1]].clone()
        view[table[0]], view[table[1]] = second, first

    _after_restore(into, cb, spoil, 2)


def _last_block_forgotten(into: Injection, cb: Any) -> None:
    def spoil(allocator: Any, table: list[int], old: Any, state: Any) -> None:
        allocator._copy_view[table[-1]] = old[table[-1]]

    _after_restore(into, cb, spoil)


def _rows(allocator: Any, table: list[int]) -> list[int]:
    page, stride = allocator.tokens_per_page, allocator.block_physical_stride
    return [b * stride + i for b in table for i in range(page)]


def _layer_not_copied(into: Injection, cb: Any) -> None:
    def spoil(allocator: Any, table: list[int], old: Any, state: Any) -> None:
        last = max(allocator._kv_token_views)
        for view in allocator._kv_token_views[last]:
            view[_rows(allocator, table)] = 0

    _after_restore(into, cb, spoil)


def _values_not_copied(into: Injection, cb: Any) -> None:
    def spoil(allocator: Any, table: list[int], old: Any, state: Any) -> None:
        for _, values in allocator._kv_token_views.values():
            values[_rows(allocator, table)] = 0

    _after_restore(into, cb, spoil)


def _half_precision(into: Injection, cb: Any) -> None:
    def spoil(allocator: Any, table: list[int], old: Any, state: Any) -> None:
        for views in allocator._kv_token_views.values():
            for view in views:
                rows = _rows(allocator, table)
                view[rows] = view[rows].half().float()

    _after_restore(into, cb, spoil)


def _one_token_stale(into: Injection, cb: Any) -> None:
    def spoil(allocator: Any, table: list[int], old: Any, state: Any) -> None:
        at = _rows(allocator, table)[(state.position_offset - 1) // 2]
        for views in allocator._kv_token_views.values():
            for view in views:
                view[at] = view[at + 1 if at % allocator.tokens_per_page == 0 else at - 1]

    _after_restore(into, cb, spoil)


def _before_copied_out(into: Injection, cb: Any) -> None:
    manager = cb.offloading_manager
    late: list[Any] = []

    def offload(original: Any, victims: Any, tables: Any) -> Any:
        old = manager._cpu_tensor.clone()
        gone = original(victims, tables)
        if gone:
            late.append(manager._cpu_tensor.clone())
            manager._cpu_tensor.copy_(old)  # the copies are under way
        return gone

    def restore(original: Any, batch: Any) -> Any:
        if not _restored(batch):
            return original(batch)
        into.acted()
        answer = original(batch)
        if late:
            manager._cpu_tensor.copy_(late.pop())  # now they are done
            late.clear()
        return answer

    into.wrap(manager, "_offload_to_cpu", offload)
    into.wrap(manager, "restore_scheduled_requests", restore)


def _forgets_to_restore(into: Injection, cb: Any) -> None:
    def restore(original: Any, batch: Any) -> Any:
        view = _allocator(cb)._copy_view
        old = view.clone()
        answer = None
        if _restored(batch):
            into.acted()
            answer = original(batch)
            view.copy_(old)
            return answer
        return original(batch)

    into.wrap(cb.offloading_manager, "restore_scheduled_requests", restore)


def _wrong_position(into: Injection, cb: Any) -> None:
    def restore(original: Any, batch: Any) -> Any:
        states = _restored(batch)
        answer = original(batch)
        for state in states:
            if state.position_offset > 1:
                into.acted()
                state.position_offset -= 1
        return answer

    into.wrap(cb.offloading_manager, "restore_scheduled_requests", restore)


def _writes_nowhere(into: Injection, cb: Any) -> None:
    """The pass behind a restore writes its token's KV into the trash."""
    manager, io = cb.offloading_manager, cb.inputs_and_outputs
    back: list[str] = []

    def restore(original: Any, batch: Any) -> Any:
        back[:] = [s.request_id for s in _restored(batch)]
        return original(batch)

    def prepare(original: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        at = 0
        for future in io.requests_in_batch:
            if future.state.request_id in back:
                into.acted()
                io.write_index_storage[0, at : at + future.query_length] = _allocator(cb).write_trash_index
            at += future.query_length
        return answer

    into.wrap(manager, "restore_scheduled_requests", restore)
    into.wrap(io, "prepare_batch_tensors", prepare)


def _repeats_a_token(into: Injection, cb: Any) -> None:
    manager = cb.offloading_manager

    def offload(original: Any) -> Any:
        active = dict(cb.scheduler.active_requests)
        answer = original()
        for name, state in active.items():
            if state.is_cpu_offloaded and name not in cb.scheduler.active_requests and len(state.generated_tokens) > 1:
                into.acted()
                state.remaining_prefill_tokens = [state.generated_tokens[-2]]
        return answer

    into.wrap(manager, "offload_requests", offload)


#: Wrong KV makes wrong outputs, sooner or later: both rules speak of it.
FAULTS: tuple[Fault, ...] = (
    Fault("wrong-block", "Restores two blocks of a victim in each other's place.", ROUND_TRIP, _wrong_block, STREAM),
    Fault("last-block-forgotten", "Does not restore a victim's last block.", ROUND_TRIP, _last_block_forgotten, STREAM),
    Fault("layer-not-copied", "Copies all layers of a victim but the last.", ROUND_TRIP, _layer_not_copied, STREAM),
    Fault(
        "values-not-copied", "Copies the keys of a victim and not its values.", ROUND_TRIP, _values_not_copied, STREAM
    ),
    Fault("half-precision", "Keeps a victim's KV in half precision.", ROUND_TRIP, _half_precision, STREAM),
    Fault(
        "one-token-stale", "Restores the KV of another token in the place of one.", ROUND_TRIP, _one_token_stale, STREAM
    ),
    Fault(
        "before-copied-out",
        "Restores what stood in the host blocks before the copy to them was done.",
        ROUND_TRIP,
        _before_copied_out,
        STREAM,
    ),
    Fault(
        "forgets-to-restore",
        "Gives a victim its new blocks and copies nothing.",
        ROUND_TRIP,
        _forgets_to_restore,
        STREAM,
    ),
    Fault("wrong-position", "Goes on one position early behind a restore.", ROUND_TRIP, _wrong_position, also=STREAM),
    Fault(
        "writes-nowhere", "Loses the KV of the first token behind a restore.", STREAM, _writes_nowhere, also=ROUND_TRIP
    ),
    Fault("repeats-a-token", "Feeds a restored victim the token before its last.", STREAM, _repeats_a_token),
)
