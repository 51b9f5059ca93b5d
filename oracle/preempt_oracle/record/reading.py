"""What is read of a live scheduler behind its calls: its tables and its books, and of both what is not as before.

Columns are compared as wholes: a step in which nobody comes or goes, and nobody needs a block, costs a few C loops.
"""

from __future__ import annotations

from itertools import chain, compress
from operator import attrgetter, ne
from typing import Any

from preempt_oracle.engines.vllm_books import Books
from preempt_oracle.record import records
from preempt_oracle.record.eyes import ID, Eyes, raw

#: Above so many requests, what can hardly change unseen is not looked at in every step.
MANY = 1000

_COMPUTED = attrgetter("num_computed_tokens")
_PREEMPTIONS = attrgetter("num_preemptions")


class Reading:
    """One scheduler's tables and books, and how they were told last."""

    def __init__(self, source: Books, eyes: Eyes, *, counts: bool) -> None:
        """`counts`: this version counts preemptions."""
        self.source = source
        self._scheduler = source.scheduler
        self._eyes = eyes
        self._counts = counts
        self._running: list[Any] = []
        self._waiting: list[Any] | None = None
        self._holding: list[Any] = []
        self._owners: list[str] = []
        self._lengths: list[int] = []

    def freed(self, name: str, left: int) -> None:
        """A table was cut while a call was under way: what grows from here on is told as grown."""
        if name in self._owners:
            self._lengths[self._owners.index(name)] = left

    def tables(self) -> tuple[list[records.Grown], list[str]]:
        """Tables that are not as they were: read off the allocator's own, whatever the worker is told."""
        owned = self.source.owned
        owners, lengths = list(owned), list(map(len, owned.values()))
        if owners == self._owners:
            if lengths == self._lengths:
                return [], []
            changed = map(ne, lengths, self._lengths)
            which = list(compress(zip(owners, self._lengths, strict=True), changed))
            gone = []
        else:
            known = dict(zip(self._owners, self._lengths, strict=True))
            which = [
                (name, known.get(name, 0))
                for name, length in zip(owners, lengths, strict=True)
                if known.get(name, 0) != length
            ]
            gone = [name for name in self._owners if name not in owned]
            self._owners = owners
        self._lengths = lengths
        grown = []
        for name, kept in which:
            table = owned[name]
            if kept > len(table):
                kept = 0
            grown.append(records.Grown(name, kept, [block.block_id for block in table[kept:]]))
        return grown, gone

    def books(self) -> records.Books:
        """vLLM's own books."""
        scheduler, told = self._scheduler, records.Books(self.source.free())
        running = scheduler.running
        if running != self._running:
            self._running = running[:]
            told.running = list(map(ID, running))
        waiting, holding = raw(scheduler.waiting), self._eyes.holding()
        changed = waiting != self._waiting or holding != self._holding
        if changed:
            self._waiting, self._holding = waiting, holding
            told.waiting = records.Waiting(list(map(ID, holding)), list(map(ID, waiting)))
        if (waiting or holding) and (changed or len(waiting) < MANY) and any(map(_COMPUTED, chain(holding, waiting))):
            told.computed = [
                (one.request_id, one.num_computed_tokens) for one in chain(holding, waiting) if one.num_computed_tokens
            ]
        if self.source.small:
            told.small = self.small()
        return told

    def preemptions(self) -> int | None:
        """vLLM's own counter, request by request; None: not looked at."""
        if not self._counts:
            return None
        requests = self._scheduler.requests
        if len(requests) > MANY and not self._eyes.happened:
            return None
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
