"""Faults put into vLLM: the message to the worker, outputs and cancellations. See `vllm_faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines import vllm_seams as seams
    from preempt_oracle.engines.faults import Fault, Injection
    from preempt_oracle.engines.vllm_faults_parts import Parts, after_preemption, nothing
else:
    import vllm_seams as seams
    from faults import Fault, Injection
    from vllm_faults_parts import Parts, after_preemption, nothing


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
        ("output/stream", "queue/visit-once"),
        _ends_early,
        why="scheduled ahead, it is not granted any more what it would have said last",
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
