"""What `nano_vllm_fork_child` mends with the option `repair`: the faults N1 to N6 of docs/findings.md, nothing else.

The methods of one scheduler and of its block manager are replaced, not their classes, before anything is observed of
them. Everything that was right stays the engine's own code and is called through its own methods: admission
(`schedule` up to its first batch), `can_allocate`, `can_append`, `may_append`, `preempt`, `deallocate`, `postprocess`.
"""

from __future__ import annotations

from typing import Any

#: What the header says was repaired.
ASSUMES = (
    "decode steps take the last running sequence not yet served as the victim, and take it out of running "
    "(repaired by the adapter)",
    "a prefix hit leaves a token to compute (repaired by the adapter)",
)


def repair(scheduler: Any) -> None:
    """Mend `scheduler`, freshly built, for sequences without a guidance pair (the adapter makes no others).

    The decode pass is the profile's (its sources name nano-vllm, of which this is a fork): it works on the running
    queue itself. The fork walks over a copy and takes its victims from the copy's front (N1), so that they stay in
    running (N2), are decoded with the table they lost (N3), are prefilled and decoded at once (N4), or leave a batch
    of nobody (N5). Only the pass had to change: with the victim out of running the other three cannot happen. The
    result decides step by step as nano-vllm 498f5a1 does, the last commit with this interface, where no prefix is
    shared.
    """
    manager = scheduler.block_manager
    schedule, allocate = scheduler.schedule, manager.allocate

    def scheduling() -> tuple[list[Any], bool]:
        head = scheduler.waiting[0] if scheduler.waiting else None
        # The condition on which the engine's own pass starts a prefill; then it never comes to its decode pass.
        if head is not None and len(head) <= scheduler.max_num_batched_tokens and manager.can_allocate(head):
            answer: tuple[list[Any], bool] = schedule()
            return answer
        return decode(), False

    def decode() -> list[Any]:
        batch: list[Any] = []
        turn = scheduler.running  # whose turn is still to come; who was served goes back to the front at the end
        while turn and len(batch) < scheduler.max_num_seqs:
            seq = turn.popleft()
            victim = None
            while victim is not seq and not manager.can_append(seq):
                victim = turn.pop() if turn else seq
                scheduler.preempt(victim)
            if victim is not seq:
                manager.may_append(seq)
                batch.append(seq)
        turn.extendleft(reversed(batch))
        return batch

    def allocating(seq: Any) -> Any:
        # N6: the engine counts a hit on every page, the last one included, and then has no token left to sample from.
        # nano-vllm bb823b3 never looks for the last page.
        # A page it cannot find is computed again, and found under its new block from now on.
        if len(seq) % manager.block_size == 0:
            key = -1
            for index in range(seq.num_blocks):
                key = manager.compute_hash(seq.block(index), key)
            manager.hash_to_block_id.pop(key, None)
        return allocate(seq)

    scheduler.schedule, manager.allocate = scheduling, allocating
