"""Faults of nano-vllm-fork: its queues, and the tokens that come out. See `nano_faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
    from preempt_oracle.engines.nano_faults_parts import decodes
else:
    from faults import Fault, Injection
    from nano_faults_parts import decodes


def _requeues_at_back(into: Injection, scheduler: Any) -> None:
    def preempt(original: Any, seq: Any) -> Any:
        answer = original(seq)
        if len(scheduler.waiting) > 1:
            into.acted()
            scheduler.waiting.rotate(-1)
        return answer

    into.wrap(scheduler, "preempt", preempt)


def _keeps_in_running(into: Injection, scheduler: Any) -> None:
    victims: list[Any] = []

    def preempt(original: Any, seq: Any) -> Any:
        victims.append(seq)
        return original(seq)

    def schedule(original: Any) -> Any:
        victims.clear()
        answer = original()
        for seq in victims:
            into.acted()
            scheduler.running.append(seq)
        return answer

    into.wrap(scheduler, "preempt", preempt)
    into.wrap(scheduler, "schedule", schedule)


def _loses_victim(into: Injection, scheduler: Any) -> None:
    def preempt(original: Any, seq: Any) -> Any:
        into.acted()
        answer = original(seq)
        scheduler.waiting.remove(seq)
        return answer

    into.wrap(scheduler, "preempt", preempt)


def _loses_arrival(into: Injection, scheduler: Any) -> None:
    def add(original: Any, seq: Any) -> Any:
        if scheduler.waiting:
            into.acted()
            return None
        return original(seq)

    into.wrap(scheduler, "add", add)


def _admits_second_first(into: Injection, scheduler: Any) -> None:
    manager, waiting = scheduler.block_manager, scheduler.waiting

    def schedule(original: Any) -> Any:
        if len(waiting) < 2:
            return original()
        first, second = waiting[0], waiting[1]
        if len(second) > scheduler.max_num_batched_tokens or len(manager.free_block_ids) < second.num_blocks:
            return original()
        into.acted()
        waiting[0], waiting[1] = second, first
        return original()

    into.wrap(scheduler, "schedule", schedule)


def _reverses_running(into: Injection, scheduler: Any) -> None:
    def schedule(original: Any) -> Any:
        answer = original()
        if len(scheduler.running) > 1:
            into.acted()
            scheduler.running.reverse()
        return answer

    into.wrap(scheduler, "schedule", schedule)


def _skips_last(into: Injection, scheduler: Any) -> None:
    def schedule(original: Any) -> Any:
        running, slots = len(scheduler.running), scheduler.max_num_seqs
        # With a free block for everybody, so that nothing else explains why one gets none.
        if not decodes(scheduler) or not 1 < running <= min(slots, len(scheduler.block_manager.free_block_ids)):
            return original()
        into.acted()
        scheduler.max_num_seqs = running - 1
        answer = original()
        scheduler.max_num_seqs = slots
        return answer

    into.wrap(scheduler, "schedule", schedule)


def _serves_twice(into: Injection, scheduler: Any) -> None:
    def schedule(original: Any) -> Any:
        batch, prefill = original()
        if batch and not prefill:
            into.acted()
            batch.append(batch[0])
        return batch, prefill

    into.wrap(scheduler, "schedule", schedule)


def _ignores_budget(into: Injection, scheduler: Any) -> None:
    def schedule(original: Any) -> Any:
        budget = scheduler.max_num_batched_tokens
        scheduler.max_num_batched_tokens = 2 * budget
        batch, prefill = original()
        scheduler.max_num_batched_tokens = budget
        if prefill and sum(len(seq) - seq.num_cached_tokens for seq in batch) > budget:
            into.acted()
        return batch, prefill

    into.wrap(scheduler, "schedule", schedule)


def _ignores_slots(into: Injection, scheduler: Any) -> None:
    def schedule(original: Any) -> Any:
        if decodes(scheduler):
            return original()
        slots = scheduler.max_num_seqs
        scheduler.max_num_seqs = slots + 1
        batch, prefill = original()
        scheduler.max_num_seqs = slots
        if prefill and len(batch) > slots:
            into.acted()
        return batch, prefill

    into.wrap(scheduler, "schedule", schedule)


def _never_resumes(into: Injection, scheduler: Any) -> None:
    def can_allocate(original: Any, seq: Any) -> Any:
        if seq.num_completion_tokens:
            into.acted()
            return False
        return original(seq)

    into.wrap(scheduler.block_manager, "can_allocate", can_allocate)


def _loses_token(into: Injection, scheduler: Any) -> None:
    def postprocess(original: Any, seqs: Any, token_ids: Any) -> Any:
        if len(seqs) > 1:
            into.acted()
            return original(seqs[:-1], token_ids[:-1])
        return original(seqs, token_ids)

    into.wrap(scheduler, "postprocess", postprocess)


def _repeats_token(into: Injection, scheduler: Any) -> None:
    def postprocess(original: Any, seqs: Any, token_ids: Any) -> Any:
        if seqs[0].max_tokens - seqs[0].num_completion_tokens > 1:
            into.acted()
            seqs[0].append_token(token_ids[0])
        return original(seqs, token_ids)

    into.wrap(scheduler, "postprocess", postprocess)


def _swaps_tokens(into: Injection, scheduler: Any) -> None:
    def postprocess(original: Any, seqs: Any, token_ids: Any) -> Any:
        turned = list(reversed(token_ids))
        if turned != list(token_ids):
            into.acted()
        return original(seqs, turned)

    into.wrap(scheduler, "postprocess", postprocess)


def _ends_early(into: Injection, scheduler: Any) -> None:
    def add(original: Any, seq: Any) -> Any:
        if seq.max_tokens > 1:
            into.acted()
            seq.max_tokens -= 1
        return original(seq)

    into.wrap(scheduler, "add", add)


QUEUES: tuple[Fault, ...] = (
    Fault("requeues-at-back", "Puts a victim at the back of the waiting queue.", ("queue/front",), _requeues_at_back),
    Fault(
        "keeps-in-running",
        "Leaves a victim in the running queue as well: N2 again.",
        ("queue/one-place",),
        _keeps_in_running,
    ),
    Fault("loses-victim", "Preempts a request and never queues it again.", ("queue/one-place",), _loses_victim),
    Fault("loses-arrival", "Drops a request that arrives while others wait.", ("queue/one-place",), _loses_arrival),
    Fault(
        "admits-second-first",
        "Admits the second in the waiting queue before the first.",
        ("queue/order",),
        _admits_second_first,
    ),
    Fault("reverses-running", "Turns its running queue round after each step.", ("queue/order",), _reverses_running),
    Fault(
        "skips-last",
        "Leaves the last running request out of a batch that has room for it.",
        ("queue/visit-once",),
        _skips_last,
    ),
    Fault(
        "serves-twice",
        "Puts the first running request into the same batch twice.",
        ("queue/visit-once",),
        _serves_twice,
    ),
    Fault("ignores-budget", "Admits up to twice the tokens of its budget.", ("queue/admission",), _ignores_budget),
    Fault("ignores-slots", "Admits one more request than a batch may hold.", ("queue/admission",), _ignores_slots),
    Fault(
        "never-resumes", "Never admits a request again that has emitted something.", ("live/progress",), _never_resumes
    ),
    Fault("loses-token", "Drops the last token of a frame.", ("output/stream",), _loses_token),
    Fault("repeats-token", "Appends the first token of a frame twice.", ("output/stream",), _repeats_token),
    Fault(
        "swaps-tokens",
        "Hands the tokens of a frame to its requests in the wrong order.",
        ("output/stream",),
        _swaps_tokens,
    ),
    Fault("ends-early", "Ends a request one token before its length.", ("output/stream",), _ends_early),
)
