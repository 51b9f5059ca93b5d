"""Faults of continuous batching: its queues, its batches and what it emits. See `transformers_faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
else:
    from faults import Fault, Injection


def _to_the_front(into: Injection, cb: Any) -> None:
    scheduler = cb.scheduler

    def offload(original: Any) -> Any:
        active, order = set(scheduler.active_requests), scheduler.waiting_requests_order
        had = list(order)
        answer = original()
        kind = scheduler.waiting_requests
        for name in [r for r in order if r in active]:
            alike = [r for r in had if r in kind and kind[r].is_cpu_offloaded == kind[name].is_cpu_offloaded]
            if alike:  # else the front is the back
                into.acted()
                order.remove(name)
                order.appendleft(name)
        return answer

    into.wrap(cb.offloading_manager, "offload_requests", offload)


def _opens_the_gate(into: Injection, cb: Any) -> None:
    def offload(original: Any) -> Any:
        answer = original()
        if cb.scheduler.block_new_requests:
            into.acted()
            cb.scheduler.block_new_requests = False
        return answer

    into.wrap(cb.offloading_manager, "offload_requests", offload)


def _last_come_first(into: Injection, cb: Any) -> None:
    def candidates(original: Any) -> Any:
        found = original()
        if len(found) > 1:
            into.acted()
            found.reverse()
        return found

    into.wrap(cb.scheduler, "_get_waiting_candidates", candidates)


def _skips_one(into: Injection, cb: Any) -> None:
    scheduler = cb.scheduler

    def process(original: Any, candidates: list[Any], *args: Any) -> Any:
        active = [s for s in candidates if s.request_id in scheduler.active_requests]
        if len(active) > 1 and cb.cache.can_store_request_tokens(active[0], 1, True):
            into.acted()
            candidates = [s for s in candidates if s is not active[0]]
        return original(candidates, *args)

    into.wrap(scheduler, "_process_candidates", process)


def _stays_active(into: Injection, cb: Any) -> None:
    scheduler = cb.scheduler

    def offload(original: Any) -> Any:
        active = dict(scheduler.active_requests)
        answer = original()
        for name, state in active.items():
            if name not in scheduler.active_requests and name in scheduler.waiting_requests:
                into.acted()
                scheduler.active_requests[name] = state
        return answer

    def schedule(original: Any, *args: Any) -> Any:
        for name in scheduler.waiting_requests:
            scheduler.active_requests.pop(name, None)  # this step is over: nothing more is broken than was to be
        return original(*args)

    into.wrap(cb.offloading_manager, "offload_requests", offload)
    into.wrap(scheduler, "schedule_batch", schedule)


def _cancels_nobody(into: Injection, cb: Any) -> None:
    def clear(original: Any) -> Any:
        waits = [r for r in cb.scheduler._requests_to_cancel if r in cb.scheduler.waiting_requests]
        if waits:
            into.acted()
            cb.scheduler._requests_to_cancel.clear()
        return original()

    into.wrap(cb.scheduler, "clear_cancelled_requests", clear)


def _position_too_far(into: Injection, cb: Any) -> None:
    io = cb.inputs_and_outputs

    def prepare(original: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        if int(io.position_ids[0]) > 0:
            into.acted()
            io.position_ids[0] += 1
        return answer

    into.wrap(io, "prepare_batch_tensors", prepare)


def _says_it_again(into: Injection, cb: Any) -> None:
    def update(original: Any) -> Any:
        states = [f.state for f in cb.inputs_and_outputs.requests_in_batch]
        before = [len(s.generated_tokens) for s in states]
        answer = original()
        for state, had in zip(states, before, strict=True):
            if had and len(state.generated_tokens) > had and state.generated_tokens[-1] != state.generated_tokens[-2]:
                into.acted()
                state.generated_tokens[-1] = state.generated_tokens[-2]
        return answer

    into.wrap(cb, "update_batch", update)


def _ends_early(into: Injection, cb: Any) -> None:
    def wait(original: Any, state: Any) -> Any:
        if state._new_tokens_limit > 1:
            into.acted()
            state._new_tokens_limit -= 1
        return original(state)

    into.wrap(cb.scheduler, "add_waiting_request", wait)


def _crashes(into: Injection, cb: Any) -> None:
    def offload(original: Any, victims: Any, tables: Any) -> Any:
        into.acted()
        return original(victims, {})  # the engine looks its victims up in it

    if cb.offloading_manager._cpu_pool is not None:
        into.wrap(cb.offloading_manager, "_offload_to_cpu", offload)


QUEUES: tuple[Fault, ...] = (
    Fault(
        "to-the-front",
        "Puts a victim in front of those who wait.",
        ("queue/front",),
        _to_the_front,
        also=("queue/order",),
    ),
    Fault("opens-the-gate", "Admits before anybody finished.", ("queue/admission",), _opens_the_gate),
    Fault("last-come-first", "Looks at those who wait from the last on.", ("queue/order",), _last_come_first),
    Fault("skips-one", "Leaves a request that fits out of a batch.", ("queue/visit-once",), _skips_one),
    Fault(
        "stays-active",
        "Keeps a victim among those who run as well.",
        ("queue/one-place",),
        _stays_active,
        also=("queue/order",),
    ),
    Fault(
        "cancels-nobody",
        "Forgets the cancellation of a request that waits.",
        ("edge/abort",),
        _cancels_nobody,
        also=("queue/one-place", "queue/order"),
        script=("abort",),
    ),
    Fault(
        "position-too-far",
        "Tells the pass a position one too far.",
        ("frame/once",),
        _position_too_far,
        also=("output/stream", "pool/capacity"),
    ),
    Fault("says-it-again", "Emits the last token again.", ("output/stream",), _says_it_again),
    Fault("ends-early", "Ends a request one token before its length.", ("output/stream",), _ends_early),
    Fault(
        "crashes",
        "Looks for the table of a victim where it is not.",
        ("live/survives",),
        _crashes,
        policies=("hf-cb-offload",),
        config={"host_blocks": True},
    ),
)
