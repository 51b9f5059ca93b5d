"""edge/*: the ends of a request's life."""

from __future__ import annotations

from collections.abc import Iterator

from preempt_spec.events import Abort
from preempt_spec.micro import Close, Grant
from preempt_spec.rules.rule import Kind, on, rule
from preempt_spec.view import View

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
        back = sum(b not in shared for b in s.request(e.request).tables[g])
        after = s.free(g) + back
        yield None if told == after else f"after the abort of {e.request} {told} blocks are free, not {after}"


@on(ABORT, Abort, "release")
def all_of_it_taken_back(s: View, e: Abort) -> Iterator[str | None]:
    """The allocator takes back every block of the request."""
    if e.blocks is None:
        return
    for g, table in enumerate(s.request(e.request).tables):
        missing = set(table) - set(e.blocks[g] if e.blocks else ())
        yield f"block {min(missing)} of {e.request} was not taken back at its abort" if missing else None


@on(ABORT, Close, "queues")
def out_of_every_queue(s: View, e: Close) -> Iterator[str | None]:
    """At the next boundary no queue names it."""
    o = e.step.observed
    if o.running is None or o.waiting is None:
        return
    for r in s.aborted:
        if r not in s.live():  # the id may be in use again
            yield f"{r} was aborted and is still queued" if r in o.running or r in o.waiting else None


@on(ABORT, Grant)
def granted_nothing(s: View, e: Grant) -> Iterator[str | None]:
    """No pass is run for it any more."""
    if e.request in s.aborted and e.request not in s.live():
        yield f"{e.request} was aborted and is granted {e.tokens} tokens"
