"""Where a fault of LMDeploy takes hold: the same places in either generation, whose methods differ.

A fault (`lmdeploy_faults`) says what it changes there; `old` engines are those whose Loop is `lmdeploy_engine_old`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Injection
else:
    from faults import Injection


def old(loop: Any) -> bool:
    """Whether this is the engine of before its `inputs_maker`."""
    return hasattr(loop, "engine")


def demoted(into: Injection, loop: Any, change: Callable[[Any], None]) -> None:
    """`change(seq)` behind each preemption."""
    status = loop.lib.status

    def preempt(original: Any, seqs: Any) -> Any:
        seqs = list(seqs)
        ran = [seq for seq in seqs if seq.status is status.RUNNING]
        answer = original(seqs)
        for seq in ran:
            change(seq)
        return answer

    def turn(original: Any, seq: Any, new: Any) -> Any:
        ran = seq.status is status.RUNNING
        answer = original(seq, new)
        if ran and new is status.WAITING:
            change(seq)
        return answer

    into.wrap(loop.scheduler, *(("_set_message_status", turn) if old(loop) else ("preempt_seqs", preempt)))


def kept_running(into: Injection, loop: Any, stays: Callable[[Any], bool]) -> None:
    """Those who would be preempted and for whom `stays(seq)` holds are not."""
    status = loop.lib.status

    def preempt(original: Any, seqs: Any) -> Any:
        return original([seq for seq in seqs if not (seq.status is status.RUNNING and stays(seq))])

    def turn(original: Any, seq: Any, new: Any) -> Any:
        if seq.status is status.RUNNING and new is status.WAITING and stays(seq):
            return None
        return original(seq, new)

    into.wrap(loop.scheduler, *(("_set_message_status", turn) if old(loop) else ("preempt_seqs", preempt)))


def leave(loop: Any, seq: Any) -> None:
    """Preempt it, by the engine's own method."""
    if old(loop):
        loop.scheduler._set_message_status(seq, loop.lib.status.WAITING)
    else:
        loop.scheduler.preempt_seqs((seq,))


def decoded(into: Injection, loop: Any, change: Callable[[list[Any], list[bool]], None]) -> None:
    """`change(running, mask)` behind the pass of a decode over those who run; whose `mask` is false is in no batch."""

    def mask(original: Any, running: Any, *args: Any, **kwargs: Any) -> Any:
        valid = original(running, *args, **kwargs)
        change(running, valid)
        return valid

    def batch(original: Any, *args: Any, **kwargs: Any) -> Any:
        running = loop.scheduler.running
        served, *rest = original(*args, **kwargs)
        valid = [any(seq is other for other in served) for seq in running]
        change(running, valid)
        return [seq for seq, stays in zip(running, valid, strict=True) if stays], *rest

    into.wrap(loop.scheduler, *(("_schedule_decoding", batch) if old(loop) else ("schedule_running", mask)))


def turned(loop: Any, status: Any) -> None:
    """Reverse the books of those who are in this state."""
    books = loop.scheduler.seq_manager.get_sequences(status)
    items = list(books.items())[::-1]
    books.clear()
    books.update(items)


def room(into: Injection, loop: Any, answer: Callable[[Any, Callable[[], bool]], bool]) -> None:
    """`answer(seq, ask)` instead of the engine's answer, `ask()`, to whether there is room for `seq`."""

    def make_room(original: Any, seq: Any, *args: Any, **kwargs: Any) -> bool:
        return answer(seq, lambda: bool(original(seq, *args, **kwargs)))

    name = "evict_for_seq" if old(loop) else "try_make_capacity_for"
    into.wrap(loop.scheduler.eviction_helper, name, make_room)


def released(into: Injection, loop: Any, change: Callable[[Any, int, Any], None]) -> None:
    """`change(seq, step, blocks)` once a victim's memory was taken back: the step and the blocks that it had."""

    def had(seq: Any) -> tuple[int, Any]:
        return int(seq.num_history_ids), seq.logical_blocks.get_real_blocks().copy()

    def release(original: Any, seq: Any) -> Any:
        before = had(seq)
        answer = original(seq)
        if seq.status is loop.lib.status.WAITING:
            change(seq, *before)
        return answer

    def make_room(original: Any, seq: Any, evictable: Any, *args: Any, **kwargs: Any) -> Any:
        before = [(other, had(other)) for other in evictable]
        answer = original(seq, evictable, *args, **kwargs)
        for other, (step, blocks) in before:
            if len(blocks) and not other.num_blocks and other.status is loop.lib.status.WAITING:
                change(other, step, blocks)
        return answer

    if old(loop):
        into.wrap(loop.scheduler.eviction_helper, "evict_for_seq", make_room)
    else:
        into.wrap(loop.scheduler.sequence_lifecycle, "release_paging_resources", release)


def prefilled(into: Injection, loop: Any, schedule: Callable[[Callable[[], Any]], Any]) -> None:
    """`schedule(ask)` instead of the engine's choice, `ask()`, of whom to prefill."""

    def choose(original: Any, *args: Any, **kwargs: Any) -> Any:
        if old(loop) and not kwargs["is_prefill"]:
            return original(*args, **kwargs)
        return schedule(lambda: original(*args, **kwargs))

    into.wrap(loop.scheduler, "schedule", choose)
