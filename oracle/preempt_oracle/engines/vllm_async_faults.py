"""Faults put into vLLM: outputs that fly, drafts, the operator's controls, its counters. See `vllm_faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines.faults import Fault, Injection
    from preempt_oracle.engines.vllm_faults_parts import after_preemption, running
else:
    from faults import Fault, Injection
    from vllm_faults_parts import after_preemption, running


def _drops_what_was_sampled(into: Injection, scheduler: Any) -> None:
    def spoil(request: Any) -> bool:
        if not request.num_stale_output_tokens or request.drop_stale_output:
            return False
        request.drop_stale_output = True
        return True

    after_preemption(into, scheduler, spoil)


def _keeps_what_a_reset_dropped(into: Injection, scheduler: Any) -> None:
    def update(original: Callable[..., Any], planned: Any, sampled: Any) -> Any:
        requests = [scheduler.requests[name] for name in planned.num_scheduled_tokens if name in scheduler.requests]
        dropped = [r for r in requests if r.num_stale_output_tokens and r.drop_stale_output]
        for request in dropped:
            request.drop_stale_output = False
            if sampled.sampled_token_ids[sampled.req_id_to_index[request.request_id]]:
                into.acted()
        answer = original(planned, sampled)
        for request in dropped:
            request.drop_stale_output = True
        return answer

    into.wrap(scheduler, "update_from_output", update)


def _does_not_wait_for_what_flies(into: Injection, scheduler: Any) -> None:
    def schedule(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        hidden = [r for r in scheduler.waiting if r.num_stale_output_tokens and not r.drop_stale_output]
        for request in hidden:
            request.drop_stale_output = True
        output = original(*args, **kwargs)
        for request in hidden:
            request.drop_stale_output = False
            if running(request):
                into.acted()
        return output

    into.wrap(scheduler, "schedule", schedule)


def _takes_too_much_back(into: Injection, scheduler: Any) -> None:
    def update(original: Callable[..., Any], planned: Any, sampled: Any) -> Any:
        rejected = [
            name
            for name, drafts in planned.scheduled_spec_decode_tokens.items()
            if 0 < len(sampled.sampled_token_ids[sampled.req_id_to_index[name]]) <= len(drafts)
        ]
        answer = original(planned, sampled)
        for name in rejected:
            request = scheduler.requests.get(name)
            if request is not None and running(request) and request.num_computed_tokens > 1:
                request.num_computed_tokens -= 1
                into.acted()
        return answer

    into.wrap(scheduler, "update_from_output", update)


def _keeps_the_drafts_of_a_victim(into: Injection, scheduler: Any) -> None:
    def spoil(request: Any) -> bool:
        request.spec_token_ids = [1]
        return True

    after_preemption(into, scheduler, spoil)


def _changes_what_was_accepted(into: Injection, scheduler: Any, change: Callable[[list[int]], None]) -> None:
    def update(original: Callable[..., Any], request: Any, tokens: list[int], *args: Any, **kwargs: Any) -> Any:
        if len(tokens) > 1 and request.num_output_tokens + len(tokens) < request.max_tokens:
            change(tokens)
            into.acted()
        return original(request, tokens, *args, **kwargs)

    into.wrap(scheduler, "_update_request_with_output", update)


def _loses_an_accepted_draft(into: Injection, scheduler: Any) -> None:
    _changes_what_was_accepted(into, scheduler, lambda tokens: tokens.__delitem__(-1))


def _repeats_an_accepted_draft(into: Injection, scheduler: Any) -> None:
    _changes_what_was_accepted(into, scheduler, lambda tokens: tokens.insert(0, tokens[0]))


def _counts_twice(into: Injection, scheduler: Any) -> None:
    def spoil(request: Any) -> bool:
        request.num_preemptions += 1
        return True

    after_preemption(into, scheduler, spoil)


def _counts_more_than_was_asked(into: Injection, scheduler: Any) -> None:
    def allocate(original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        granted = original(request, *args, **kwargs)
        if granted is not None and request.status.name == "WAITING":
            request.prefill_stats.num_cached_tokens = request.num_prompt_tokens + 1
            into.acted()
        return granted

    into.wrap(scheduler.kv_cache_manager, "allocate_slots", allocate)


def _admits_while_paused(into: Injection, scheduler: Any) -> None:
    def schedule(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        state = scheduler.pause_state
        free = {state_.name: state_ for state_ in type(state)}["UNPAUSED"]
        if state == free or scheduler.running or not scheduler.waiting:
            return original(*args, **kwargs)
        scheduler.set_pause_state(free)
        try:
            output = original(*args, **kwargs)
        finally:
            scheduler.set_pause_state(state)
        if output.num_scheduled_tokens:
            into.acted()
        return output

    into.wrap(scheduler, "schedule", schedule)


FLIES = {"frames": 2}
DRAFTS = {"drafts": True}

FAULTS = (
    Fault(
        "stale-dropped",
        "Drops an output that was in flight when its request was preempted for room.",
        ("frame/once",),
        _drops_what_was_sampled,
        config=FLIES,
    ),
    Fault(
        "stale-kept",
        "Appends an output that was in flight at a reset.",
        ("frame/once",),
        _keeps_what_a_reset_dropped,
        config=FLIES,
        script=("reset",),
    ),
    Fault(
        "stale-not-awaited",
        "Resumes a victim while an output that will be appended is in flight.",
        ("queue/order",),
        _does_not_wait_for_what_flies,
        config={"frames": 3},
    ),
    Fault(
        "rejected-too-many",
        "Takes one computed token too many back when drafts are rejected.",
        ("frame/once",),
        _takes_too_much_back,
        config=DRAFTS,
    ),
    Fault(
        "victim-keeps-drafts",
        "Leaves a victim the drafts of its next grant.",
        ("victim/reset",),
        _keeps_the_drafts_of_a_victim,
        config=DRAFTS,
    ),
    Fault(
        "accepted-lost",
        "Appends one token less than was accepted and sampled.",
        ("output/stream",),
        _loses_an_accepted_draft,
        config=DRAFTS,
    ),
    Fault(
        "accepted-repeated",
        "Appends the first of several accepted tokens twice.",
        ("output/stream",),
        _repeats_an_accepted_draft,
        config={**DRAFTS, "frames": 1},
    ),
    Fault(
        "counts-preemptions-twice",
        "Counts each preemption twice.",
        ("edge/stats",),
        _counts_twice,
    ),
    Fault(
        "counts-cached-beyond-prompt",
        "Counts one more cached token than the prompt has.",
        ("edge/stats",),
        _counts_more_than_was_asked,
    ),
    Fault(
        "admits-while-paused",
        "Admits a request while the operator has paused the scheduler.",
        ("queue/admission",),
        _admits_while_paused,
        script=("pause",),
    ),
)
