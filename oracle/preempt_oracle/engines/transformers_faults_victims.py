"""Faults of continuous batching: whom it preempts, why, and what becomes of it. See `transformers_faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
else:
    from faults import Fault, Injection

SOFT = ("hf-cb", "hf-cb-prefill-first")


def _scheduled(into: Injection, cb: Any) -> list[Any]:
    """The states of the batch that was scheduled last, kept up to date."""
    last: list[Any] = []

    def schedule(original: Any, *args: Any) -> Any:
        answer = original(*args)
        last[:] = [f.state for f in answer[0] or ()]
        return answer

    into.wrap(cb.scheduler, "schedule_batch", schedule)
    return last


def _wrong_victim(into: Injection, cb: Any) -> None:
    def offload(original: Any) -> Any:
        if len(cb.scheduler.starved_requests) > 1:
            into.acted()
            cb.scheduler.starved_requests.reverse()
        return original()

    into.wrap(cb.offloading_manager, "offload_requests", offload)


def _takes_who_was_served(into: Injection, cb: Any) -> None:
    (allocator,) = cb.cache.cache_allocators.values()
    served = _scheduled(into, cb)

    def offload(original: Any) -> Any:
        if not cb.scheduler.starved_requests or len(served) < 2:
            return original()
        into.acted()
        taken = served[-1]
        table = list(allocator.block_table[taken.request_id])
        cb.scheduler.starved_requests.append((taken, 1))
        answer = original()
        allocator.block_table[taken.request_id] = table  # else the engine could not even make the batch
        return answer

    into.wrap(cb.offloading_manager, "offload_requests", offload)


def _one_too_many(into: Injection, cb: Any) -> None:
    asked: list[int] = []

    def offload(original: Any) -> Any:
        asked.clear()
        return original()

    def storable(original: Any, needs: Any) -> Any:
        answer = original(needs)
        asked.append(answer)
        if len(asked) == 2 and answer == len(needs) > 0 and len(cb.scheduler.active_requests) > 2:
            into.acted()
            return answer - 1
        return answer

    into.wrap(cb.offloading_manager, "offload_requests", offload)
    into.wrap(cb.cache, "count_storable_requests", storable)


def _needless(into: Injection, cb: Any) -> None:
    (allocator,) = cb.cache.cache_allocators.values()
    denied: list[Any] = []

    def schedule(original: Any, *args: Any) -> Any:
        denied.clear()
        return original(*args)

    def store(original: Any, state: Any, length: int, *args: Any) -> Any:
        active = list(cb.scheduler.active_requests.values())
        fits = not allocator.needs_new_blocks(state.request_id, state.current_len(), length)
        if fits and len(active) > 1 and state is active[-1] and not denied:
            denied.append(state)
            return False
        return original(state, length, *args)

    def storable(original: Any, needs: Any) -> Any:
        starved = [s for s, _ in cb.scheduler.starved_requests]
        if starved and starved == denied:
            into.acted()
            return -1
        return original(needs)

    into.wrap(cb.scheduler, "schedule_batch", schedule)
    into.wrap(cb.cache, "can_store_request_tokens", store)
    into.wrap(cb.cache, "count_storable_requests", storable)


def _starves(into: Injection, cb: Any) -> None:
    served = _scheduled(into, cb)

    def offload(original: Any) -> Any:
        if not served:
            return original()
        into.acted()
        return False

    into.wrap(cb.offloading_manager, "offload_requests", offload)


def _keeps_computed(into: Injection, cb: Any) -> None:
    def wait(original: Any, state: Any) -> Any:
        if state._true_initial_tokens:
            into.acted()
            state.position_offset = 1
        return original(state)

    into.wrap(cb.scheduler, "add_waiting_request", wait)


def _forgets_outputs(into: Injection, cb: Any) -> None:
    def wait(original: Any, state: Any) -> Any:
        if 0 < state._true_initial_tokens < len(state.initial_tokens):
            into.acted()
            del state.initial_tokens[state._true_initial_tokens :]
            state.remaining_prefill_tokens = state.initial_tokens[:]
        return original(state)

    into.wrap(cb.scheduler, "add_waiting_request", wait)


def _keeps_one_less(into: Injection, cb: Any) -> None:
    def offload(original: Any, victims: Any, tables: Any) -> Any:
        gone = original(victims, tables)
        for state in victims:
            if state.request_id in gone and state.position_offset > 1:
                into.acted()
                state.position_offset -= 1
        return gone

    into.wrap(cb.offloading_manager, "_offload_to_cpu", offload)


VICTIMS: tuple[Fault, ...] = (
    Fault("wrong-victim", "Preempts the first of those who starved, not the last.", ("victim/choice",), _wrong_victim),
    Fault(
        "takes-who-was-served",
        "Preempts a request that is in the batch it has just made.",
        ("victim/unplan",),
        _takes_who_was_served,
        also=("victim/choice",),
    ),
    Fault("one-too-many", "Takes a second victim though the others fit by now.", ("victim/minimal",), _one_too_many),
    Fault(
        "needless",
        "Preempts a request whose next token fits in the blocks that it has.",
        ("victim/necessity",),
        _needless,
        also=("victim/choice",),
        config={"caching": False},  # else whoever runs by a hit may starve beside it
    ),
    Fault("starves", "Passes over who cannot grow instead of preempting anybody.", ("victim/duty",), _starves),
    Fault(
        "keeps-computed",
        "Counts a token of a soft reset request as computed.",
        ("victim/reset",),
        _keeps_computed,
        policies=SOFT,
    ),
    Fault(
        "forgets-outputs",
        "Cuts a soft reset request back to its prompt.",
        ("victim/keep-tokens",),
        _forgets_outputs,
        policies=SOFT,
    ),
    Fault(
        "keeps-one-less",
        "Counts one computed token less than it copies out.",
        ("victim/reset",),
        _keeps_one_less,
        policies=("hf-cb-offload",),
        config={"host_blocks": True},
    ),
)
