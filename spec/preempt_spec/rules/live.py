"""live/*: something good happens, in the end."""

from __future__ import annotations

from collections.abc import Iterator

from preempt_spec.events import EngineError, Reject
from preempt_spec.micro import Close, Grant
from preempt_spec.policies.admission import oversize
from preempt_spec.policies.policy import Oversize
from preempt_spec.policies.progress import patience, waits
from preempt_spec.rules.rule import Kind, on, rule
from preempt_spec.view import Place, View

PROGRESS = rule(
    "live/progress",
    Kind.MUST,
    "Within K steps with no environment obligation pending: a new computed high-water mark, a token or a finish.",
)


@on(PROGRESS, Close)
def moves(s: View, e: Close) -> Iterator[str | None]:
    """The number of steps since the last progress stays below the profile's K. Idle polls are not counted."""
    if not s.live() or waits(s):
        return
    k = patience(s.policy, s.limits)
    new = any(start + n > s.request(r).peak for r, (start, n) in s.plan.granted.items())
    yield (
        None
        if new or s.stall < k
        else f"{s.stall + 1} steps without progress (K = {k}); live are {sorted(s.live())[:4]}"
    )


THRASH = rule(
    "live/no-thrash",
    Kind.POLICY,
    "Without progress no state comes back; tokens computed again per delivered token stay below the profile's number.",
    since="1.0",
    lacks={
        "vector": "a circle is a whole run in which each step keeps every other rule: it is recorded as such from an "
        "engine that goes in one (fault-livelock), and is not a few words changed in a trace that gets on",
    },
)


@on(THRASH, Close, "queues")
def goes_in_no_circle(s: View, e: Close) -> Iterator[str | None]:
    """What decides by queues, tables and cache alone, and finds them as they were, does the same again, for ever."""
    # A cache's order of eviction cannot be seen: with one, an equal state may go on differently.
    hidden = s.policy.hidden or s.limits.caching or any(s.host_extent(g) for g in range(len(s.groups)))
    if hidden or s.cycle is None or s.preemptions == s.cycle.preemptions:
        return
    back = s.fingerprint() == s.cycle.state
    yield f"{s.cycle.age + 1} steps and a preemption later all is as it was, without progress" if back else None


@on(THRASH, Close)
def taxed_moderately(s: View, e: Close) -> Iterator[str | None]:
    """Preemption does not cost more than the profile allows."""
    if s.policy.tax is not None and s.recomputed:
        most = s.policy.tax * (s.delivered + s.limits.max_length)
        yield None if s.recomputed <= most else f"{s.recomputed} tokens computed again for {s.delivered} delivered"


OVERSIZE = rule("live/oversize", Kind.MUST, "Inside the contract, what cannot fit is refused alone, with an error.")


@on(OVERSIZE, Reject, "reject")
def refused_rightly(s: View, e: Reject) -> Iterator[str | None]:
    """Only what cannot fit is refused, and the refusal says why."""
    fits = not oversize(s, s.request(e.request))
    yield (
        f"{e.request} fits and was refused ({e.reason or 'no reason'})"
        if fits
        else None
        if e.reason
        else f"{e.request} was refused without a reason"
    )


@on(OVERSIZE, Grant, "reject")
def never_started(s: View, e: Grant) -> Iterator[str | None]:
    """What cannot fit is not admitted."""
    r = s.request(e.request)
    if s.policy.oversize is Oversize.SCHEDULER and r.place is Place.WAITING:
        yield f"{e.request} can never fit and was admitted" if oversize(s, r) else None


SURVIVES = rule(
    "live/survives",
    Kind.MUST,
    "An exception raised by engine code on an admissible workload is a violation; the innermost frame decides whose it "
    "is.",
)


@on(SURVIVES, Close)
def step_returned(s: View, e: Close) -> Iterator[str | None]:
    """The engine lived through one more step."""
    yield None


@on(SURVIVES, EngineError)
def engine_raised(s: View, e: EngineError) -> Iterator[str | None]:
    """The engine's own code raised."""
    if e.origin == "engine":
        yield f"{e.kind} in {e.where or 'the engine'}: {e.message}"
