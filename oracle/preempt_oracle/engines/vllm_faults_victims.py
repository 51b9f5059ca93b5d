"""Faults put into vLLM: whom it preempts, when, and what becomes of the victim. See `vllm_faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines import vllm_seams as seams
    from preempt_oracle.engines.faults import Fault, Injection
    from preempt_oracle.engines.vllm_faults_parts import PRIORITY, Parts, Steps, after_preemption, nothing, running
else:
    import vllm_seams as seams
    from faults import Fault, Injection
    from vllm_faults_parts import PRIORITY, Parts, Steps, after_preemption, nothing, running


def _second_worst(into: Injection, scheduler: Any) -> None:
    parts = Parts(scheduler)
    best = (-(10**9), -1.0)  # before everybody
    hidden: list[tuple[Any, tuple[int, float]]] = []

    def allocate(original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        granted = original(request, *args, **kwargs)
        queue = scheduler.running
        if granted is not None or not running(request):
            return granted
        if scheduler.policy.value == "priority":
            if len(queue) > 1:
                worst = max(queue, key=lambda r: (r.priority, r.arrival_time))
                hidden.append((worst, (worst.priority, worst.arrival_time)))
                worst.priority, worst.arrival_time = best
                into.acted()
        elif queue.index(request) < len(queue) - 2:  # neither of the two has been looked at in this step
            queue[-2:] = queue[:-3:-1]
            into.acted()
        return granted

    def show(_: Any) -> None:
        while hidden:
            worst, kept = hidden.pop()
            worst.priority, worst.arrival_time = kept

    into.wrap(parts.manager, "allocate_slots", allocate)
    seams.around_preemption(into.wrap, scheduler, show, nothing)


def _although_it_fits(into: Injection, scheduler: Any) -> None:
    parts, steps = Parts(scheduler), Steps(into, scheduler)
    fooled: set[tuple[int, str]] = set()

    def allocate(original: Callable[..., Any], request: Any, tokens: int, *args: Any, **kwargs: Any) -> Any:
        at = steps.attempt(request)
        if running(request) and len(scheduler.running) > 1 and at not in fooled and parts.short(request, tokens) <= 0:
            fooled.add(at)
            into.acted()
            return None
        fooled.add(at)  # only the first victim of a trigger is one too early
        return original(request, tokens, *args, **kwargs)

    into.wrap(parts.manager, "allocate_slots", allocate)


def _one_more(into: Injection, scheduler: Any) -> None:
    parts, steps = Parts(scheduler), Steps(into, scheduler)
    failed: dict[tuple[int, str], bool] = {}  # a request that did not fit, and whether it was lied to since

    def allocate(original: Callable[..., Any], request: Any, tokens: int, *args: Any, **kwargs: Any) -> Any:
        at = steps.attempt(request)
        if failed.get(at) is False and request in scheduler.running and parts.short(request, tokens) <= 0:
            failed[at] = True
            into.acted()
            return None
        granted = original(request, tokens, *args, **kwargs)
        if granted is None and running(request):
            failed.setdefault(at, False)
        return granted

    into.wrap(parts.manager, "allocate_slots", allocate)


def _nobody(into: Injection, scheduler: Any) -> None:
    parts = Parts(scheduler)
    stuck: list[Any] = []

    def allocate(original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        stuck.clear()
        granted = original(request, *args, **kwargs)
        # The last of the walk: those behind it would rightly complain that they were not looked at.
        if granted is None and running(request) and request is scheduler.running[-1]:
            stuck.append(request)
        return granted

    def may_be_freed(original: Callable[..., Any], victim: Any) -> Any:
        if stuck:
            stuck.clear()
            into.acted()
            return False
        return original(victim)

    into.wrap(parts.manager, "allocate_slots", allocate)
    into.wrap(scheduler, "_request_blocks_can_be_freed", may_be_freed)


def _for_an_admission(into: Injection, scheduler: Any) -> None:
    parts = Parts(scheduler)
    whole = {"full_sequence_must_fit": True} if seams.admits_whole_by_slots(parts.manager) else {}

    def schedule(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if scheduler.waiting and len(scheduler.running) > 1:
            head = scheduler.waiting.peek_request()
            if -(-head.num_tokens // parts.page) > parts.free():
                parts.manager.allocate_slots(head, head.num_tokens, **whole)  # in vain
                into.acted()
                seams.preempt(scheduler, scheduler.running.pop())
        return original(*args, **kwargs)

    into.wrap(scheduler, "schedule", schedule)


def _unseen(into: Injection, scheduler: Any) -> None:
    parts = Parts(scheduler)

    def schedule(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if len(scheduler.running) > 1 and not parts.free():
            victim = scheduler.running.pop()
            parts.coordinator.free(victim.request_id)
            victim.num_computed_tokens = 0
            victim.status = type(victim.status).PREEMPTED
            scheduler.waiting.prepend_request(victim)
            into.acted()
        return original(*args, **kwargs)

    into.wrap(scheduler, "schedule", schedule)


def _wrong_end(into: Injection, scheduler: Any) -> None:
    def spoil(request: Any) -> bool:
        queue = scheduler.waiting
        before = [*queue]
        queue.remove_request(request)
        if scheduler.policy.value != "priority":
            queue.add_request(request)
            return [*queue] != before
        kept = request.priority
        request.priority += 10**6
        queue.add_request(request)
        if [*queue] != before:
            return True
        queue.remove_request(request)  # it was the last anyway
        request.priority = kept
        queue.add_request(request)
        return False

    after_preemption(into, scheduler, spoil)


def _still_running(into: Injection, scheduler: Any) -> None:
    victims: list[Any] = []

    def schedule(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        victims.clear()
        output = original(*args, **kwargs)
        if victims:
            # Behind the plan, or vLLM would plan the victim again in the same step.
            scheduler.running.extend(victims)
            into.acted()
        return output

    def spoil(request: Any) -> bool:
        victims.append(request)
        return False

    into.wrap(scheduler, "schedule", schedule)
    after_preemption(into, scheduler, spoil)


def _lost(into: Injection, scheduler: Any) -> None:
    def spoil(request: Any) -> bool:
        scheduler.waiting.remove_request(request)
        return True

    after_preemption(into, scheduler, spoil)


def _still_computed(into: Injection, scheduler: Any) -> None:
    computed: list[int] = []

    def remember(request: Any) -> None:
        computed[:] = [request.num_computed_tokens]

    def restore(request: Any) -> None:
        if computed[0]:
            request.num_computed_tokens = computed[0]
            into.acted()

    seams.around_preemption(into.wrap, scheduler, remember, restore)


def _forgets_an_output(into: Injection, scheduler: Any) -> None:
    def spoil(request: Any) -> bool:
        if not request._output_token_ids:
            return False
        del request._output_token_ids[-1], request._all_token_ids[-1]
        return True

    after_preemption(into, scheduler, spoil)


def _twice(into: Injection, scheduler: Any) -> None:
    def preempt(original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        original(request, *args, **kwargs)
        into.acted()
        return original(request, *args, **kwargs)

    into.wrap(scheduler, "_preempt_request", preempt)


def _keeps_its_grant(into: Injection, scheduler: Any) -> None:
    parts = Parts(scheduler)
    granted: dict[str, int] = {}
    victims: set[str] = set()

    def schedule(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        granted.clear()
        victims.clear()
        output = original(*args, **kwargs)
        plan = output.num_scheduled_tokens
        if any(name in granted and name not in plan for name in victims):
            real = dict(plan)
            plan.clear()
            plan.update({name: real.get(name, n) for name, n in granted.items() if name in real or name in victims})
            output.total_num_scheduled_tokens = sum(plan.values())
            into.acted()
        return output

    def allocate(original: Callable[..., Any], request: Any, tokens: int, *args: Any, **kwargs: Any) -> Any:
        answer = original(request, tokens, *args, **kwargs)
        if answer is not None:
            granted[request.request_id] = tokens
        return answer

    def spoil(request: Any) -> bool:
        victims.add(request.request_id)
        return False

    into.wrap(scheduler, "schedule", schedule)
    into.wrap(parts.manager, "allocate_slots", allocate)
    after_preemption(into, scheduler, spoil)


FAULTS = (
    Fault(
        "wrong-victim",
        "Preempts the second worst request instead of the worst (the second last under FCFS).",
        ("victim/choice",),
        _second_worst,
        also=("victim/unplan",),
        why="before 0.12 vLLM itself leaves a victim the grant it has, and the wrong victim may have one",
    ),
    Fault(
        "needless-preemption",
        "Preempts for a running request that fits in the free blocks.",
        ("victim/necessity",),
        _although_it_fits,
    ),
    Fault(
        "one-preemption-too-many",
        "Preempts once more when the victim before has given enough.",
        ("victim/minimal",),
        _one_more,
    ),
    Fault(
        "nobody-preempted",
        "Passes over a running request that cannot grow, and preempts nobody for it.",
        ("victim/duty",),
        _nobody,
    ),
    Fault(
        "preempts-for-an-admission",
        "Preempts the last running request because the head of the waiting queue does not fit.",
        ("victim/trigger",),
        _for_an_admission,
    ),
    Fault(
        "preempted-on-a-side-path",
        "Takes a request's memory by a path of its own, which is no preemption to anybody who looks for one.",
        ("pool/free-once",),
        _unseen,
        why="a release must follow its own demotion: this one follows none",
    ),
    Fault(
        "wrong-requeue-end",
        "Puts a victim at the back of the waiting queue (behind all priorities under PRIORITY).",
        ("queue/front",),
        _wrong_end,
    ),
    Fault(
        "victim-kept-in-running",
        "Leaves the victims of a step in the running queue as well.",
        ("queue/one-place",),
        _still_running,
    ),
    Fault(
        "victim-lost",
        "Takes a victim out of the running queue and puts it into no other.",
        ("queue/one-place",),
        _lost,
    ),
    Fault(
        "computed-not-reset",
        "Frees the blocks of a victim and goes on counting its tokens as computed.",
        ("victim/reset",),
        _still_computed,
    ),
    Fault(
        "output-forgotten",
        "Forgets the last output of a request when it is preempted.",
        ("victim/keep-tokens",),
        _forgets_an_output,
    ),
    Fault(
        "preempted-twice",
        "Preempts a victim a second time, on which an assertion of vLLM fails.",
        ("live/survives",),
        _twice,
    ),
    Fault(
        "grant-kept",
        "Leaves a victim that was granted tokens earlier in the step in the plan.",
        ("victim/unplan",),
        _keeps_its_grant,
        policies=PRIORITY,  # under FCFS a victim stands behind whoever it is preempted for, and has no grant yet
        config={"drafts": False},  # its drafts are taken back all the same, and what it is granted is then unknown
        script=("priority",),
    ),
)
