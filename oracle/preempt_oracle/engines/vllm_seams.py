"""Where a scheduler of vLLM can be held: the places that one version calls otherwise than another.

Runs in the engine's Python (standard library only). The adapter looks through these places and its faults act there,
so that neither names a version. `wrap(owner, name, wrapper)` is whatever replaces `owner.name(...)` by
`wrapper(original, ...)`: the watch's own, or the injection's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines.child import Unsupported
else:
    from child import Unsupported

Wrap = Callable[[Any, str, Callable[..., Any]], None]
Hook = Callable[[Any], None]


def has_preempt_method(scheduler: Any) -> bool:
    """Whether a victim is preempted by a method; before 0.12 the lines stand in `schedule` itself."""
    return hasattr(scheduler, "_preempt_request")


def around_preemption(wrap: Wrap, scheduler: Any, before: Hook, after: Hook) -> None:
    """Call `before(victim)` when a preemption begins, `after(victim)` once the victim is queued again.

    Without a method of its own a preemption begins where a running request's blocks are freed, and ends where that
    request is put in front of the waiting queue.
    """
    if has_preempt_method(scheduler):

        def preempt(original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
            before(request)
            answer = original(request, *args, **kwargs)
            after(request)
            return answer

        wrap(scheduler, "_preempt_request", preempt)
        return
    victims: list[Any] = []

    def free(original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        if request.status.name == "RUNNING":  # whoever is over has another status by then
            if victims:
                raise Unsupported(f"{victims[0].request_id} was preempted and not queued before the next victim")
            victims.append(request)
            before(request)
        return original(request, *args, **kwargs)

    def prepend(original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(request, *args, **kwargs)
        if victims and victims[0] is request:
            victims.clear()
            after(request)
        return answer

    wrap(scheduler.kv_cache_manager, "free", free)
    wrap(scheduler.waiting, "prepend_request", prepend)


def preempt(scheduler: Any, victim: Any) -> None:
    """Preempt somebody outside of `schedule`, as a reset does; the victim is out of the running queue already."""
    # It may resume in the very next step, and must not be taken for one that just ran.
    getattr(scheduler, "prev_step_scheduled_req_ids", set()).discard(victim.request_id)
    if has_preempt_method(scheduler):
        scheduler._preempt_request(victim, 0.0)
        return
    scheduler.kv_cache_manager.free(victim)
    victim.status = type(victim.status).PREEMPTED
    victim.num_computed_tokens = 0
    scheduler.waiting.prepend_request(victim)


def in_order(queue: Any) -> list[Any]:
    """The requests of a waiting queue, in the order in which vLLM would look at them."""
    heap = getattr(queue, "_heap", None)
    if heap and isinstance(heap[0], tuple):
        # Before 0.12 ties in priority and arrival cannot be compared, and raise. To look must not be what raises.
        entries = sorted(heap, key=lambda entry: (*entry[:2], entry[2].request_id))
        return [request for _, _, request in entries]
    return [*queue]


def resumed(cached: Any) -> Collection[str]:
    """Who resumes, of the requests that the worker is told of as known ones."""
    if hasattr(cached, "resumed_req_ids"):
        return cached.resumed_req_ids  # type: ignore[no-any-return]
    flags = zip(cached.req_ids, cached.resumed_from_preemption, strict=True)
    return {name for name, flag in flags if flag}


def resume_unsaid(cached: Any) -> None:
    """Make the message say of nobody that it resumes."""
    if hasattr(cached, "resumed_req_ids"):
        cached.resumed_req_ids.clear()
    else:
        cached.resumed_from_preemption[:] = [False] * len(cached.req_ids)


def resumed_tokens(cached: Any, name: str) -> Any:
    """The tokens that the worker is sent of a resumed request; None if it is sent none."""
    tokens = getattr(cached, "all_token_ids", None)  # not sent before 0.12: the worker has kept them
    return None if tokens is None else tokens.get(name)


def prefill_tokens(new: Any) -> Any:
    """The tokens of a request that the worker is told of as a new one, outputs included if it had any."""
    tokens = getattr(new, "prefill_token_ids", None)
    return new.prompt_token_ids if tokens is None else tokens


def admits_whole_by_slots(manager: Any) -> bool:
    """Whether `allocate_slots` itself is told that the whole sequence must fit; 0.20 asks before it calls it."""
    return "full_sequence_must_fit" in inspect.signature(manager.allocate_slots).parameters


def hold_back(scheduler: Any, request: Any) -> Callable[[], None]:
    """Make the step that comes pass over a running request; call what is returned behind it."""
    if hasattr(request, "next_decode_eligible_step"):
        name, value = "next_decode_eligible_step", scheduler.current_step + 2
    else:  # a promise of fewer tokens than are known leaves none to schedule
        name, value = "num_output_placeholders", request.num_computed_tokens - request.num_tokens_with_spec
    kept = getattr(request, name)
    setattr(request, name, value)
    return lambda: setattr(request, name, kept)


def rehash(request: Any) -> None:
    """Compute a request's block hashes anew."""
    del request.block_hashes[:]
    if hasattr(request, "update_block_hashes"):
        request.update_block_hashes()
    else:
        request.block_hashes.extend(request.get_hash_new_full_blocks())


def flat(blocks: Any) -> list[Any]:
    """The blocks that a pool is told to touch: a list, or a list per KV cache group."""
    return [block for part in blocks for block in (part if isinstance(part, (list, tuple)) else (part,))]


def around_table_free(wrap: Wrap, single: Any, change: Callable[[list[Any]], list[Any]]) -> None:
    """Let `change` say which blocks of a table, in table order, go back to the pool when it is freed."""
    if hasattr(single, "pop_blocks_for_free"):

        def pop(original: Callable[..., Any], name: str) -> Any:
            return change(list(original(name)))

        wrap(single, "pop_blocks_for_free", pop)
        return

    def free(original: Callable[..., Any], name: str) -> Any:
        table = single.req_to_blocks.get(name)
        if table:
            table[:] = change(list(table))
        return original(name)

    wrap(single, "free", free)
