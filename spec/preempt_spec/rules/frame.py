"""frame/*: what becomes of what flying frames owe."""

from __future__ import annotations

from collections.abc import Iterator

from preempt_spec.events import Deliver
from preempt_spec.micro import Grant
from preempt_spec.rules.rule import Kind, on, rule
from preempt_spec.view import Fate, Place, View

FRAME = rule(
    "frame/once",
    Kind.MUST,
    "What a frame owes a request is delivered, empty or dropped, exactly once; which one is fixed when the request is "
    "preempted, by its cause; a stale output is appended or dropped and touches nothing else.",
    since="1.0",
)


@on(FRAME, Deliver)
def each_once(s: View, e: Deliver) -> Iterator[str | None]:
    """Every request that the frame granted comes back once, and nobody else."""
    due = s.frames.get(e.frame)
    if due is None:
        # Of a frame that granted nothing a runner may well report nothing.
        twice = f"frame {e.frame} is delivered and does not fly: it was delivered before, or granted nothing"
        yield twice if e.requests else None
        return
    for r in dict.fromkeys(e.requests):
        if e.requests.count(r) > 1:
            yield f"{r} is delivered twice by frame {e.frame}"
        else:
            yield None if r in due else f"{r} is delivered by frame {e.frame}, which did not grant it"
    for r, x in due.items():
        # Of a request that is over, and of one whose output is dropped, nothing need be said.
        if x.outputs and x.fate in (Fate.LIVE, Fate.DELIVER) and r not in e.requests:
            yield f"the output of {r} from frame {e.frame} was lost"


@on(FRAME, Deliver)
def as_was_fixed(s: View, e: Deliver) -> Iterator[str | None]:
    """An output is appended or dropped as its fate says."""
    due = s.frames.get(e.frame, {})
    for i, r in enumerate(e.requests):
        if r not in due:
            continue
        x, state = due[r], e.disposition[i] if e.disposition is not None else "delivered"
        if x.fate in (Fate.GONE, Fate.DROP):
            why = "is over" if x.fate is Fate.GONE else "was preempted and its output is not to be appended"
            yield f"{r} {why}: frame {e.frame} delivered to it" if state == "delivered" and e.tokens[i] else None
        elif x.outputs:
            yield None if state == "delivered" else f"the output of {r} from frame {e.frame} was {state}"


@on(FRAME, Grant, "start")
def goes_on_where_it_was(s: View, e: Grant) -> Iterator[str | None]:
    """A running request is granted what follows its computed tokens: no delivery moved them that must not."""
    r = s.request(e.request)
    if r.place is Place.RUNNING and e.start is not None and e.request not in s.plan.granted:
        yield (
            None if e.start == r.computed else f"{e.request} has {r.computed} computed tokens and goes on at {e.start}"
        )
