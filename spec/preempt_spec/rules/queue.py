"""queue/*: where requests stand, who is next, who was looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from preempt_spec.events import Demote, Load, Observed, Release, Requeue
from preempt_spec.micro import Close, Grant, grant_start
from preempt_spec.policies.admission import adopts, gate_closed, overtaken, slot_free
from preempt_spec.policies.blocks import blocks_at_once, room, shared_pages
from preempt_spec.policies.policy import AfterPreemption, Idle, Memory, Return
from preempt_spec.policies.pressure import fits
from preempt_spec.policies.queues import requeue_at
from preempt_spec.policies.victims import excused
from preempt_spec.policies.visits import passes_over, readable
from preempt_spec.rules.rule import Kind, on, rule
from preempt_spec.view import HOLE, Place, View, with_holes

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


@on(ONE_PLACE, Load, "demote")
def was_waiting(s: View, e: Load) -> Iterator[str | None]:
    """Only who waits is loaded, or who holds nothing any more because its load failed."""
    place = s.request(e.request).place
    again = place is Place.LOADING and not any(s.request(e.request).tables)
    yield None if place is Place.WAITING or again else f"{e.request} is loaded while {place.value}"


@on(ONE_PLACE, Requeue, "demote")
def was_out(s: View, e: Requeue) -> Iterator[str | None]:
    """Only who was preempted is requeued, or whose load failed."""
    place = s.request(e.request).place
    back = place is Place.LIMBO or (place is Place.LOADING and not any(s.request(e.request).tables))
    yield None if back else f"{e.request} was requeued while {place.value}"


@on(ONE_PLACE, Close, "queues")
def queues_partition(s: View, e: Close) -> Iterator[str | None]:
    """The engine's queues hold each live request once."""
    o = e.step.observed
    if o.running is None or o.waiting is None:
        return
    queued = len(s.running) + len(s.waiting) + len(s.swapped)
    swapped = s.swapped if o.swapped is None else o.swapped
    if (
        queued == len(s.live())
        and not o.loading
        and [*swapped] == [*s.swapped]
        and [*o.running] == [*s.running]
        and [*o.waiting] == [*s.waiting]
    ):
        yield None  # equal to the shadow queues, which hold each live request once: nobody is in limbo
        return
    seen = Counter((*o.running, *o.waiting, *(o.swapped or ()), *(o.loading or ())))
    both = [r for r in seen if seen[r] > 1]
    live = s.live()
    if both:
        r = both[0]
        names = {"running": o.running, "waiting": o.waiting, "swapped": o.swapped, "loading": o.loading}
        yield f"{r} stands in " + " and in ".join(q for q, ids in names.items() for x in ids or () if x == r)
    elif ghosts := [r for r in seen if r not in live and r not in s.aborted]:
        yield f"{ghosts[0]} is over and still queued"
    elif lost := [r for r in live if r not in seen and not _apart(s, o, r)]:
        yield f"{lost[0]} is in no queue"
    else:
        for r in live:
            place = s.request(r).place
            told = {Place.RUNNING: o.running, Place.WAITING: o.waiting, Place.SWAPPED: o.swapped}.get(place, o.loading)
            if place is Place.LOADING and o.loading is None and r not in o.running:
                continue  # an engine may keep who loads among those who wait
            if r in seen and r not in (told or ()):
                yield f"{r} is {place.value} and the engine has it in another queue"
                return
        yield None


def _apart(s: View, o: Observed, r: str) -> bool:
    """Rightly in no queue that was read: swapped or loading, or in the limbo that the profile declares."""
    match s.request(r).place:
        case Place.SWAPPED:
            return o.swapped is None
        case Place.LOADING:
            return o.loading is None
        case Place.LIMBO:
            return s.policy.returns is Return.ACK
    return False


FRONT = rule("queue/front", Kind.POLICY, "A victim re-enters the queue where the profile says.")


@on(FRONT, Requeue, "place")
def at_its_place(s: View, e: Requeue) -> Iterator[str | None]:
    """The index at which the victim was put is the policy's."""
    if e.index is not None and s.request(e.request).place is Place.LIMBO:
        at = requeue_at(s, e.request, e.queue)
        queue = s.swapped if e.queue == "swapped" else s.waiting
        yield (
            None
            if e.index == at
            else f"{e.request} was requeued at {e.index} of {list(queue)}; {s.policy.name} puts it at {at}"
        )


@on(FRONT, Requeue, "place release")
def in_its_queue(s: View, e: Requeue) -> Iterator[str | None]:
    """Whose KV the host holds comes back by way of the swapped queue, everybody else by way of the waiting one."""
    kept = s.policy.memory is Memory.SWAP and s.request(e.request).computed > 0
    if kept or e.queue == "swapped":
        right = kept == (e.queue == "swapped")
        kv = "in the host tier" if kept else "nowhere"
        yield None if right else f"{e.request} was requeued in {e.queue} and its KV is {kv}"


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
        if v in told and v in s.waiting:
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
@on(ORDER, Load)
def nobody_overtaken(s: View, e: Grant | Load) -> Iterator[str | None]:
    """The admitted request is the first that is ready. Who was loading already had its turn."""
    if s.request(e.request).place in (Place.WAITING, Place.SWAPPED) and not passes_over(s.policy):
        first = overtaken(s, e.request)
        yield None if first is None else f"{e.request} was admitted before {first}"


@on(ORDER, Grant, "blocks")
@on(ORDER, Load, "blocks")
def nobody_who_fits_overtaken(s: View, e: Grant | Load) -> Iterator[str | None]:
    """Where a step passes over who does not fit: nobody older that fits, whatever it hits, is passed over."""
    if s.request(e.request).place in (Place.WAITING, Place.SWAPPED) and passes_over(s.policy):
        first = overtaken(s, e.request)
        yield None if first is None else f"{e.request} was admitted before {first}"


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
        elif excused(s, r) or not fits(s, r) or _gave_up_a_load(s, e):
            yield None  # a true guard; or victim/duty speaks of it
        else:
            yield f"{r} runs, was granted nothing, and no declared guard explains it"


def _gave_up_a_load(s: View, e: Close) -> bool:
    """Whether a failed load was given up in this step: its blocks may have come too late for who was passed over."""
    return any(isinstance(a, Release) and a.request not in s.plan.demoted for a in e.step.acts)


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
    if r.place is Place.RUNNING:
        return
    known = len(r.tokens)
    if gate_closed(s):
        yield f"{e.request} was admitted {_after(s)}"
    elif s.paused and r.place is not Place.LOADING:  # who holds memory already goes on
        yield f"{e.request} was admitted while the scheduler is paused"
    elif not slot_free(s):
        yield f"{e.request} was admitted with all {s.limits.max_running} slots of {s.policy.slots.value} taken"
    elif _splits(s, grant_start(s, e) + e.tokens, known):
        yield f"{e.request} was admitted with {e.tokens} tokens of {known} known and chunked prefill is off"
    elif not readable(s, e.request, grant_start(s, e)):
        yield f"{e.request} was admitted at {grant_start(s, e)}: so much more is not read in one step"
    elif r.place is not Place.LOADING:  # its blocks passed the gates when the load began
        yield _fits(s, e, known)


@on(ADMISSION, Load, "counts")
def load_gates_open(s: View, e: Load) -> Iterator[str | None]:
    """Who loads takes memory as who is admitted does: the same gates, the slot apart."""
    if s.request(e.request).place is Place.WAITING:
        if e.runs and not adopts(s, e.request):
            yield f"{e.request} was admitted by a hit alone; {s.policy.name} admits {s.policy.hits.value}"
        elif gate_closed(s):
            yield f"{e.request} begins to load {_after(s)}"
        elif s.paused:
            yield f"{e.request} begins to load while the scheduler is paused"
        else:
            # Who runs by a hit alone takes what is there; what comes behind it is looked at like any growth.
            yield None if e.runs else _fits(s, e, len(s.request(e.request).tokens))


def _after(s: View) -> str:
    if s.policy.after_preemption is AfterPreemption.UNTIL_FINISH:
        return "although nobody finished since the last preemption"
    return f"in a step that preempted {s.plan.demoted[0]}"


def _splits(s: View, end: int, known: int) -> bool:
    """A first chunk although chunked prefill is off. vLLM's long-prefill cap splits prompts all the same (0.33.0)."""
    return not s.limits.chunked and not s.limits.long_prefill and end < known


def _fits(s: View, e: Grant | Load, known: int) -> str | None:
    """Room for the whole known sequence if the engine promises it, and above the watermark if something runs."""
    mark = s.limits.watermark if s.running else 0
    had = s.request(e.request).tables
    for g, group in enumerate(s.groups):
        new = with_holes(group, s.reserved(g), e.blocks[g])
        cached = [b for b in new[: shared_pages(group, e.hit or 0)] if b != HOLE]
        takes = sum(b != HOLE for b in new) - len(cached)
        whole = blocks_at_once(group, known) - sum(b != HOLE for b in had[g]) - len(cached)
        lack = max(takes, whole) if s.limits.whole_fit else takes
        # A hit block that nobody holds comes out of the free set too.
        idle = sum(s.is_free(g, b) for b in cached) if s.policy.idle is Idle.ON_DEMAND else 0
        if lack + idle + mark > room(s, g):
            wants = f"it takes {lack + idle} blocks above a watermark of {mark}"
            return f"{e.request} was admitted: {wants}, {room(s, g)} are free"
    return None
