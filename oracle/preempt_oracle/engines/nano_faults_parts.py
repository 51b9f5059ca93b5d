"""What the faults of nano-vllm-fork's scheduler share."""

from __future__ import annotations

from typing import Any


def decodes(scheduler: Any) -> bool:
    """Whether the next batch is a decode step, by the engine's own condition for a prefill."""
    if not scheduler.running or not scheduler.waiting:
        return bool(scheduler.running)
    head = scheduler.waiting[0]
    # Not `can_allocate`: it may be what a fault wraps.
    fits = len(scheduler.block_manager.free_block_ids) >= head.num_blocks
    return len(head) > scheduler.max_num_batched_tokens or not fits


def grows(scheduler: Any, seq: Any) -> bool:
    """Whether the next token of a running sequence needs a block."""
    return bool(len(seq) % scheduler.block_manager.block_size == 1)
