"""Faults of Vidur: whom it preempts, why, and what becomes of it. See `vidur_faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
    from preempt_oracle.engines.vidur_faults_parts import free_blocks, restarted
else:
    from faults import Fault, Injection
    from vidur_faults_parts import free_blocks, restarted


def _wrong_victim(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    class FirstInsteadOfLast(list[Any]):
        def pop(self, index: Any = -1) -> Any:
            if index == -1 and len(self) > 1:
                into.acted()
                index = 0
            return super().pop(index)

    def next_batch(original: Any, time: float) -> Any:
        scheduler._preempted_requests = FirstInsteadOfLast(scheduler._preempted_requests)
        return original(time)

    into.wrap(scheduler, "_get_next_batch", next_batch)


def _needless(into: Injection, engine: Any) -> None:
    scheduler, victims = engine.scheduler, restarted(into, engine)

    def can_allocate(original: Any, request: Any) -> bool:
        # Not behind a victim that was needed: then this one would be one too many.
        if original(request) and not victims and request.id in scheduler._allocation_map:
            if free_blocks(scheduler) > 1:
                return True
            into.acted()
            return False
        return bool(original(request))

    into.wrap(scheduler, "_can_allocate_request", can_allocate)


def _one_too_many(into: Injection, engine: Any) -> None:
    scheduler, victims = engine.scheduler, restarted(into, engine)

    def can_allocate(original: Any, request: Any) -> bool:
        # The requester itself, asked again right behind the only victim so far, would fit by now.
        if original(request) and len(victims) == 1 and request.id in scheduler._allocation_map:
            into.acted()
            return False
        return bool(original(request))

    into.wrap(scheduler, "_can_allocate_request", can_allocate)


def _starves(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    def next_batch(original: Any, time: float) -> Any:
        if scheduler._preempted_requests and not free_blocks(scheduler):
            into.acted()
            return None
        return original(time)

    into.wrap(scheduler, "_get_next_batch", next_batch)


def _for_admission(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler
    asked: list[Any] = []

    def can_allocate(original: Any, request: Any) -> Any:
        answer = original(request)
        asked.append(request)
        running = scheduler._preempted_requests
        # The first question of a call: nobody has a grant yet.
        if len(asked) == 1 and not answer and request.id not in scheduler._allocation_map and running:
            into.acted()
            victim = running.pop()
            victim.restart()
            scheduler.free(victim.id)
            scheduler._request_queue.insert(0, victim)
        return answer

    def next_batch(original: Any, time: float) -> Any:
        asked.clear()
        return original(time)

    into.wrap(scheduler, "_can_allocate_request", can_allocate)
    into.wrap(scheduler, "_get_next_batch", next_batch)


def _for_nobody(into: Injection, engine: Any) -> None:
    scheduler = engine.scheduler

    def allocate(original: Any, request: Any) -> Any:
        runs = request.id in scheduler._allocation_map
        answer = original(request)
        running = scheduler._preempted_requests
        # Somebody is left, it could go on, and the last of them is sent away "to keep a block in reserve".
        if runs and running and not free_blocks(scheduler):
            into.acted()
            victim = running.pop()
            victim.restart()
            scheduler.free(victim.id)
            scheduler._request_queue.insert(0, victim)
        return answer

    into.wrap(scheduler, "_allocate_request", allocate)


def _keeps_computed(into: Injection, engine: Any) -> None:
    def restart(original: Any, request: Any) -> Any:
        had = request.num_processed_tokens
        answer = original(request)
        into.acted()
        request._num_processed_tokens = had - 1
        return answer

    into.wrap(engine.request, "restart", restart)


def _keeps_table(into: Injection, engine: Any) -> None:
    scheduler, victims = engine.scheduler, restarted(into, engine)

    def free(original: Any, *ids: int) -> Any:
        had = {i: scheduler._allocation_map[i] for i in ids if any(victim.id == i for victim in victims)}
        answer = original(*ids)
        for i, blocks in had.items():
            into.acted()
            scheduler._allocation_map[i] = blocks
        return answer

    into.wrap(scheduler, "free", free)


def _forgets_outputs(into: Injection, engine: Any) -> None:
    def restart(original: Any, request: Any) -> Any:
        prompt, total = request.num_prefill_tokens, request.total_tokens
        answer = original(request)
        if request.num_prefill_tokens > prompt:
            into.acted()
            request._num_prefill_tokens, request._num_decode_tokens = prompt, total - prompt
        return answer

    into.wrap(engine.request, "restart", restart)


def _keeps_grant(into: Injection, engine: Any) -> None:
    scheduler, victims = engine.scheduler, restarted(into, engine)
    asked: list[Any] = []

    def can_allocate(original: Any, request: Any) -> Any:
        asked.append(request)
        return original(request)

    def next_batch(original: Any, time: float) -> Any:
        batch = original(time)
        if batch and victims and victims[-1] is asked[-1]:  # it preempted itself, and the batch ends with that
            into.acted()
            scheduler._request_queue.remove(victims[-1])
            for column, value in (batch._requests, victims[-1]), (batch._num_q_tokens, 1), (batch._num_kv_tokens, 1):
                column.append(value)
        return batch

    into.wrap(scheduler, "_can_allocate_request", can_allocate)
    into.wrap(scheduler, "_get_next_batch", next_batch)


def _recomputes_nothing(into: Injection, engine: Any) -> None:
    def next_batch(original: Any, time: float) -> Any:
        batch = original(time)
        for i, request in enumerate(batch.requests if batch else ()):
            if request.num_restarts and not request.is_prefill_complete:
                into.acted()
                request._num_processed_tokens = request._num_stage_processed_tokens = request.num_prefill_tokens - 1
                batch._num_q_tokens[i], batch._num_kv_tokens[i] = 1, request.num_prefill_tokens
        return batch

    into.wrap(engine.scheduler, "_get_next_batch", next_batch)


VICTIMS: tuple[Fault, ...] = (
    Fault(
        "wrong-victim",
        "Preempts the earliest of the requests not yet served instead of the latest.",
        ("victim/choice",),
        _wrong_victim,
    ),
    Fault(
        "needless",
        "Preempts for a running request unless two blocks are free; its own rule is one.",
        ("victim/necessity",),
        _needless,
    ),
    Fault(
        "one-too-many", "Takes a second victim though the first made room enough.", ("victim/minimal",), _one_too_many
    ),
    Fault("starves", "Makes no batch when no block is free, instead of preempting.", ("victim/duty",), _starves),
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
        "Restarts a request and goes on counting its tokens as processed.",
        ("victim/reset",),
        _keeps_computed,
    ),
    Fault(
        "keeps-table", "Frees a victim's blocks and leaves them in its allocation map.", ("victim/reset",), _keeps_table
    ),
    Fault("forgets-outputs", "Restarts a request from its prompt alone.", ("victim/keep-tokens",), _forgets_outputs),
    Fault(
        "keeps-grant",
        "Serves a request that has just preempted itself.",
        ("victim/unplan",),
        _keeps_grant,
        also=("pool/capacity", "queue/admission"),
        why="its blocks are gone and it stands among those that wait: the very grant has no room, and admits it again",
    ),
    Fault(
        "recomputes-nothing",
        "Resumes a request with its last token only, as if all others were cached.",
        ("resume/hit",),
        _recomputes_nothing,
    ),
)
