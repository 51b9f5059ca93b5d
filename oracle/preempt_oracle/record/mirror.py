"""What the adapter's watch, books and flights would have read of a live scheduler, kept from records instead.

Each is the adapter's own class with another source: nothing is wrapped and no scheduler is there, so what they conclude
is concluded by the same lines.
"""

from __future__ import annotations

import heapq
from types import SimpleNamespace
from typing import Any

from preempt_oracle.engines.vllm_async import Flights
from preempt_oracle.engines.vllm_books import Books
from preempt_oracle.engines.vllm_watch import Watch
from preempt_oracle.record import records

Key = tuple[int, float, str]


class Flown(Flights):
    """Only who is held back is asked of it: frames come back by number."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.back: list[str] = []

    def dispatch(self, number: int, output: Any) -> None:
        """Nothing: see the class."""

    def held_back(self) -> list[str]:
        """See `Flights`."""
        return self.back


class Kept(Books):
    """vLLM's books as they were read last."""

    def __init__(self, scheduler: Any, owned: dict[str, list[Any]], small: bool, priority: bool) -> None:
        self.scheduler = scheduler
        self.owned = owned
        self.small = small
        self.offload = None
        self.keys: dict[str, Key] = {}  # live requests: how PRIORITY orders them
        self.placed: int | None = None
        self._priority = priority
        self._running: list[str] = []
        self._waiting: list[str] = []
        self._told = records.Books(0)

    def read(self, told: records.Books) -> None:
        """Read them anew."""
        self._told = told
        if isinstance(told.running, list):
            self._running = told.running
        if told.waiting is not None:
            self._waiting = self.ordered(told.waiting)

    def ordered(self, waiting: records.Waiting) -> list[str]:
        """The order in which vLLM would look at who waits."""
        if not self._priority:
            return waiting.held + waiting.queue
        keys = self.keys
        heap = [keys[name] for name in waiting.queue]
        if waiting.held:  # the better head of the two queues comes next
            return [name for _, _, name in sorted([*heap, *(keys[name] for name in waiting.held)])]
        return [heapq.heappop(heap)[2] for _ in waiting.queue]

    def place(self, request: Any) -> int | None:
        """See `Books`."""
        return self.placed

    def observed(self) -> dict[str, Any]:
        """See `Books`."""
        told, running = self._told, set(self._running)
        waiting = [SimpleNamespace(request_id=name, num_computed_tokens=count) for name, count in told.computed]
        record: dict[str, Any] = {
            "free": [told.free],
            "running": self._running,
            "waiting": self._waiting,
            "held": self.held(running, waiting),
        }
        if told.small is not None:
            record["free_ids"] = [told.small.free_ids]
            record["refs"] = [[0, block, count] for block, count in told.small.refs]
        return record

    def counted(self, admitted: list[str]) -> dict[str, Any]:
        """See `Books`; the counter of preemptions is not looked at in every step."""
        preemptions: int | None = self.scheduler.preemptions
        counted: dict[str, Any] = {"cached": [list(one) for one in self.scheduler.cached]}
        return counted if preemptions is None else counted | {"preemptions": preemptions}


class Mirror(Watch):
    """Everything seen of one scheduler since the last `take`, and the tables as far as they were seen."""

    def __init__(self, begun: records.Begun) -> None:
        owned: dict[str, list[Any]] = {}
        self.scheduler = SimpleNamespace(
            requests=(), pause_state=None, preemptions=None, cached=(), max_model_len=begun.header.limits.max_length
        )
        self.kept = Kept(self.scheduler, owned, begun.small, begun.priority)
        self.begins(self.kept, begun.page_size, SimpleNamespace(blocks=[]), owned)
        self.flights = Flown(self.scheduler)
        self._past = 0

    # -- requests ------------------------------------------------------------------------------------------------------

    def arrived(self, told: records.Arrived) -> None:
        """Somebody came."""
        self.kept.keys[told.request] = (told.priority, told.arrival, told.request)

    def over(self, told: records.Ended) -> None:
        """Somebody is over; its blocks are told in table order, and were freed tail first."""
        self._left(told.request, told.left)
        self.finished.append((told.request, SimpleNamespace(name=told.status), told.freed[::-1]))
        self._past += told.preemptions
        self.kept.keys.pop(told.request, None)

    # -- what happened -------------------------------------------------------------------------------------------------

    def demoted(self, told: records.Demoted) -> None:
        """A preemption begins."""
        short, self._short = told.short, None
        if short is not None:
            needed = -(-min(short.length, self.scheduler.max_model_len) // self.page_size)
            cause = "growth" if short.grows else "admission"
            self._short = (short.request, max(needed - short.owned, 0), short.free, cause)
        self._preempted(SimpleNamespace(request_id=told.request))

    def requeued(self, told: records.Requeued) -> None:
        """It is over."""
        name = told.request
        self._taken = told.freed
        order = self.kept.ordered(told.waiting)
        self.kept.placed = order.index(name) if name in order else None
        self._left(name, told.left)
        self._queued_again(
            SimpleNamespace(
                request_id=name,
                num_computed_tokens=told.computed,
                spec_token_ids=range(told.drafts),
                num_tokens=told.known,
            )
        )

    def happened(self, told: records.Happened) -> None:
        """One thing, where it happened."""
        if isinstance(told, records.Withdrawn):
            self._withdraw([told.block])
        elif isinstance(told, records.Published):
            self.published.update(told.blocks)
            self.timeline.append({"act": "publish", "request": told.request, "blocks": told.blocks})
        elif isinstance(told, records.Demoted):
            self.demoted(told)
        elif isinstance(told, records.Requeued):
            self.requeued(told)
        elif isinstance(told, records.Freed):
            self._stray(told.blocks)
        elif self.published:
            self._withdraw(sorted(self.published))

    # -- what was read -------------------------------------------------------------------------------------------------

    def read(self, books: records.Books, *, past: int | None = None, cached: Any = ()) -> None:
        """vLLM's books. `past`: its counter of preemptions, of live requests."""
        self.kept.read(books)
        self.scheduler.preemptions = None if past is None else self._past + past
        self.scheduler.cached = cached
        if books.small is not None:
            self.walked(books.small)

    def regrown(self, grown: list[records.Grown], gone: list[str]) -> None:
        """Tables, as they stand behind a call."""
        for name in gone:
            self.owned.pop(name, None)
        for one in grown:
            table = self.owned.get(one.request, [])[: one.kept]
            self.owned[one.request] = table + [SimpleNamespace(block_id=block) for block in one.blocks]

    def walked(self, small: records.Small) -> None:
        """A small pool: all of its tables, and who has a hash."""
        self.owned.clear()
        for name, blocks in small.tables.items():
            self.owned[name] = [SimpleNamespace(block_id=block) for block in blocks]
        self.pool.blocks = [SimpleNamespace(block_id=block, block_hash=True) for block in small.hashed]

    def _left(self, name: str, blocks: list[int]) -> None:
        self.owned[name] = [SimpleNamespace(block_id=block) for block in blocks]
        if not blocks:
            del self.owned[name]
        self._reread(name)
