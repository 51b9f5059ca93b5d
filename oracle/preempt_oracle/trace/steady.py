"""Lines of which nothing is new but a little: what a reader hands out for them to who asks for it (`repeats`)."""

from __future__ import annotations

from typing import TypeAlias

from .raw import COUNTS, Rest
from .wire import Deliver, Event, Step


class SteadyStep:
    """A step that grants the requests of the step before it the tokens it did, each of them one further on.

    `requests` and `tokens` are the very tuples of that step, `rest` what stands behind its starts. The starts, `text`
    between commas, are those of the step before it plus one each.
    """

    __slots__ = ("frame", "requests", "rest", "text", "tokens")

    def __init__(self, frame: int, requests: tuple[str, ...], tokens: tuple[int, ...], text: bytes, rest: Rest) -> None:
        self.frame, self.requests, self.tokens, self.text, self.rest = frame, requests, tokens, text, rest

    def whole(self) -> Step:
        """As the line has it."""
        rest = self.rest
        return Step(
            self.frame, self.requests, self.tokens, COUNTS.decode(b"[" + self.text + b"]"), rest.blocks, rest.sent,
            rest.resumed, rest.hits, rest.drafts, rest.acts, rest.reason, rest.observed,
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
