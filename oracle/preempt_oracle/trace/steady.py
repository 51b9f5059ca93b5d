"""Lines of which nothing is new but a little: what a reader hands out for them to who asks for it (`repeats`)."""

from __future__ import annotations

from typing import TypeAlias

from .raw import COUNTS, Deltas, Rest
from .records import Delta, Sent
from .wire import Deliver, Event, Step


class SteadyStep:
    """A step that grants the requests of the step before it the tokens it did, each of them one further on.

    `requests` and `tokens` are the very tuples of that step. The starts, `text` between commas, are those of the step
    before it plus one each. `grown` has what joins tables, where the worker is told of just that, in this order;
    `rest` is what stands behind.
    """

    __slots__ = ("frame", "grown", "requests", "rest", "text", "tokens")

    def __init__(
        self, frame: int, requests: tuple[str, ...], tokens: tuple[int, ...], text: bytes, grown: Deltas, rest: Rest
    ) -> None:
        self.frame, self.requests, self.tokens, self.text = frame, requests, tokens, text
        self.grown, self.rest = grown, rest

    def whole(self) -> Step:
        """As the line has it."""
        rest = self.rest
        blocks, sent = rest.blocks, rest.sent
        if self.grown:
            blocks, sent = tuple([Delta(*d) for d in self.grown]), tuple([Sent(*d) for d in self.grown])
        return Step(
            self.frame, self.requests, self.tokens, COUNTS.decode(b"[" + self.text + b"]"), blocks, sent, rest.resumed,
            rest.hits, rest.drafts, rest.acts, rest.reason, rest.observed,
        )  # fmt: skip


class SteadyDeliver:
    """A frame that brings one token to each request it granted any, and nothing else: `column`, in their order."""

    __slots__ = ("column", "frame", "requests")

    def __init__(self, frame: int, requests: tuple[str, ...], column: tuple[int, ...]) -> None:
        self.frame, self.requests, self.column = frame, requests, column

    def whole(self) -> Deliver:
        """As the line has it."""
        return Deliver(self.frame, self.requests, tuple(zip(self.column)))


Steady: TypeAlias = SteadyStep | SteadyDeliver


def whole(event: Event | Steady) -> Event:
    """The event as the line has it."""
    return event.whole() if isinstance(event, (SteadyStep, SteadyDeliver)) else event
