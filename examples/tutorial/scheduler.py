"""A scheduler as one writes it on the first evening: docs/tutorial.md finds its faults."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Request:
    """A request, wherever it is. The first `computed` of its tokens have their KV in the blocks of `table`."""

    name: str
    prompt: list[int]
    max_tokens: int
    output: list[int] = field(default_factory=list)
    computed: int = 0
    table: list[int] = field(default_factory=list)

    @property
    def known(self) -> int:
        """Tokens there are: the prompt, and what came out so far."""
        return len(self.prompt) + len(self.output)


@dataclass(frozen=True)
class Work:
    """What the worker is told to do for a request: compute so many tokens from `start` on.

    `blocks`: its whole block table if it was just admitted, else what the table has grown by.
    """

    request: Request
    start: int
    tokens: int
    blocks: list[int]
    admitted: bool


class Scheduler:
    """Decides, step by step, who computes how many tokens."""

    def __init__(self, blocks: int, page_size: int, max_running: int, budget: int) -> None:
        self.page_size, self.max_running, self.budget = page_size, max_running, budget
        self.free = list(range(blocks))
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.work: list[Work] = []

    def add(self, request: Request) -> None:
        """A request arrives."""
        self.waiting.append(request)

    def abort(self, request: Request) -> None:
        """A user has gone."""
        (self.running if request in self.running else self.waiting).remove(request)

    def schedule(self) -> list[Work]:
        """One decision: whoever runs goes on, in order; then others are admitted, unless somebody was preempted."""
        self.work, left, preempted, i = [], self.budget, False, 0
        while i < len(self.running) and left:
            request = self.running[i]
            tokens = min(request.known - request.computed, left)
            need = self.pages(request.computed) - len(request.table)
            while need > len(self.free) and request in self.running:
                self.preempt(self.victim(), request, need)
                preempted = True
            if request in self.running:
                left -= self.grant(request, tokens)
            i += 1
        while self.waiting and left and not preempted and len(self.running) < self.max_running:
            request = self.waiting[0]
            if self.pages(request.known) > len(self.free):
                break  # whoever does not fit holds up everybody behind it
            self.running.append(self.waiting.pop(0))
            left -= self.grant(request, min(request.known, left), admitted=True)
        return self.work

    def update(self, work: list[Work], tokens: dict[str, list[int]]) -> None:
        """What was sampled for whom; who was cancelled meanwhile gets nothing."""
        for item in work:
            request = item.request
            if request in self.running and request.name in tokens:
                request.output += tokens[request.name]
                if len(request.output) >= request.max_tokens:
                    self.finish(request)

    def grant(self, request: Request, tokens: int, admitted: bool = False) -> int:
        """Blocks first, then the tokens that go into them."""
        blocks: list[int] = []
        for _ in range(self.pages(request.computed + tokens) - len(request.table)):
            blocks.append(self.free.pop())
        request.table += blocks
        told = list(request.table) if admitted else blocks
        self.work.append(Work(request, request.computed, tokens, told, admitted))
        request.computed += tokens
        return tokens

    def victim(self) -> Request:
        """Who must make room: whoever was admitted last, at last the requester itself."""
        return self.running[0]

    def preempt(self, victim: Request, requester: Request, need: int) -> None:
        """The victim gives back all it has, and waits in front: it will be computed anew from its first token."""
        self.running.remove(victim)
        self.release(victim)
        self.waiting.append(victim)

    def finish(self, request: Request) -> None:
        """It has all its tokens."""
        self.running.remove(request)
        self.release(request)

    def release(self, request: Request) -> None:
        """Its blocks go back, and with them what was computed."""
        self.free += request.table
        request.table = []

    def pages(self, tokens: int) -> int:
        """Blocks that so many tokens need."""
        return -(-tokens // self.page_size)
