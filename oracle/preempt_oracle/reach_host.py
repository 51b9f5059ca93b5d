"""Which situations of a host tier a run came through: the proof that generated workloads look where it hurts.

Counted from the events alone, so that it holds for any engine; `preempt_properties.reach` does the same for runs of the
reference, whose state can be asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from attrs import define, field

from preempt_oracle.trace import wire

#: What is counted, per event, and when.
SITUATIONS = {
    "stored": "a copy to the host began",
    "loaded": "a waiting request got blocks that copies fill",
    "loaded behind a hit": "and found its first pages on the device",
    "load failed": "a copy to the device brought nothing",
    "over with its load": "the engine ended a request because its load failed",
    "resumed from a part": "a request goes on behind less than it loaded, because the rest did not come",
    "loaded again": "a request whose load failed as a whole begins another",
    "swapped before a frame": "blocks went out ordered before the very frame that overwrites them",
    "evicted": "the host gave blocks up",
    "host full": "no host block was free at the end of a step",
    "passed over for a copy": "a waiting request was passed over because a copy is in flight",
    "out of order": "a copy ended before an older one",
    "copies beside frames": "several frames and a copy were in flight together",
    "drafts beside a copy": "a frame with drafts left while a copy was in flight",
    "aborted while loading": "a request was cancelled while copies filled its blocks",
    "table kept at an abort": "and the engine kept its blocks until they are over",
    "released behind a copy": "pinned blocks were given up by the copy that held them",
    "aborted behind a fence": "a request was cancelled and its blocks fenced until a frame is back",
    "reset with copies in flight": "the operator reset the caches meanwhile",
    "paused with copies in flight": "the operator paused the scheduler meanwhile",
}


@define
class _Seen:
    """What has to be remembered of the events so far."""

    copies: dict[int, str] = field(factory=dict)  # in flight -> direction
    flying: set[int] = field(factory=set)
    loading: dict[str, int] = field(factory=dict)  # -> tokens that count once its load is there
    emptied: set[str] = field(factory=set)  # load failed, and nothing is left of it

    def situations(self, event: wire.Event) -> Iterator[str]:
        """Those that this event shows, in the order of `SITUATIONS` or not."""
        match event:
            case wire.CopyStart():
                self.copies[event.copy] = event.direction
                if event.direction == "out":
                    yield "stored"
            case wire.CopyDone():
                yield from self._ended(event)
            case wire.Abort():
                yield from self._aborted(event)
            case wire.Finish():
                if event.reason == "error" and event.request in self.loading:
                    yield "over with its load"
                self._gone(event.request)
            case wire.Control():
                if self.copies and event.kind in ("reset", "pause"):
                    yield f"{'reset' if event.kind == 'reset' else 'paused'} with copies in flight"
            case wire.Deliver():
                self.flying.discard(event.frame)
                yield from self._held(event.acts)
            case wire.Step():
                yield from self._step(event)

    def _gone(self, request: str) -> None:
        self.loading.pop(request, None)
        self.emptied.discard(request)

    def _ended(self, event: wire.CopyDone) -> Iterator[str]:
        if min(self.copies, default=event.copy) < event.copy:
            yield "out of order"
        if self.copies.pop(event.copy, "out") == "in" and not event.ok:
            yield "load failed"

    def _aborted(self, event: wire.Abort) -> Iterator[str]:
        if event.request in self.loading and "in" in self.copies.values():
            yield "aborted while loading"
            if any(isinstance(act, wire.Pin) for act in event.acts):
                yield "table kept at an abort"
        if event.until is not None:
            yield "aborted behind a fence"
        self._gone(event.request)

    def _held(self, acts: Iterable[wire.Act]) -> Iterator[str]:
        if any(isinstance(act, wire.Unpin) for act in acts):
            yield "released behind a copy"

    def _step(self, step: wire.Step) -> Iterator[str]:
        for act in step.acts:
            match act:
                case wire.Load():
                    yield "loaded"
                    if act.hit:
                        yield "loaded behind a hit"
                    if act.request in self.emptied:
                        yield "loaded again"
                    self.loading[act.request] = act.computed
                    self.emptied.discard(act.request)
                case wire.Release():
                    if act.request in self.loading:
                        self.emptied.add(act.request)
                case wire.Swap():
                    yield "swapped before a frame"
                case wire.Evict():
                    yield "evicted"
                case wire.Skip() if act.guard.startswith("connector"):
                    yield "passed over for a copy"
                case _:
                    pass
        yield from self._held(step.acts)
        for request, start in zip(step.requests, step.start or (), strict=False):
            # One token less is what a request does not take that has loaded all it knows.
            if 0 < start < self.loading.get(request, 0) - 1:
                yield "resumed from a part"
        for request in step.requests:
            self._gone(request)
        if step.requests:
            self.flying.add(step.frame)
        if self.copies and len(self.flying) > 1:
            yield "copies beside frames"
        if self.copies and step.drafts:
            yield "drafts beside a copy"
        if step.observed.host_free and not min(step.observed.host_free):
            yield "host full"


def seen(events: Iterable[wire.Event]) -> Counter[str]:
    """How often each of `SITUATIONS` came up in a run."""
    state = _Seen()
    return Counter(situation for event in events for situation in state.situations(event))
