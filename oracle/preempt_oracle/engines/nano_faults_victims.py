"""Faults of nano-vllm-fork: whom it preempts, why, and what becomes of it. See `nano_faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
    from preempt_oracle.engines.nano_faults_parts import decodes, grows
else:
    from faults import Fault, Injection
    from nano_faults_parts import decodes, grows


def _wrong_victim(into: Injection, scheduler: Any) -> None:
    def preempt(original: Any, seq: Any) -> Any:
        if not scheduler.running:  # nobody else is left to take
            return original(seq)
        into.acted()
        scheduler.running.append(seq)
        return original(scheduler.running.popleft())

    into.wrap(scheduler, "preempt", preempt)


def _needless(into: Injection, scheduler: Any) -> None:
    def can_append(original: Any, seq: Any) -> bool:
        if original(seq) and scheduler.running and not scheduler.block_manager.free_block_ids:
            into.acted()
            return False
        return bool(original(seq))

    into.wrap(scheduler.block_manager, "can_append", can_append)


def _one_too_many(into: Injection, scheduler: Any) -> None:
    made_room: list[Any] = []  # whether somebody was preempted for the sequence that is asked about

    def preempt(original: Any, seq: Any) -> Any:
        made_room.append(seq)
        return original(seq)

    def can_append(original: Any, seq: Any) -> bool:
        if original(seq) and len(made_room) == 1:
            into.acted()
            return False
        return bool(original(seq))

    def may_append(original: Any, seq: Any) -> Any:
        made_room.clear()
        return original(seq)

    def schedule(original: Any) -> Any:
        made_room.clear()
        return original()

    into.wrap(scheduler, "preempt", preempt)
    into.wrap(scheduler, "schedule", schedule)
    into.wrap(scheduler.block_manager, "can_append", can_append)
    into.wrap(scheduler.block_manager, "may_append", may_append)


def _starves(into: Injection, scheduler: Any) -> None:
    def schedule(original: Any) -> Any:
        before = list(scheduler.running)
        free = len(scheduler.block_manager.free_block_ids)
        stuck = [seq for seq in before if grows(scheduler, seq)]
        # Somebody must be left to serve, and the batch must have room for all: else not growing is explained.
        if not decodes(scheduler) or free or not 0 < len(stuck) < len(before) <= scheduler.max_num_seqs:
            return original()
        into.acted()
        for seq in stuck:
            scheduler.running.remove(seq)
        answer = original()
        scheduler.running.clear()
        scheduler.running.extend(before)
        return answer

    into.wrap(scheduler, "schedule", schedule)


def _for_admission(into: Injection, scheduler: Any) -> None:
    asked: list[Any] = []

    def can_allocate(original: Any, seq: Any) -> Any:
        answer = original(seq)
        asked.append(seq)
        if len(asked) == 1 and not answer and scheduler.running:  # the first in this step: nobody has a grant yet
            into.acted()
            scheduler.preempt(scheduler.running.pop())
        return answer

    def schedule(original: Any) -> Any:
        asked.clear()
        return original()

    into.wrap(scheduler.block_manager, "can_allocate", can_allocate)
    into.wrap(scheduler, "schedule", schedule)


def _for_nobody(into: Injection, scheduler: Any) -> None:
    def may_append(original: Any, seq: Any) -> Any:
        answer = original(seq)
        # Somebody is left, it could go on, and the last of them is sent away "to keep a block in reserve".
        if scheduler.running and not scheduler.block_manager.free_block_ids:
            into.acted()
            scheduler.preempt(scheduler.running.pop())
        return answer

    into.wrap(scheduler.block_manager, "may_append", may_append)


def _keeps_computed(into: Injection, scheduler: Any) -> None:
    def deallocate(original: Any, seq: Any) -> Any:
        had = seq.num_cached_tokens
        answer = original(seq)
        if had and seq.status.name == "WAITING":
            into.acted()
            seq.num_cached_tokens = had
        return answer

    into.wrap(scheduler.block_manager, "deallocate", deallocate)


def _keeps_table(into: Injection, scheduler: Any) -> None:
    def deallocate(original: Any, seq: Any) -> Any:
        had = list(seq.block_table)
        answer = original(seq)
        if seq.status.name == "WAITING":
            into.acted()
            seq.block_table.extend(had)
        return answer

    into.wrap(scheduler.block_manager, "deallocate", deallocate)


def _forgets_outputs(into: Injection, scheduler: Any) -> None:
    def preempt(original: Any, seq: Any) -> Any:
        answer = original(seq)
        if seq.num_completion_tokens:
            into.acted()
            del seq.token_ids[seq.num_prompt_tokens :]
            seq.num_tokens, seq.last_token = seq.num_prompt_tokens, seq.token_ids[-1]
        return answer

    into.wrap(scheduler, "preempt", preempt)


def _keeps_grant(into: Injection, scheduler: Any) -> None:
    kept: list[Any] = []

    def preempt(original: Any, seq: Any) -> Any:
        answer = original(seq)
        if not scheduler.running:  # it preempted itself: it is taken out of waiting again, and served all the same
            scheduler.waiting.remove(seq)
            kept.append(seq)
        return answer

    def schedule(original: Any) -> Any:
        kept.clear()
        batch, prefill = original()
        for seq in kept:
            into.acted()
            scheduler.running.append(seq)
            batch.append(seq)
        return batch, prefill

    into.wrap(scheduler, "preempt", preempt)
    into.wrap(scheduler, "schedule", schedule)


VICTIMS: tuple[Fault, ...] = (
    Fault(
        "wrong-victim",
        "Preempts the next request in order instead of the last: N1 again.",
        ("victim/choice",),
        _wrong_victim,
    ),
    Fault(
        "needless",
        "Preempts unless a block is free, although the next token fits in one the request has.",
        ("victim/necessity",),
        _needless,
    ),
    Fault(
        "one-too-many", "Takes a second victim though the first made room enough.", ("victim/minimal",), _one_too_many
    ),
    Fault(
        "starves",
        "Passes over running requests that cannot grow instead of preempting for them.",
        ("victim/duty",),
        _starves,
    ),
    Fault(
        "for-admission",
        "Preempts a running request because a waiting one does not fit.",
        ("victim/trigger",),
        _for_admission,
    ),
    Fault(
        "for-nobody",
        "Preempts a running request because the pool is full, though nobody asked for a block.",
        ("victim/trigger",),
        _for_nobody,
    ),
    Fault(
        "keeps-computed",
        "Frees a victim's blocks and goes on counting its cached tokens.",
        ("victim/reset",),
        _keeps_computed,
    ),
    Fault(
        "keeps-table", "Frees a victim's blocks and leaves them in its block table.", ("victim/reset",), _keeps_table
    ),
    Fault("forgets-outputs", "Cuts a victim back to its prompt.", ("victim/keep-tokens",), _forgets_outputs),
    Fault(
        "keeps-grant",
        "Serves a request that has just preempted itself.",
        ("victim/unplan",),
        _keeps_grant,
        also=("pool/capacity", "queue/admission"),
        why="its blocks are gone and it stands among those that wait: the very grant has no room, and admits it again",
    ),
)
