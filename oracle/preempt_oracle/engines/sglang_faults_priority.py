"""Faults of SGLang: who makes way for an admission by priority. See `sglang_faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
else:
    from faults import Fault, Injection

_PRIORITY = ("sglang-priority",)


def _decides(into: Injection, on: Any, decide: Callable[[Any, Any, Any], bool]) -> None:
    """`decide` answers, in the engine's stead, whether somebody made way for a request."""
    into.wrap(on.sgl.adder, "preempt_to_schedule", decide)


def _makes_way(adder: Any, victim: Any) -> None:
    """As the engine does it, for one victim."""
    batch = adder.running_batch
    index = next(i for i, r in enumerate(batch.reqs) if r is victim)
    adder.memory_budget.total_offset -= adder._get_running_request_total_token_offset(victim)
    batch.release_req(index, len(batch.reqs) - 1)
    batch.filter_batch(keep_indices=[i for i in range(len(batch.reqs)) if i != index])
    adder.preempt_list.append(victim)


def _leaving(req: Any) -> tuple[int, float]:
    return req.priority, req.time_stats.wait_queue_entry_time


def _too_easily(into: Injection, on: Any) -> None:
    def decide(original: Any, adder: Any, req: Any) -> bool:
        least, before = adder.priority_scheduling_preemption_threshold, list(adder.preempt_list)
        adder.priority_scheduling_preemption_threshold = least - 1
        answer = original(adder, req)
        adder.priority_scheduling_preemption_threshold = least
        gone = [r for r in adder.preempt_list if all(r is not x for x in before)]
        if any(r.priority - req.priority <= least for r in gone):
            into.acted()
        return bool(answer)

    _decides(into, on, decide)


def _instead(into: Injection, on: Any, choose: Callable[[Any, Any], Any]) -> None:
    """Somebody else makes way, if `choose` finds one, where the engine would have taken one victim."""

    def decide(original: Any, adder: Any, req: Any) -> bool:
        another = choose(adder, req)
        if another is None:
            return bool(original(adder, req))
        into.acted()
        _makes_way(adder, another)
        return True

    _decides(into, on, decide)


def _worse(adder: Any, req: Any) -> list[Any]:
    """Who may make way, the first to go first."""
    least = adder.priority_scheduling_preemption_threshold
    who = [r for r in adder.running_batch.reqs if not r.finished() and r.priority - req.priority > least]
    return sorted(who, key=_leaving, reverse=True)


def _better(into: Injection, on: Any) -> None:
    def choose(adder: Any, req: Any) -> Any:
        who = [r for r in adder.running_batch.reqs if not r.finished() and r.priority < req.priority]
        return min(who, key=_leaving, default=None)

    _instead(into, on, choose)


def _least_bad(into: Injection, on: Any) -> None:
    def choose(adder: Any, req: Any) -> Any:
        who = _worse(adder, req)
        return who[-1] if who and who[-1].priority < who[0].priority else None

    _instead(into, on, choose)


def _first_entered(into: Injection, on: Any) -> None:
    def choose(adder: Any, req: Any) -> Any:
        who = _worse(adder, req)
        equals = [r for r in who if r.priority == who[0].priority]
        return equals[-1] if len(equals) > 1 else None

    _instead(into, on, choose)


def _goes_on(into: Injection, on: Any) -> None:
    def decide(original: Any, adder: Any, req: Any) -> bool:
        answer = original(adder, req)
        if answer:
            for victim in _worse(adder, req):
                into.acted()
                _makes_way(adder, victim)
        return bool(answer)

    _decides(into, on, decide)


def _beside_a_free_slot(into: Injection, on: Any) -> None:
    def prefill(original: Any, running: Any) -> Any:
        def allocatable(count: Any, *args: Any, **kwargs: Any) -> Any:
            return truth(count, *args, **kwargs) - bool(count)  # else nobody would ever be the first to run

        truth = on.scheduler.get_num_allocatable_reqs
        on.scheduler.get_num_allocatable_reqs = allocatable
        room = truth(len(running.reqs), running_batch=running)
        before = len(running.reqs)
        try:
            plan = original(running)
        finally:
            on.scheduler.get_num_allocatable_reqs = truth
        if room > 0 and len(running.reqs) < before:
            into.acted()
        return plan

    into.wrap(on.scheduler, "get_new_batch_prefill", prefill)


def _for_nothing(into: Injection, on: Any) -> None:
    def decide(original: Any, adder: Any, req: Any) -> bool:
        if original(adder, req):
            into.acted()
        return False

    _decides(into, on, decide)


def _never_sorts(into: Injection, on: Any) -> None:
    def calc(original: Any, queue: Any, *args: Any, **kwargs: Any) -> Any:
        as_queued = list(queue)
        answer = original(queue, *args, **kwargs)
        if any(a is not b for a, b in zip(queue, as_queued, strict=True)):
            into.acted()
            queue[:] = as_queued
        return answer

    into.wrap(on.scheduler.policy, "calc_priority", calc)


def _fault(name: str, does: str, rule: str, put: Any, **config: Any) -> Fault:
    return Fault(name, does, (rule,), put, policies=_PRIORITY, config=config, script=("priority",))


DISPLACING: tuple[Fault, ...] = (
    _fault("displaces-equals", "Displaces who is no better and no worse.", "victim/choice", _too_easily, threshold=0),
    _fault("below-threshold", "Displaces who is not worse enough.", "victim/choice", _too_easily, threshold=1),
    _fault("displaces-better", "Displaces the best of those who are better.", "victim/choice", _better),
    _fault("least-bad", "Displaces the best of those who are worse.", "victim/choice", _least_bad),
    _fault("first-entered", "Of equals displaces who entered first, not last.", "victim/choice", _first_entered),
    _fault("goes-on-displacing", "Displaces everybody it may.", "victim/minimal", _goes_on),
    _fault("beside-a-free-slot", "Displaces although a slot is free.", "victim/necessity", _beside_a_free_slot),
    _fault("displaces-for-nothing", "Displaces, and admits nobody instead.", "victim/trigger", _for_nothing),
    _fault("never-sorts", "Admits by arrival, whatever the priorities.", "queue/order", _never_sorts),
)
