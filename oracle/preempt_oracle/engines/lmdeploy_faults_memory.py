"""Faults of LMDeploy: its blocks, and what the workers are told of them. See `lmdeploy_faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
    from preempt_oracle.engines.lmdeploy_faults_parts import released
else:
    from faults import Fault, Injection
    from lmdeploy_faults_parts import released


def _leaks(into: Injection, loop: Any) -> None:
    allocator = loop.scheduler.block_manager.allocator

    def free(original: Any, seq: Any) -> Any:
        blocks = seq.logical_blocks.get_real_blocks().copy()
        if not len(blocks):
            return original(seq)
        into.acted()
        allocator.free(blocks[:-1])
        seq.logical_blocks.reset()
        return None

    into.wrap(loop.scheduler.block_manager, "free", free)


def _frees_twice(into: Injection, loop: Any) -> None:
    allocator = loop.scheduler.block_manager.allocator

    def free(original: Any, seq: Any) -> Any:
        blocks = seq.logical_blocks.get_real_blocks().copy()
        answer = original(seq)
        if len(blocks):
            into.acted()
            allocator.free(blocks[:1])
        return answer

    into.wrap(loop.scheduler.block_manager, "free", free)


def _hands_out_owned(into: Injection, loop: Any) -> None:
    def allocate(original: Any, seq: Any, *args: Any, **kwargs: Any) -> Any:
        before = len(seq.logical_blocks)
        answer = original(seq, *args, **kwargs)
        others = [q for q in loop.scheduler.seq_manager.get_all_sequences() if q is not seq and q.num_blocks]
        if len(seq.logical_blocks) > before and others:
            into.acted()
            seq.logical_blocks[before] = others[0].logical_blocks[0]
        return answer

    into.wrap(loop.scheduler.block_manager, "allocate", allocate)


def _forgets_to_grow(into: Injection, loop: Any) -> None:
    def allocate(original: Any, seq: Any, *args: Any, **kwargs: Any) -> Any:
        if seq.status is not loop.lib.status.RUNNING:
            return original(seq, *args, **kwargs)
        if seq.num_all_ids > seq.num_blocks * seq.block_size:
            into.acted()  # until then, its table has room for the token that comes
        return None

    into.wrap(loop.scheduler.block_manager, "allocate", allocate)


def _counts_one_too_many(into: Injection, loop: Any) -> None:
    def allocate(original: Any, seq: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(seq, *args, **kwargs)
        if seq.num_blocks:
            into.acted()
            loop.scheduler.block_manager.allocator.add_ref_count(seq.logical_blocks.get_real_blocks()[:1], 1)
        return answer

    into.wrap(loop.scheduler.block_manager, "allocate", allocate)


def _tells_another_table(into: Injection, loop: Any) -> None:
    def tables(original: Any, seqs: Any) -> Any:
        rows = [row.copy() for row in original(seqs)]
        for row in rows:
            if len(row) > 1:
                into.acted()
                row[-1] = row[0]
        return rows

    into.wrap(loop.scheduler, "get_block_tables", tables)


def _resumes_without_kv(into: Injection, loop: Any) -> None:
    had: dict[int, int] = {}

    def change(seq: Any, step: int, _: Any) -> None:
        had[seq.seq_id] = step

    def allocate(original: Any, seq: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(seq, *args, **kwargs)
        step = had.pop(seq.seq_id, 0)
        if step and seq.status is loop.lib.status.WAITING:
            into.acted()
            seq.set_step(step)
        return answer

    released(into, loop, change)
    into.wrap(loop.scheduler.block_manager, "allocate", allocate)


def _keeps_the_aborted(into: Injection, loop: Any) -> None:
    doomed: list[int] = []

    def stop(original: Any, session: int) -> Any:
        doomed.append(session)
        return original(session)

    def free(original: Any, seq: Any) -> Any:
        if seq.session_id not in doomed or not seq.num_blocks:
            return original(seq)
        into.acted()
        seq.logical_blocks.reset()
        return None

    into.wrap(loop.scheduler, "stop_session", stop)
    into.wrap(loop.scheduler.block_manager, "free", free)


MEMORY: tuple[Fault, ...] = (
    Fault(
        "leaks",
        "Takes back all blocks of a request but its last one.",
        ("pool/conserve",),
        _leaks,
        also=("edge/abort",),
        why="of a cancelled request the block is missing as well",
    ),
    Fault("frees-twice", "Takes the first block of a request back twice.", ("pool/free-once",), _frees_twice),
    Fault(
        "hands-out-owned",
        "Gives a request, as its first new block, one that another request has.",
        ("pool/conserve",),
        _hands_out_owned,
    ),
    Fault(
        "forgets-to-grow",
        "Never grows the table of a running request.",
        ("pool/capacity",),
        _forgets_to_grow,
    ),
    Fault(
        "counts-one-too-many",
        "Counts a reference on a request's first block that nobody has.",
        ("pool/refcount",),
        _counts_one_too_many,
    ),
    Fault(
        "tells-another-table",
        "Tells the workers of a table whose last block is its first.",
        ("resume/message",),
        _tells_another_table,
    ),
    Fault(
        "resumes-without-kv",
        "Prefills a victim from the step it had before its blocks were taken back.",
        ("resume/hit",),
        _resumes_without_kv,
    ),
    Fault(
        "keeps-the-aborted",
        "Never takes back the blocks of a request that was cancelled.",
        ("edge/abort",),
        _keeps_the_aborted,
        script=("abort",),
    ),
)
