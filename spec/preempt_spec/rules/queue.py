"""queue/*: where requests stand, who is next, who was looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from preempt_spec.events import Demote, Requeue
from preempt_spec.micro import Close, Grant
from preempt_spec.policies.functions import blocks_for, need, next_admitted, requeue_at, skip_guard, slot_free, supply
from preempt_spec.policies.policy import AfterPreemption
from preempt_spec.rules.rule import Kind, on, rule
from preempt_spec.view import Place, View

ONE_PLACE = rule(
    "queue/one-place",
    Kind.MUST,
    "A live request is in exactly one place: waiting, running, swapped, loading, or a declared limbo.",
)


@on(ONE_PLACE, Demote, "demote")
def was_running(s: View, e: Demote) -> Iterator[str | None]:
    """Only who runs can be preempted."""
    place = s.request(e.request).place
    yield None if place is Place.RUNNING else f"{e.request} was preempted while {place.value}"


@on(ONE_PLACE, Requeue, "demote")
def was_out(s: View, e: Requeue) -> Iterator[str | None]:
    """Only who was preempted is requeued."""
    place = s.request(e.request).place
    yield None if place is Place.LIMBO else f"{e.request} was requeued while {place.value}"


@on(ONE_PLACE, Close, "queues")
def queues_partition(s: View, e: Close) -> Iterator[str | None]:
    """The engine's queues hold each live request once."""
    o = e.step.observed
    if o.running is None or o.waiting is None:
        return
    queued = len(s.running) + len(s.waiting)
    if queued == len(s.live()) and [*o.running] == [*s.running] and [*o.waiting] == [*s.waiting]:
        yield None  # equal to the shadow queues, which hold each live request once: nobody is in limbo
        return
    seen = Counter((*o.running, *o.waiting))
    both = [r for r in seen if seen[r] > 1]
    live = s.live()
    if both:
        r = both[0]
        yield f"{r} stands {o.running.count(r)} times in running and {o.waiting.count(r)} times in waiting"
    elif ghosts := [r for r in seen if r not in live and r not in s.aborted]:
        yield f"{ghosts[0]} is over and still queued"
    elif lost := [r for r in live if r not in seen]:
        yield f"{lost[0]} is in no queue"
    else:
        for r in (*s.running, *s.waiting):
            if (r in o.running) != (s.request(r).place is Place.RUNNING):
                yield f"{r} is {s.request(r).place.value} and the engine has it in the other queue"
                return
        yield None


FRONT = rule("queue/front", Kind.POLICY, "A victim re-enters the queue where the profile says.")


@on(FRONT, Requeue, "place")
def at_its_place(s: View, e: Requeue) -> Iterator[str | None]:
    """The index at which the victim was put is the policy's."""
    if e.index is not None:
        at = requeue_at(s, e.request)
        yield (
            None
            if e.index == at
            else f"{e.request} was requeued at {e.index} of {list(s.waiting)}; {s.policy.name} puts it at {at}"
        )


@on(FRONT, Close, "queues demote")
def stays_at_its_place(s: View, e: Close) -> Iterator[str | None]:
    """At the end of the step the victims still stand there."""
    waiting = e.step.observed.waiting
    if waiting is None or not s.plan.requeued:
        return
    told = [r for r in waiting if r in s.live()]
    if set(told) != set(s.waiting):
        return  # queue/one-place speaks of that
    for v in s.plan.requeued:
        if v in told:
            yield (
                None
                if told.index(v) == s.waiting.index(v)
                else f"{v} stands at {told.index(v)} of waiting, not at {s.waiting.index(v)}"
            )


ORDER = rule(
    "queue/order",
    Kind.POLICY,
    "When a request is admitted no older ready one waits; the running queue is in admission order.",
)


@on(ORDER, Grant)
def nobody_overtaken(s: View, e: Grant) -> Iterator[str | None]:
    """The admitted request is the first that is ready."""
    if s.request(e.request).place is Place.WAITING:
        first = next_admitted(s)
        yield None if e.request == first else f"{e.request} was admitted before {first}"


@on(ORDER, Close, "queues")
def queues_in_order(s: View, e: Close) -> Iterator[str | None]:
    """Running is in admission order; waiting, this step's victims apart, in queue order."""
    o = e.step.observed
    if o.running is not None and set(o.running) == set(s.running):
        yield (
            None
            if list(o.running) == list(s.running)
            else f"running is {list(o.running)}, admitted were {list(s.running)}"
        )
    if o.waiting is not None and set(o.waiting) == set(s.waiting):
        told = [r for r in o.waiting if r not in s.plan.requeued]
        want = [r for r in s.waiting if r not in s.plan.requeued]
        yield None if told == want else f"waiting is {told}, queued were {want}"


VISIT_ONCE = rule(
    "queue/visit-once",
    Kind.POLICY,
    "Every running request is considered exactly once in a step; a skip has a true declared guard.",
)


@on(VISIT_ONCE, Grant)
def no_second_visit(s: View, e: Grant) -> Iterator[str | None]:
    """One grant each."""
    yield f"{e.request} is granted tokens twice in this step" if e.request in s.plan.granted else None


@on(VISIT_ONCE, Close)
def no_unexplained_skip(s: View, e: Close) -> Iterator[str | None]:
    """Who ran when the step began was granted tokens, preempted, or passed over for a true reason."""
    plan = s.plan
    for r in plan.entered:
        if r in plan.granted or r in plan.demoted or r not in s.live() or s.request(r).place is not Place.RUNNING:
            yield None
        elif skip_guard(s, r) is not None or need(s, r) > supply(s):
            yield None  # a true guard; or victim/duty speaks of it
        else:
            yield f"{r} runs, was granted nothing, and no declared guard explains it"


ADMISSION = rule(
    "queue/admission",
    Kind.POLICY,
    "Admission respects its gates: none after a preemption (as declared), whole-sequence fit, slots, budget, "
    "watermark.",
)


@on(ADMISSION, Grant)
def within_budget(s: View, e: Grant) -> Iterator[str | None]:
    """The step's grants fit in its budget."""
    spent = s.plan.spent + e.tokens
    yield None if spent <= s.limits.budget else f"{spent} tokens granted with a budget of {s.limits.budget}"


@on(ADMISSION, Grant, "counts")
def gates_open(s: View, e: Grant) -> Iterator[str | None]:
    """Every gate is open to the request that is admitted."""
    r = s.request(e.request)
    if r.place is not Place.WAITING:
        return
    known, hit = len(r.tokens), e.hit or 0
    if s.plan.demoted and s.policy.after_preemption is AfterPreemption.CLOSED:
        yield f"{e.request} was admitted in a step that preempted {s.plan.demoted[0]}"
    elif not slot_free(s):
        yield f"{e.request} was admitted with all {s.limits.max_running} slots of {s.policy.slots.value} taken"
    elif _splits(s, (e.start if e.start is not None else hit) + e.tokens, known):
        yield f"{e.request} was admitted with {e.tokens} tokens of {known} known and chunked prefill is off"
    else:
        yield _fits(s, e, known)


def _splits(s: View, end: int, known: int) -> bool:
    """A first chunk although chunked prefill is off. vLLM's long-prefill cap splits prompts all the same (0.33.0)."""
    return not s.limits.chunked and not s.limits.long_prefill and end < known


def _fits(s: View, e: Grant, known: int) -> str | None:
    """Room for the whole known sequence if the engine promises it, and above the watermark if something runs."""
    mark = s.limits.watermark if s.running else 0
    for g, page in enumerate(s.pages):
        cached = blocks_for(e.hit or 0, page)
        # A hit block that nobody holds comes out of the free set too.
        idle = sum(s.is_free(g, b) for b in e.blocks[g][:cached])
        lack = blocks_for(known, page) - cached if s.limits.whole_fit else len(e.blocks[g]) - cached
        if lack + idle + mark > s.free(g):
            takes = f"it takes {lack + idle} blocks above a watermark of {mark}"
            return f"{e.request} was admitted: {takes}, {s.free(g)} are free"
    return None
