"""Faults of Vidur: its queues, and the tokens that come out. See `vidur_faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
    from preempt_oracle.engines.vidur_faults_parts import free_blocks, restarted
else:
    from faults import Fault, Injection
    from vidur_faults_parts import free_blocks, restarted


def _requeues_at_back(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    class BehindInsteadOfBefore(list[Any]):
        def __radd__(self, before: list[Any]) -> list[Any]:
            if self:
                into.acted()
            return BehindInsteadOfBefore([*self, *before])

    def next_batch(original: Any, time: float) -> Any:
        scheduler._request_queue = BehindInsteadOfBefore(scheduler._request_queue)
        return original(time)

    into.wrap(scheduler, "_get_next_batch", next_batch)


def _keeps_in_running(into: Injection, engine: Any) -> None:
    scheduler, victims = engine.scheduler, restarted(into, engine)

    def next_batch(original: Any, time: float) -> Any:
        batch = original(time)
        for victim in victims:
            into.acted()
            scheduler._preempted_requests.append(victim)
        return batch

    into.wrap(scheduler, "_get_next_batch", next_batch)


def _loses_victim(into: Injection, engine: Any) -> None:
    scheduler, victims = engine.scheduler, restarted(into, engine)

    def next_batch(original: Any, time: float) -> Any:
        batch = original(time)
        for victim in victims:
            into.acted()
            scheduler._request_queue.remove(victim)
        return batch

    into.wrap(scheduler, "_get_next_batch", next_batch)


def _loses_arrival(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    def add_request(original: Any, request: Any) -> Any:
        if scheduler._request_queue:
            into.acted()
            return None
        return original(request)

    into.wrap(scheduler, "add_request", add_request)


def _admits_second_first(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    def next_batch(original: Any, time: float) -> Any:
        queue = scheduler._request_queue
        if len(queue) < 2:
            return original(time)
        first = queue[0]
        queue[0], queue[1] = queue[1], first
        batch = original(time)
        queue = scheduler._request_queue
        if batch and not batch.requests[0].is_prefill_complete:
            into.acted()
        else:  # nobody was admitted: as it was, victims of this call in front
            at = queue.index(first)
            queue[at - 1], queue[at] = first, queue[at - 1]
        return batch

    into.wrap(scheduler, "_get_next_batch", next_batch)


def _reverses_waiting(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    def next_batch(original: Any, time: float) -> Any:
        batch = original(time)
        # Not the victims of this call: where those belong is another rule's.
        if len(scheduler._request_queue) > 1 and not scheduler._request_queue[0].num_restarts:
            into.acted()
            scheduler._request_queue.reverse()
        return batch

    into.wrap(scheduler, "_get_next_batch", next_batch)


def _skips_last(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    def next_batch(original: Any, time: float) -> Any:
        arrivals = [request.arrived_at for request in scheduler._preempted_requests]
        slots = scheduler._max_micro_batch_size
        # With a free block for everybody, so that nothing else explains why one gets none; and with one latest arrival,
        # which stays behind the others: tied, the one left out would be in front of them from now on.
        if len(arrivals) < 2 or scheduler._request_queue or free_blocks(scheduler) <= len(arrivals):
            return original(time)
        if arrivals.count(max(arrivals)) > 1:
            return original(time)
        into.acted()
        scheduler._max_micro_batch_size = len(arrivals) - 1
        batch = original(time)
        scheduler._max_micro_batch_size = slots
        return batch

    into.wrap(scheduler, "_get_next_batch", next_batch)


def _serves_twice(into: Injection, engine: Any) -> None:
    def next_batch(original: Any, time: float) -> Any:
        batch = original(time)
        if batch and batch.requests[0].is_prefill_complete:
            into.acted()
            for column in (batch._requests, batch._num_q_tokens, batch._num_kv_tokens):
                column.append(column[0])
        return batch

    into.wrap(engine.scheduler, "_get_next_batch", next_batch)


def _ignores_budget(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    def next_batch(original: Any, time: float) -> Any:
        limits = scheduler._config
        budget, limits.max_tokens_in_batch = limits.max_tokens_in_batch, 2 * limits.max_tokens_in_batch
        batch = original(time)
        limits.max_tokens_in_batch = budget
        if batch and sum(batch.num_q_tokens) > budget:
            into.acted()
        return batch

    into.wrap(scheduler, "_get_next_batch", next_batch)


def _ignores_slots(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    def next_batch(original: Any, time: float) -> Any:
        limits = scheduler._config
        slots, micro, before = limits.batch_size_cap, scheduler._max_micro_batch_size, len(scheduler._allocation_map)
        limits.batch_size_cap, scheduler._max_micro_batch_size = slots + 1, micro + 1
        batch = original(time)
        limits.batch_size_cap, scheduler._max_micro_batch_size = slots, micro
        if before <= slots < len(scheduler._allocation_map):
            into.acted()
        return batch

    into.wrap(scheduler, "_get_next_batch", next_batch)


def _ignores_watermark(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler
    mark = scheduler._watermark_blocks

    def can_allocate(original: Any, request: Any) -> bool:
        scheduler._watermark_blocks = 0
        answer = bool(original(request))
        scheduler._watermark_blocks = mark
        return answer

    def allocate(original: Any, request: Any) -> Any:
        # The watermark is for an admission while others run; alone, a request may have the whole pool.
        new, others = request.id not in scheduler._allocation_map, bool(scheduler._allocation_map)
        answer = original(request)
        if new and others and free_blocks(scheduler) < mark:
            into.acted()
        return answer

    into.wrap(scheduler, "_can_allocate_request", can_allocate)
    into.wrap(scheduler, "_allocate_request", allocate)


def _cuts_prefill(into: Injection, engine: Any) -> None:
    def next_tokens(original: Any, request: Any) -> int:
        tokens = int(original(request))
        if request.num_restarts and not request.is_prefill_complete and tokens > 1:
            into.acted()
            return tokens - 1
        return tokens

    into.wrap(engine.scheduler, "_get_request_next_num_q_tokens", next_tokens)


def _never_resumes(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    def can_allocate(original: Any, request: Any) -> bool:
        if request.num_restarts and request.id not in scheduler._allocation_map:
            into.acted()
            return False
        return bool(original(request))

    into.wrap(scheduler, "_can_allocate_request", can_allocate)


def _loses_token(into: Injection, engine: Any) -> None:
    lost: set[tuple[int, int]] = set()  # request, position: each token once, or it would never get on

    def on_batch_end(original: Any, request: Any, time: float, tokens: int) -> Any:
        answer = original(request, time, tokens)
        token = request.id, request.num_processed_tokens
        # Not the token of a prefill: that is not sampled again.
        if tokens == 1 and request.num_processed_decode_tokens > 1 and not request.completed and token not in lost:
            into.acted()
            lost.add(token)
            request._num_processed_tokens -= 1
            request._num_stage_processed_tokens -= 1
        return answer

    into.wrap(engine.request, "on_batch_end", on_batch_end)


def _repeats_token(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    def on_batch_end(original: Any, request: Any, time: float, tokens: int) -> Any:
        answer = original(request, time, tokens)
        room = scheduler._allocation_map[request.id] * scheduler._cache_config.block_size
        # Within its blocks and its length: beyond, the engine's own assertions fail.
        if request.is_prefill_complete and request.num_processed_tokens < min(room, request.total_tokens - 1):
            into.acted()
            request._num_processed_tokens += 1
        return answer

    into.wrap(engine.request, "on_batch_end", on_batch_end)


def _ends_early(into: Injection, engine: Any) -> None:
    def add_request(original: Any, request: Any) -> Any:
        if request.num_decode_tokens > 1:
            into.acted()
            request._num_decode_tokens -= 1
        return original(request)

    into.wrap(engine.scheduler, "add_request", add_request)


QUEUES: tuple[Fault, ...] = (
    Fault("requeues-at-back", "Puts a victim at the back of the waiting queue.", ("queue/front",), _requeues_at_back),
    Fault("keeps-in-running", "Leaves a victim in the running queue as well.", ("queue/one-place",), _keeps_in_running),
    Fault(
        "loses-victim",
        "Preempts a request and drops it from its queue in the same call.",
        ("queue/one-place",),
        _loses_victim,
    ),
    Fault("loses-arrival", "Drops a request that arrives while others wait.", ("queue/one-place",), _loses_arrival),
    Fault(
        "admits-second-first",
        "Admits the second in the waiting queue before the first.",
        ("queue/order",),
        _admits_second_first,
    ),
    Fault("reverses-waiting", "Turns its waiting queue round after each step.", ("queue/order",), _reverses_waiting),
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
    Fault("ignores-slots", "Admits one more request than may run.", ("queue/admission",), _ignores_slots),
    Fault(
        "ignores-watermark",
        "Admits a request into the blocks that are to stay free.",
        ("queue/admission",),
        _ignores_watermark,
        config={"watermark": True},
    ),
    Fault(
        "cuts-prefill",
        "Leaves the last token of a resumed prefill for later, although it never splits one.",
        ("queue/admission",),
        _cuts_prefill,
    ),
    Fault("never-resumes", "Never admits a request again that was restarted.", ("live/progress",), _never_resumes),
    Fault(
        "loses-token",
        "Does not count a sampled token, and samples it again in the next step.",
        ("frame/once", "victim/keep-tokens"),
        _loses_token,
        why="what is emitted is not observed; it shows in where the next grant begins, or in what a victim knows",
    ),
    Fault(
        "repeats-token",
        "Counts a sampled token twice.",
        ("frame/once", "victim/keep-tokens"),
        _repeats_token,
        also=("output/stream",),
        why="it shows in the next grant, which begins and reaches too far, or in what a victim knows",
    ),
    Fault("ends-early", "Ends a request one token before its length.", ("output/stream",), _ends_early),
)
