"""edge/*: the ends of a request's life."""

from __future__ import annotations

from collections.abc import Iterator

from preempt_spec.events import Abort, Load
from preempt_spec.micro import Close, Grant
from preempt_spec.rules.rule import Kind, on, rule
from preempt_spec.view import HOLE, Place, View

ABORT = rule(
    "edge/abort",
    Kind.MUST,
    "After an abort the request is out of every queue at the next boundary, and its blocks are free once fences drain.",
)


@on(ABORT, Abort, "free")
def blocks_come_back(s: View, e: Abort) -> Iterator[str | None]:
    """The abort frees what only this request held."""
    for g, told in enumerate(e.observed.free or ()):
        shared = s.shared(g)
        table = s.request(e.request).tables[g] if e.until is None else ()
        kept = [b for b in table if b in shared or s.fence(g, b) is not None or s.arriving(g, b)]
        back = sum(b != HOLE for b in table) - len(kept)
        after = s.free(g) + back
        yield None if told == after else f"after the abort of {e.request} {told} blocks are free, not {after}"


@on(ABORT, Abort, "release")
def all_of_it_taken_back(s: View, e: Abort) -> Iterator[str | None]:
    """The allocator takes back every block of the request; of who loads, perhaps only when the copy is over."""
    if e.blocks is None or e.until is not None:
        return
    loads = s.request(e.request).place is Place.LOADING
    for g, table in enumerate(s.request(e.request).tables):
        kept = {b for b in table if b == HOLE or s.arriving(g, b) or (loads and s.pinned(g, b))}
        missing = {*table} - kept - {*(e.blocks[g] if e.blocks else ())}
        yield f"block {min(missing)} of {e.request} was not taken back at its abort" if missing else None


@on(ABORT, Close, "queues")
def out_of_every_queue(s: View, e: Close) -> Iterator[str | None]:
    """At the next boundary no queue names it."""
    o = e.step.observed
    if o.running is None or o.waiting is None:
        return
    for r in s.aborted:
        if r not in s.live():  # the id may be in use again
            queued = any(r in (queue or ()) for queue in (o.running, o.waiting, o.swapped, o.loading))
            yield f"{r} was aborted and is still queued" if queued else None


@on(ABORT, Grant)
@on(ABORT, Load)
def granted_nothing(s: View, e: Grant | Load) -> Iterator[str | None]:
    """No pass is run for it any more, and nothing loaded."""
    if e.request in s.aborted and e.request not in s.live():
        what = f"granted {e.tokens} tokens" if isinstance(e, Grant) else f"given {e.computed} computed ones"
        yield f"{e.request} was aborted and is {what}"


@on(ABORT, Close, "queues")
def fences_drain(s: View, e: Close) -> Iterator[str | None]:
    """Once the frame of a fence came back, its blocks are free."""
    for b, until in s.overdue():
        yield f"block {b} is still fenced; frame {until}, which it waited for, came back before this step"


STATS = rule(
    "edge/stats",
    Kind.POLICY,
    "The engine counts as many preemptions as there were; 0 <= external <= cached tokens, at most the prompt at first, "
    "and at most what is known at a resume.",
    since="1.0",
)


@on(STATS, Close, "stats")
def counts_its_preemptions(s: View, e: Close) -> Iterator[str | None]:
    """The counter says what happened."""
    told = e.step.observed.preemptions
    if told is not None:
        yield None if told == s.preemptions else f"the engine counts {told} preemptions; there were {s.preemptions}"


@on(STATS, Close, "stats")
def counts_what_was_cached(s: View, e: Close) -> Iterator[str | None]:
    """Nothing can be cached that was not asked for."""
    for told in e.step.observed.cached or ():
        if told.request not in s.plan.admitted:
            continue
        r = s.request(told.request)
        most = len(r.tokens) if r.preempted else r.prompt
        if not 0 <= told.external <= told.tokens <= most:
            yield f"{told.request} counts {told.tokens} cached tokens of {most}, {told.external} of them external"
        else:
            yield None
