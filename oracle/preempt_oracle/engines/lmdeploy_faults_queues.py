"""Faults of LMDeploy: its queues, and the tokens that come out. See `lmdeploy_faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
    from preempt_oracle.engines.lmdeploy_faults_parts import (
        decoded,
        demoted,
        kept_running,
        old,
        prefilled,
        room,
        turned,
    )
else:
    from faults import Fault, Injection
    from lmdeploy_faults_parts import decoded, demoted, kept_running, old, prefilled, room, turned


def _requeues_at_front(into: Injection, loop: Any) -> None:
    def change(seq: Any) -> None:
        first = min(other.arrive_time for other in loop.scheduler.waiting)
        if first < seq.arrive_time:
            into.acted()
            seq.arrive_time = first - 1

    demoted(into, loop, change)


def _loses_victim(into: Injection, loop: Any) -> None:
    def change(seq: Any) -> None:
        into.acted()
        loop.scheduler.seq_manager.get_sequences(loop.lib.status.WAITING).pop(seq.seq_id)

    demoted(into, loop, change)


def _admits_second_first(into: Injection, loop: Any) -> None:
    def schedule(ask: Callable[[], Any]) -> Any:
        waiting = sorted(loop.scheduler.waiting, key=lambda seq: seq.arrive_time)[:2]
        if len(waiting) < 2:
            return ask()
        first, second = waiting
        first.arrive_time, second.arrive_time = second.arrive_time, first.arrive_time
        answer = ask()
        first.arrive_time, second.arrive_time = second.arrive_time, first.arrive_time
        if answer.running:
            into.acted()
        return answer

    prefilled(into, loop, schedule)


def _reverses_running(into: Injection, loop: Any) -> None:
    flying = loop.lib.status[loop.flying]

    def activate(original: Any, batch: Any) -> Any:
        answer = original(batch)
        if len(loop.scheduler.seq_manager.get_sequences(flying)) > 1:
            into.acted()
            turned(loop, flying)
        return answer

    into.wrap(loop.scheduler, "lock_running" if old(loop) else "activate_seqs", activate)


def _skips_first(into: Injection, loop: Any) -> None:
    skipped: list[Any] = []

    def change(running: list[Any], mask: list[bool]) -> None:
        skipped.clear()
        if len(mask) > 1 and all(mask):
            into.acted()
            skipped.append(running[0])
            mask[0] = False

    decoded(into, loop, change)
    kept_running(into, loop, lambda seq: any(seq is other for other in skipped))


def _ignores_slots(into: Injection, loop: Any) -> None:
    def schedule(ask: Callable[[], Any]) -> Any:
        settings = loop.scheduler.scheduler_config
        slots, ran = settings.max_batches, loop.scheduler.num_running()
        settings.max_batches = slots + 1
        answer = ask()
        settings.max_batches = slots
        if ran + len(answer.running) > slots:
            into.acted()
        return answer

    prefilled(into, loop, schedule)


def _ignores_budget(into: Injection, loop: Any) -> None:
    def schedule(ask: Callable[[], Any]) -> Any:
        cache = loop.scheduler.cache_config
        budget = cache.max_prefill_token_num
        cache.max_prefill_token_num = 2 * budget
        answer = ask()
        cache.max_prefill_token_num = budget
        if sum(seq.num_token_ids for seq in answer.running) > budget:
            into.acted()
        return answer

    prefilled(into, loop, schedule)


def _never_resumes(into: Injection, loop: Any) -> None:
    def answer(seq: Any, ask: Callable[[], bool]) -> bool:
        if seq.status is loop.lib.status.WAITING and seq.num_new_tokens:
            into.acted()
            return False
        return ask()

    def inputs(original: Any, prefill: bool, *args: Any, **kwargs: Any) -> Any:
        waiting = sorted(loop.scheduler.waiting, key=lambda seq: seq.arrive_time)
        if not (prefill and waiting and waiting[0].num_new_tokens):
            return original(prefill, *args, **kwargs)
        into.acted()  # if nobody runs, a decode instead would end in an error
        return original(False, *args, **kwargs) if loop.scheduler.has_running() else None

    if old(loop):
        into.wrap(loop.engine, "_make_forward_inputs", inputs)
    else:
        room(into, loop, answer)


def _loses_token(into: Injection, loop: Any) -> None:
    def update(original: Any, *, running: Any, **kwargs: Any) -> Any:
        if len(running) > 1 and running[-1].status is loop.lib.status[loop.flying]:
            into.acted()
            return original(running=running[:-1], **kwargs)
        return original(running=running, **kwargs)

    into.wrap(loop.sequences, "update_running", update)


def _swaps_tokens(into: Injection, loop: Any) -> None:
    def update(original: Any, *, batched_outputs: Any, **kwargs: Any) -> Any:
        tokens = batched_outputs.next_token_ids
        if tokens.tolist() != tokens.tolist()[::-1]:
            into.acted()
            batched_outputs.next_token_ids = tokens.flip(0)
        return original(batched_outputs=batched_outputs, **kwargs)

    into.wrap(loop.sequences, "update_running", update)


def _ends_early(into: Injection, loop: Any) -> None:
    def update(original: Any, *, running: Any, batched_outputs: Any, **kwargs: Any) -> Any:
        for i, seq in enumerate(running):
            if seq.sampling_param.max_new_tokens - seq.num_new_tokens == 2:
                into.acted()
                batched_outputs.stopped[i] = True
        return original(running=running, batched_outputs=batched_outputs, **kwargs)

    into.wrap(loop.sequences, "update_running", update)


QUEUES: tuple[Fault, ...] = (
    Fault(
        "requeues-at-front",
        "Puts a victim before those who came before it.",
        ("queue/front",),
        _requeues_at_front,
    ),
    Fault("loses-victim", "Preempts a request and puts it in no queue.", ("queue/one-place",), _loses_victim),
    Fault(
        "admits-second-first",
        "Admits the second in the waiting queue before the first.",
        ("queue/order",),
        _admits_second_first,
    ),
    Fault(
        "reverses-running",
        "Turns its running queue round after each step.",
        ("queue/order",),
        _reverses_running,
    ),
    Fault(
        "skips-first",
        "Leaves the first running request out of a batch though it has room.",
        ("queue/visit-once",),
        _skips_first,
        also=("pool/all-or-nothing", "pool/conserve", "pool/refcount"),
        why="if it grew in that pass, its new blocks came without a grant",
    ),
    Fault("ignores-slots", "Admits one more request than there are slots.", ("queue/admission",), _ignores_slots),
    Fault("ignores-budget", "Admits up to twice the tokens of its budget.", ("queue/admission",), _ignores_budget),
    Fault(
        "never-resumes",
        "Never admits a request again that has emitted something.",
        ("live/progress",),
        _never_resumes,
    ),
    Fault("loses-token", "Drops the last token of a frame.", ("output/stream",), _loses_token),
    Fault(
        "swaps-tokens",
        "Hands the tokens of a frame to its requests in the wrong order.",
        ("output/stream",),
        _swaps_tokens,
    ),
    Fault("ends-early", "Ends a request one token before its length.", ("output/stream",), _ends_early),
)
