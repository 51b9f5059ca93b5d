"""Faults of nano-vllm-fork: its blocks and prefixes. See `nano_faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
    from preempt_oracle.engines.nano_faults_parts import grows
    from preempt_oracle.engines.nano_watch import TABLE
else:
    from faults import Fault, Injection
    from nano_faults_parts import grows
    from nano_watch import TABLE


def _leaks_of_victim(into: Injection, scheduler: Any) -> None:
    def deallocate(original: Any, seq: Any) -> Any:
        if seq.status.name == "WAITING" and seq.block_table:
            into.acted()
            seq.block_table.pop()
        return original(seq)

    into.wrap(scheduler.block_manager, "deallocate", deallocate)


def _leaks_at_finish(into: Injection, scheduler: Any) -> None:
    def deallocate(original: Any, seq: Any) -> Any:
        if seq.is_finished:
            into.acted()
            seq.block_table.pop()
        return original(seq)

    into.wrap(scheduler.block_manager, "deallocate", deallocate)


def _frees_twice(into: Injection, scheduler: Any) -> None:
    free = scheduler.block_manager.free_block_ids

    def deallocate(original: Any, seq: Any) -> Any:
        before = len(free)
        answer = original(seq)
        freed = len(free) - before
        # Not so few that the rest of this step would take the same block again: the engine does not survive that.
        if freed and (seq.is_finished or freed > len(scheduler.running)):
            into.acted()
            free.append(free[-1])
        return answer

    into.wrap(scheduler.block_manager, "deallocate", deallocate)


def _frees_shared(into: Injection, scheduler: Any) -> None:
    def deallocate(original: Any, seq: Any) -> Any:
        for block_id in seq.block_table:
            block = scheduler.block_manager.blocks[block_id]
            if block.ref_count > 1:
                into.acted()
                block.ref_count = 1
        return original(seq)

    into.wrap(scheduler.block_manager, "deallocate", deallocate)


def _crashes_freeing_twice(into: Injection, scheduler: Any) -> None:
    def deallocate_block(original: Any, block_id: int) -> Any:
        into.acted()
        original(block_id)
        return original(block_id)

    into.wrap(scheduler.block_manager, "_deallocate_block", deallocate_block)


def _counts_no_sharing(into: Injection, scheduler: Any) -> None:
    def allocate(original: Any, seq: Any) -> Any:
        answer = original(seq)
        for block_id in seq.block_table:
            block = scheduler.block_manager.blocks[block_id]
            if block.ref_count > 1:
                into.acted()
                block.ref_count -= 1
        return answer

    into.wrap(scheduler.block_manager, "allocate", allocate)


def _grows_by_nothing(into: Injection, scheduler: Any) -> None:
    def may_append(original: Any, seq: Any) -> Any:
        if grows(scheduler, seq):
            into.acted()
            return None
        return original(seq)

    into.wrap(scheduler.block_manager, "may_append", may_append)


def _stale_table(into: Injection, scheduler: Any) -> None:
    had: dict[int, list[int]] = {}
    manager = scheduler.block_manager

    def deallocate(original: Any, seq: Any) -> Any:
        had[seq.seq_id] = list(seq.block_table)
        return original(seq)

    def allocate(original: Any, seq: Any) -> Any:
        answer = original(seq)
        old, table = had.pop(seq.seq_id, []), seq.block_table
        last = len(table) - 1
        # Only where the old block is somebody else's by now, behind whatever was hit.
        if last < len(old) and old[last] in manager.used_block_ids and old[last] not in table:
            into.acted()
            table[last] = old[last]
        return answer

    into.wrap(manager, "deallocate", deallocate)
    into.wrap(manager, "allocate", allocate)


def _failed_admission_counts(into: Injection, scheduler: Any) -> None:
    manager = scheduler.block_manager

    def can_allocate(original: Any, seq: Any) -> Any:
        answer = original(seq)
        if not answer and not seq.num_cached_tokens and len(seq) > manager.block_size:
            into.acted()
            seq.num_cached_tokens = manager.block_size
        return answer

    into.wrap(manager, "can_allocate", can_allocate)


def _hits_too_far(into: Injection, scheduler: Any) -> None:
    manager = scheduler.block_manager

    def allocate(original: Any, seq: Any) -> Any:
        answer = original(seq)
        if seq.num_cached_tokens + manager.block_size < len(seq):
            into.acted()
            seq.num_cached_tokens += manager.block_size
        return answer

    into.wrap(manager, "allocate", allocate)


def _hits_everything(into: Injection, scheduler: Any) -> None:
    manager = scheduler.block_manager

    def allocate(original: Any, seq: Any) -> Any:
        answer = original(seq)
        if seq.num_cached_tokens and len(seq) - seq.num_cached_tokens == manager.block_size:
            into.acted()
            seq.num_cached_tokens = len(seq)
        return answer

    into.wrap(manager, "allocate", allocate)


def _swaps_hit_blocks(into: Injection, scheduler: Any) -> None:
    manager = scheduler.block_manager

    def allocate(original: Any, seq: Any) -> Any:
        answer = original(seq)
        table = seq.block_table
        if seq.num_cached_tokens >= 2 * manager.block_size:
            into.acted()
            table[0], table[1] = table[1], table[0]
        return answer

    into.wrap(manager, "allocate", allocate)


def _publishes_half_a_page(into: Injection, scheduler: Any) -> None:
    manager = scheduler.block_manager

    def allocate(original: Any, seq: Any) -> Any:
        answer = original(seq)
        if len(seq) % manager.block_size:
            into.acted()
            key = manager.compute_hash(seq.block(seq.num_blocks - 1))
            manager.hash_to_block_id[key] = seq.block_table[-1]
        return answer

    into.wrap(manager, "allocate", allocate)


def _swaps_running_table(into: Injection, scheduler: Any) -> None:
    def may_append(original: Any, seq: Any) -> Any:
        answer = original(seq)
        table = seq.block_table
        if len(table) > 2:
            into.acted()
            table[0], table[1] = table[1], table[0]
        return answer

    into.wrap(scheduler.block_manager, "may_append", may_append)


def _sends_old_table(into: Injection, scheduler: Any) -> None:
    had: dict[int, list[int]] = {}

    def preempt(original: Any, seq: Any) -> Any:
        had[seq.seq_id] = list(seq.block_table)
        return original(seq)

    def add(original: Any, seq: Any) -> Any:
        def getstate(original: Any) -> Any:
            state = original()
            old = had.pop(seq.seq_id, None)
            if old is None or old == state[TABLE]:
                return state
            into.acted()
            return (*state[:TABLE], old, *state[TABLE + 1 :])

        into.wrap(seq, "__getstate__", getstate)
        return original(seq)

    into.wrap(scheduler, "preempt", preempt)
    into.wrap(scheduler, "add", add)


MEMORY: tuple[Fault, ...] = (
    Fault(
        "leaks-of-victim",
        "Forgets the last block of a victim when it frees the others.",
        ("pool/conserve",),
        _leaks_of_victim,
    ),
    Fault("leaks-at-finish", "Forgets the last block of a request that is done.", ("pool/conserve",), _leaks_at_finish),
    Fault(
        "frees-twice", "Appends the last block of a request to the free list twice.", ("pool/free-once",), _frees_twice
    ),
    Fault("frees-shared", "Frees a block that another request still shares.", ("pool/free-once",), _frees_shared),
    Fault(
        "crashes-freeing-twice",
        "Frees each block a second time, which its own bookkeeping does not survive.",
        ("live/survives",),
        _crashes_freeing_twice,
    ),
    Fault(
        "counts-no-sharing",
        "Shares a block without counting the second reference.",
        ("pool/refcount",),
        _counts_no_sharing,
    ),
    Fault(
        "grows-by-nothing",
        "Grants a token that needs a new block without taking one.",
        ("pool/capacity",),
        _grows_by_nothing,
    ),
    Fault(
        "stale-table",
        "Resumes a request on the last block it had before, which is somebody else's by now.",
        ("pool/conserve",),
        _stale_table,
    ),
    Fault(
        "failed-admission-counts",
        "Counts a page as cached for a request that it then does not admit.",
        ("pool/all-or-nothing",),
        _failed_admission_counts,
    ),
    Fault("hits-too-far", "Counts a page as cached that was not found.", ("resume/hit",), _hits_too_far),
    Fault(
        "hits-everything",
        "Lets a hit cover the whole of a request: N6 again.",
        ("resume/hit",),
        _hits_everything,
        also=("output/stream",),
        why="nothing is left to compute, so that the same grant has no token to sample from",
    ),
    Fault(
        "swaps-hit-blocks",
        "Puts the blocks of a prefix hit into the table in the wrong order.",
        ("resume/provenance",),
        _swaps_hit_blocks,
    ),
    Fault(
        "publishes-half-a-page",
        "Makes a page findable that is not full yet.",
        ("resume/publish",),
        _publishes_half_a_page,
    ),
    Fault(
        "swaps-running-table",
        "Mixes up the table of a running request, which the model runner reads.",
        ("resume/message",),
        _swaps_running_table,
    ),
    Fault(
        "sends-old-table",
        "Tells the workers of other ranks the block table that a resumed request had before.",
        ("resume/message",),
        _sends_old_table,
    ),
)
