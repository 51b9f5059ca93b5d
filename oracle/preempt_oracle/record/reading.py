"""What is read of a live scheduler behind its calls: its tables and its books, and of both what is not as before.

Columns are compared as wholes: a step in which nobody comes or goes, and nobody needs a block, costs a few C loops.
"""

from __future__ import annotations

from itertools import chain, compress
from operator import attrgetter
from typing import Any

from preempt_oracle.engines.vllm_books import Books
from preempt_oracle.record import records
from preempt_oracle.record.eyes import ID, Eyes, raw

#: What can hardly change unseen is looked at in one step of so many.
AUDIT = 16

_COMPUTED = attrgetter("num_computed_tokens")
_PREEMPTIONS = attrgetter("num_preemptions")


class Reading:
    """One scheduler's tables and books, and how they were told last."""

    def __init__(self, source: Books, eyes: Eyes, *, counts: bool) -> None:
        """`counts`: this version counts preemptions."""
        self.source = source
        self._scheduler = source.scheduler
        self._eyes = eyes
        self.small_pool = source.small
        self._queues = [*eyes.holding, self._scheduler.waiting]
        self._counts = counts
        self._running: list[Any] = []
        self._waiting: list[list[Any]] | None = None
        self._lengths: dict[str, int] = {}  # of each table, as far as it was told

    def cut(self, name: str, left: int) -> None:
        """A table was cut while a call was under way: what grows from here on is told as grown."""
        if name in self._lengths:
            self._lengths[name] = left

    def free(self) -> int:
        """Free blocks as the pool counts them."""
        return int(self.source.pool.free_block_queue.num_free_blocks)

    def appended(self, told: records.Stepped, cached: list[str]) -> tuple[list[records.Grown], list[str]]:
        """The tables of those alone whom the worker is told of blocks, read off the allocator's own."""
        owned, lengths, grown = self.source.owned, self._lengths, []
        for name, told_of in zip(compress(cached, told.blocks), filter(None, told.blocks), strict=True):
            table, kept, ids = owned.get(name, ()), lengths.get(name, 0), told_of[0]
            lengths[name] = len(table)
            if len(table) == kept + len(ids) and len(ids) == 1 and table[-1].block_id == ids[0]:
                continue  # just what the worker is told
            if len(table) < kept:
                kept = 0
            grown.append(records.Grown(name, kept, [block.block_id for block in table[kept:]]))
        for new in told.new:
            table, kept = owned.get(new.request, ()), lengths.get(new.request, 0)
            lengths[new.request] = len(table)
            grown.append(records.Grown(new.request, kept, [block.block_id for block in table[kept:]]))
        return grown, []

    def tables(self) -> tuple[list[records.Grown], list[str]]:
        """All tables that are not as they were, whatever the worker is told."""
        owned, known = self.source.owned, self._lengths
        lengths = dict(zip(owned, map(len, owned.values()), strict=True))
        self._lengths = lengths
        if lengths == known:
            return [], []
        grown = []
        for name, length in lengths.items():
            kept = known.get(name, 0)
            if kept == length:
                continue
            if kept > length:
                kept = 0
            table = owned[name]
            grown.append(records.Grown(name, kept, [block.block_id for block in table[kept:]]))
        return grown, [name for name in known if name not in lengths]

    def ran(self) -> list[Any] | None:
        """Who runs, in order, if that is not as before."""
        running = self._scheduler.running
        if running == self._running:
            return None
        self._running = now = running[:]
        return now  # type: ignore[no-any-return]

    def queues(self, audit: bool, told: records.Books) -> list[list[Any]] | None:
        """Who waits, queue by queue, if that is not as before; with computed tokens, if there is such a thing."""
        if not (audit or self._eyes.stirred):
            return None
        self._eyes.stirred = False
        waiting = list(map(raw, self._queues))
        if any(map(_COMPUTED, chain.from_iterable(waiting))):
            told.computed = [
                (one.request_id, one.num_computed_tokens)
                for one in chain.from_iterable(waiting)
                if one.num_computed_tokens
            ]
        if waiting == self._waiting:
            return None
        self._waiting = waiting
        return waiting

    def books(self) -> records.Books:
        """vLLM's own books, all of them."""
        told = records.Books(self.free())
        waiting, running = self.queues(True, told), self.ran()
        if running is not None:
            told.running = list(map(ID, running))
        if waiting is not None:
            *held, last = waiting
            told.waiting = records.Waiting(list(map(ID, chain.from_iterable(held))), list(map(ID, last)))
        if self.small_pool:
            told.small = self.small()
        return told

    def preemptions(self) -> int | None:
        """vLLM's own counter, request by request; None: it has none."""
        if not self._counts:
            return None
        requests = self._scheduler.requests
        return int(sum(map(_PREEMPTIONS, requests.values())))

    def small(self) -> records.Small:
        """A small pool, block by block."""
        books, pool = self.source, self.source.pool
        return records.Small(
            {name: [block.block_id for block in blocks] for name, blocks in books.owned.items()},
            books.free_ids(),
            [(b.block_id, b.ref_cnt) for b in pool.blocks if b.ref_cnt not in (0, 1) and not b.is_null],
            [block.block_id for block in pool.blocks if block.block_hash is not None],
        )
