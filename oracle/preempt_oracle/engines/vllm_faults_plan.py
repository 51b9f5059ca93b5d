"""Faults put into vLLM: the plan, the message to the worker, outputs and cancellations. See `vllm_faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines import vllm_seams as seams
    from preempt_oracle.engines.faults import Fault, Injection
    from preempt_oracle.engines.vllm_faults_parts import Parts, after_preemption, nothing, waits
else:
    import vllm_seams as seams
    from faults import Fault, Injection
    from vllm_faults_parts import Parts, after_preemption, nothing, waits


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


def _passed_over(into: Injection, scheduler: Any) -> None:
    parts = Parts(scheduler)

    def schedule(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # One that needs no block: whether anybody should have been preempted for it is another question.
        one = next(
            (r for r in scheduler.running if r.num_tokens_with_spec <= len(parts.table(r.request_id)) * parts.page),
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


def _message(into: Injection, scheduler: Any, spoil: Callable[[Any], bool]) -> None:
    """Change what the worker is told of requests that it knows."""

    def make(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        data = original(*args, **kwargs)
        if spoil(data):
            into.acted()
        return data

    into.wrap(scheduler, "_make_cached_request_data", make)


def _old_table(into: Injection, scheduler: Any) -> None:
    parts = Parts(scheduler)
    old: dict[str, list[int]] = {}

    def remember(request: Any) -> None:
        old[request.request_id] = [block.block_id for block in parts.table(request.request_id)]

    def spoil(data: Any) -> bool:
        changed = False
        for index, name in enumerate(data.req_ids):
            if name in seams.resumed(data) and old.get(name, []) != list(data.new_block_ids[index][0]):
                data.new_block_ids[index] = (old.get(name, []),)
                changed = True
        return changed

    seams.around_preemption(into.wrap, scheduler, remember, nothing)
    _message(into, scheduler, spoil)


def _not_announced(into: Injection, scheduler: Any) -> None:
    def spoil(data: Any) -> bool:
        any_resumed = bool(seams.resumed(data))
        seams.resume_unsaid(data)
        return any_resumed

    _message(into, scheduler, spoil)


def _table_cut(into: Injection, scheduler: Any) -> None:
    def blocks_of(original: Callable[..., Any], name: str) -> Any:
        found = original(name)
        (table,) = found.blocks
        if len(table) < 2:
            return found
        into.acted()
        return type(found)((list(table[:-1]),))

    into.wrap(Parts(scheduler).manager, "get_blocks", blocks_of)


def _growth_untold(into: Injection, scheduler: Any) -> None:
    def spoil(data: Any) -> bool:
        changed = False
        for index, name in enumerate(data.req_ids):
            if name not in seams.resumed(data) and data.new_block_ids[index] is not None:
                data.new_block_ids[index] = None
                changed = True
        return changed

    _message(into, scheduler, spoil)


def _prompt_only(into: Injection, scheduler: Any) -> None:
    def spoil(data: Any) -> bool:
        changed = False
        for name in seams.resumed(data):
            whole, prompt = data.all_token_ids.get(name, []), scheduler.requests[name].prompt_token_ids
            if len(whole) > len(prompt):
                data.all_token_ids[name] = list(prompt)
                changed = True
        return changed

    _message(into, scheduler, spoil)


def _victims(into: Injection, scheduler: Any) -> list[Any]:
    """Whoever has been preempted so far."""
    victims: list[Any] = []
    seams.around_preemption(into.wrap, scheduler, victims.append, nothing)
    return victims


def _token_lost(into: Injection, scheduler: Any) -> None:
    victims = _victims(into, scheduler)

    def update(original: Callable[..., Any], request: Any, tokens: list[int], *args: Any, **kwargs: Any) -> Any:
        if request in victims and tokens:
            into.acted()
            return [], False
        return original(request, tokens, *args, **kwargs)

    into.wrap(scheduler, "_update_request_with_output", update)


def _token_repeated(into: Injection, scheduler: Any) -> None:
    victims = _victims(into, scheduler)

    def update(original: Callable[..., Any], request: Any, tokens: list[int], *args: Any, **kwargs: Any) -> Any:
        new, stopped = original(request, tokens, *args, **kwargs)
        if request in victims and new and not stopped:
            into.acted()
            request.append_output_token_ids(new[-1])
            new = [*new, new[-1]]
        return new, stopped

    into.wrap(scheduler, "_update_request_with_output", update)


def _ends_early(into: Injection, scheduler: Any) -> None:
    def spoil(request: Any) -> bool:
        if request.num_output_tokens + 1 >= request.max_tokens:
            return False
        request.max_tokens -= 1
        return True

    after_preemption(into, scheduler, spoil)


def _abort_keeps(into: Injection, scheduler: Any) -> None:
    parts = Parts(scheduler)

    def finished(original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        delay, parameters = original(request, *args, **kwargs)
        if request.status.name == "FINISHED_ABORTED" and parts.table(request.request_id):
            into.acted()
            delay = True
        return delay, parameters

    into.wrap(scheduler, "_connector_finished", finished)


def _abort_stays(into: Injection, scheduler: Any) -> None:
    ghosts: list[Any] = []

    def finish(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        running = [*scheduler.running]
        answer = original(*args, **kwargs)
        ghosts.extend(r for r in running if r not in scheduler.running)
        return answer

    def schedule(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        output = original(*args, **kwargs)
        if ghosts:
            scheduler.running.extend(ghosts)
            ghosts.clear()
            into.acted()
        return output

    into.wrap(scheduler, "finish_requests", finish)
    into.wrap(scheduler, "schedule", schedule)


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
    Fault(
        "stale-table-sent",
        "Tells the worker the block table that a resumed request had before its preemption.",
        ("resume/message",),
        _old_table,
    ),
    Fault(
        "resume-not-announced",
        "Describes a resumed request to the worker as one that just goes on.",
        ("resume/message",),
        _not_announced,
    ),
    Fault(
        "table-cut-short",
        "Tells the worker all but the last block of a request that it admits.",
        ("resume/message",),
        _table_cut,
    ),
    Fault(
        "growth-not-sent",
        "Does not tell the worker of the block that a running request gets.",
        ("resume/message",),
        _growth_untold,
    ),
    Fault(
        "outputs-not-sent",
        "Tells the worker the prompt alone when it resumes a request that has outputs.",
        ("victim/keep-tokens",),
        _prompt_only,
    ),
    Fault("token-lost", "Drops the token of a request that was preempted before.", ("frame/once",), _token_lost),
    Fault(
        "token-repeated",
        "Emits each token of a request that was preempted before twice.",
        ("output/stream",),
        _token_repeated,
    ),
    Fault(
        "ends-one-token-early",
        "Ends a request that was preempted one token before its length.",
        ("output/stream",),
        _ends_early,
    ),
    Fault(
        "abort-keeps-blocks",
        "Cancels a request and does not free its blocks.",
        ("edge/abort",),
        _abort_keeps,
        script=("abort",),
    ),
    Fault(
        "abort-stays-queued",
        "Cancels a running request and still has it in the running queue after the next step.",
        ("edge/abort",),
        _abort_stays,
        script=("abort",),
    ),
)
