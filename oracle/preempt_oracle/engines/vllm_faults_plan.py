"""Faults put into vLLM: queues, budget, and the gates of admission. See `vllm_faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines import vllm_seams as seams
    from preempt_oracle.engines.faults import Fault, Injection
    from preempt_oracle.engines.vllm_faults_parts import Parts, waits
else:
    import vllm_seams as seams
    from faults import Fault, Injection
    from vllm_faults_parts import Parts, waits


def _youngest(into: Injection, scheduler: Any) -> None:
    queue = scheduler.waiting

    def peek(original: Callable[..., Any]) -> Any:
        return [*queue][-1] if queue else original()

    def pop(original: Callable[..., Any]) -> Any:
        if len(queue) < 2:
            return original()
        into.acted()
        last = [*queue][-1]
        queue.remove_request(last)
        return last

    into.wrap(queue, "peek_request", peek)
    into.wrap(queue, "pop_request", pop)


def _upside_down(into: Injection, scheduler: Any) -> None:
    def schedule(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        output = original(*args, **kwargs)
        if len(scheduler.running) > 1:
            scheduler.running.reverse()
            into.acted()
        return output

    into.wrap(scheduler, "schedule", schedule)


def _reaches(request: Any) -> int:
    """The slots that a request needs for all it may be granted: drafts and promised outputs are among it."""
    return int(request.num_tokens_with_spec + request.num_output_placeholders)


def _passed_over(into: Injection, scheduler: Any) -> None:
    parts = Parts(scheduler)

    def schedule(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # One that needs no block: whether anybody should have been preempted for it is another question.
        one = next(
            (r for r in scheduler.running if _reaches(r) <= len(parts.table(r.request_id)) * parts.page),
            None,
        )
        if one is None:
            return original(*args, **kwargs)
        earlier = scheduler.running[: scheduler.running.index(one)]
        again = seams.hold_back(scheduler, one)
        output = original(*args, **kwargs)
        again()
        before = sum(output.num_scheduled_tokens.get(r.request_id, 0) for r in earlier)
        skipped = one in scheduler.running and one.request_id not in output.num_scheduled_tokens
        if skipped and before < scheduler.max_num_scheduled_tokens:
            into.acted()
        return output

    into.wrap(scheduler, "schedule", schedule)


def _raised(
    into: Injection, scheduler: Any, by: int, limits: tuple[tuple[Any, str], ...], broken: Callable[[Any], bool]
) -> None:
    """Work with higher limits while a step is planned; `broken` says whether they were made use of."""

    def schedule(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        kept = [(owner, name, getattr(owner, name)) for owner, name in limits if hasattr(owner, name)]
        try:
            for owner, name, value in kept:
                setattr(owner, name, value + by)
            output = original(*args, **kwargs)
        finally:
            for owner, name, value in kept:
                setattr(owner, name, value)
        if broken(output):
            into.acted()
        return output

    into.wrap(scheduler, "schedule", schedule)


def _over_budget(into: Injection, scheduler: Any) -> None:
    limits = ((scheduler, "max_num_scheduled_tokens"), (scheduler.scheduler_config, "max_num_batched_tokens"))

    def broken(output: Any) -> bool:
        return bool(output.total_num_scheduled_tokens > scheduler.max_num_scheduled_tokens)

    _raised(into, scheduler, 1000, limits, broken)


def _over_slots(into: Injection, scheduler: Any) -> None:
    limits = ((scheduler, "max_num_running_reqs"), (scheduler, "max_num_active_reqs"))
    _raised(into, scheduler, 1, limits, lambda _: len(scheduler.running) > scheduler.max_num_running_reqs)


def _second_try(into: Injection, scheduler: Any, change: Callable[[dict[str, Any]], Callable[[], None]]) -> None:
    """Try a failed admission again with a gate open: `change` opens it and answers with what closes it."""
    parts = Parts(scheduler)

    def allocate(original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        granted = original(request, *args, **kwargs)
        if granted is not None or not waits(request):
            return granted
        close = change(kwargs)
        try:
            granted = original(request, *args, **kwargs)
        finally:
            close()
        if granted is not None:
            into.acted()
        return granted

    into.wrap(parts.manager, "allocate_slots", allocate)


def _past_the_watermark(into: Injection, scheduler: Any) -> None:
    manager = Parts(scheduler).manager

    def change(_: dict[str, Any]) -> Callable[[], None]:
        kept, manager.watermark_blocks = manager.watermark_blocks, 0
        return lambda: setattr(manager, "watermark_blocks", kept)

    _second_try(into, scheduler, change)


def _first_chunk_only(into: Injection, scheduler: Any) -> None:
    manager = Parts(scheduler).manager
    if not seams.admits_whole_by_slots(manager):

        def fits(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            opened.append(not original(*args, **kwargs))
            return True

        def allocate(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            granted = original(*args, **kwargs)
            if opened and opened.pop() and granted is not None:
                into.acted()
            return granted

        opened: list[bool] = []
        into.wrap(manager, "can_fit_full_sequence", fits)
        into.wrap(manager, "allocate_slots", allocate)
        return

    def change(given: dict[str, Any]) -> Callable[[], None]:
        given["full_sequence_must_fit"] = False
        return lambda: None

    _second_try(into, scheduler, change)


def _never_again(into: Injection, scheduler: Any) -> None:
    def allocate(original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        if request.status.name == "PREEMPTED":
            into.acted()
            return None
        return original(request, *args, **kwargs)

    into.wrap(Parts(scheduler).manager, "allocate_slots", allocate)


def _a_token_too_far(into: Injection, scheduler: Any) -> None:
    parts = Parts(scheduler)

    def update(original: Callable[..., Any], output: Any) -> Any:
        answer = original(output)
        for name in output.num_scheduled_tokens:
            request = scheduler.requests[name]
            # The rest fits in the blocks it has: a longer next chunk must not be what somebody is preempted for.
            rest = request.num_computed_tokens < request.num_tokens - 1
            if rest and request.num_tokens <= len(parts.table(name)) * parts.page:
                request.num_computed_tokens += 1
                into.acted()
        return answer

    into.wrap(scheduler, "_update_after_schedule", update)


FAULTS = (
    Fault("youngest-first", "Admits from the wrong end of the waiting queue.", ("queue/order",), _youngest),
    Fault("running-upside-down", "Turns the running queue round after each step.", ("queue/order",), _upside_down),
    Fault(
        "running-request-skipped",
        "Passes over a running request as if its turn had not come.",
        ("queue/visit-once",),
        _passed_over,
    ),
    Fault(
        "budget-overspent",
        "Grants more tokens in a step than its budget has.",
        ("queue/admission",),
        _over_budget,
    ),
    Fault("slots-overrun", "Runs one request more than it has slots.", ("queue/admission",), _over_slots),
    Fault(
        "watermark-ignored",
        "Admits into the blocks that are to stay free.",
        ("queue/admission",),
        _past_the_watermark,
        config={"watermark": True},
    ),
    Fault(
        "first-chunk-only",
        "Admits a request whose first chunk fits and whose known tokens do not.",
        ("queue/admission",),
        _first_chunk_only,
        config={"whole_fit": True},
    ),
    Fault("never-resumed", "Never admits a victim again.", ("live/progress",), _never_again),
    Fault(
        "token-skipped",
        "Counts one token more as computed than a chunk of a prefill has computed.",
        ("frame/once",),
        _a_token_too_far,
        config={"chunked": True},
    ),
)
