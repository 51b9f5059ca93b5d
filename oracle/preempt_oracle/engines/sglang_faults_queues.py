"""Faults of SGLang: its queues, its gates and its streams. See `sglang_faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
else:
    from faults import Fault, Injection


def _queued(into: Injection, on: Any, change: Any) -> None:
    """A victim is queued otherwise; `change` answers whether that made a difference."""

    def queue(original: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(req, *args, **kwargs)
        if req.is_retracted and change(on.scheduler.waiting_queue):
            into.acted()
        return answer

    into.wrap(on.scheduler, "_add_request_to_queue", queue)


def _requeues_in_front(into: Injection, on: Any) -> None:
    def change(queue: list[Any]) -> bool:
        queue.insert(0, queue.pop())
        return len(queue) > 1

    _queued(into, on, change)


def _loses_victim(into: Injection, on: Any) -> None:
    _queued(into, on, lambda queue: queue.pop() is not None)


def _queues_twice(into: Injection, on: Any) -> None:
    def change(queue: list[Any]) -> bool:
        queue.append(queue[-1])
        return True

    _queued(into, on, change)


def _admits_second_first(into: Injection, on: Any) -> None:
    def calc(original: Any, queue: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(queue, *args, **kwargs)
        if len(queue) > 1:
            into.acted()
            queue[0], queue[1] = queue[1], queue[0]
        return answer

    into.wrap(on.scheduler.policy, "calc_priority", calc)


def _keeps_its_order(into: Injection, on: Any) -> None:
    def keep(original: Any, batch: Any, reqs_to_exclude: Any = None, keep_indices: Any = None) -> Any:
        if keep_indices is not None and keep_indices != sorted(keep_indices):
            into.acted()
            keep_indices = sorted(keep_indices)
        return original(batch, reqs_to_exclude, keep_indices)

    into.wrap(on.batch, "filter_batch", keep)


def _rests(into: Injection, on: Any) -> None:
    def update(original: Any, batch: Any) -> Any:
        if batch.check_decode_mem():
            into.acted()
            return None
        return original(batch)

    into.wrap(on.scheduler, "update_running_batch", update)


def _ignores_budget(into: Injection, on: Any) -> None:
    scheduler = on.scheduler

    def prefill(original: Any, *args: Any, **kwargs: Any) -> Any:
        budget = scheduler.max_prefill_tokens
        scheduler.max_prefill_tokens = 2 * budget
        plan = original(*args, **kwargs)
        scheduler.max_prefill_tokens = budget
        if plan.batch_to_run is not None and sum(plan.batch_to_run.extend_lens) > budget:
            into.acted()
        return plan

    into.wrap(scheduler, "get_new_batch_prefill", prefill)


def _ignores_slots(into: Injection, on: Any) -> None:
    def allocatable(original: Any, running: int, *args: Any, **kwargs: Any) -> Any:
        return original(running, *args, **kwargs) + 1

    def prefill(original: Any, running: Any) -> Any:
        plan = original(running)
        if plan.batch_to_run is not None:
            both = len(plan.running_batch.reqs) + len(plan.batch_to_run.reqs)
            if both > on.scheduler.max_running_requests:
                into.acted()
        return plan

    into.wrap(on.scheduler, "get_num_allocatable_reqs", allocatable)
    into.wrap(on.scheduler, "get_new_batch_prefill", prefill)


def _never_resumes(into: Injection, on: Any) -> None:
    def add_one(original: Any, adder: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        if req.output_ids:
            into.acted()
            return type(adder.budget_state()).NO_TOKEN
        return original(adder, req, *args, **kwargs)

    into.wrap(on.sgl.adder, "add_one_req", add_one)


def _loses_token(into: Injection, on: Any) -> None:
    def process(original: Any, processor: Any, batch: Any, result: Any) -> Any:
        answer = original(processor, batch, result)
        if not batch.reqs[-1].finished():
            into.acted()
            batch.reqs[-1].output_ids.pop()
        return answer

    into.wrap(on.sgl.results, "process_batch_result_decode", process)


def _swaps_tokens(into: Injection, on: Any) -> None:
    def process(original: Any, processor: Any, batch: Any, result: Any) -> Any:
        turned = result.next_token_ids.flip(0)
        if (turned != result.next_token_ids).any():
            into.acted()
            result.next_token_ids = turned
        return original(processor, batch, result)

    into.wrap(on.sgl.results, "process_batch_result_decode", process)


def _ends_early(into: Injection, on: Any) -> None:
    def queue(original: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        if req.sampling_params.max_new_tokens > 1 and not req.output_ids:
            into.acted()
            req.sampling_params.max_new_tokens -= 1
        return original(req, *args, **kwargs)

    into.wrap(on.scheduler, "_add_request_to_queue", queue)


def _overhears_abort(into: Injection, on: Any) -> None:
    def abort(_: Any, __: Any) -> None:
        into.acted()

    into.wrap(on.scheduler, "abort_request", abort)


QUEUES: tuple[Fault, ...] = (
    Fault("requeues-in-front", "Puts a victim in front of the queue.", ("queue/front",), _requeues_in_front),
    Fault("loses-victim", "Retracts a request and never queues it again.", ("queue/one-place",), _loses_victim),
    Fault("queues-twice", "Queues a victim twice.", ("queue/one-place",), _queues_twice),
    Fault("admits-second-first", "Turns round the first two who wait.", ("queue/order",), _admits_second_first),
    Fault("keeps-its-order", "Does not sort who stays behind a retraction.", ("queue/order",), _keeps_its_order),
    Fault("rests", "Decodes nobody in a step in which all fit.", ("queue/visit-once",), _rests),
    Fault("ignores-budget", "Prefills up to twice its budget.", ("queue/admission",), _ignores_budget),
    Fault("ignores-slots", "Admits one request more than may run.", ("queue/admission",), _ignores_slots),
    Fault("never-resumes", "Never admits again who has emitted something.", ("live/progress",), _never_resumes),
    Fault("loses-token", "Drops the last token of a decode batch.", ("output/stream",), _loses_token),
    Fault("swaps-tokens", "Deals the tokens of a decode batch out backwards.", ("output/stream",), _swaps_tokens),
    Fault("ends-early", "Ends a request one token before its length.", ("output/stream",), _ends_early),
    Fault(
        "overhears-abort",
        "Leaves an aborted request in its queue.",
        ("edge/abort",),
        _overhears_abort,
        script=("abort",),
    ),
)
