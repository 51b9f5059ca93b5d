"""A worker that copies KV between a device and a host, made up: what it holds, and what it has in hand.

Pure standard library, no vLLM in here. It keeps, slot by slot, *which prefix a slot was last written for*, and moves
that when a copy is over, as a worker moves bytes. Copies take some frames and end in any order; how many is a function
of the seed and the copy, so that a scenario replays. It judges nothing: what changed under its hands while it was being
copied, it can only report as a copy that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

Pairs = tuple[tuple[int, int], ...]  # (source, destination)
Slots = tuple[Any, ...]  # what each slot of a block holds
Prefix = Callable[[str, int], Any]  # what the slot of a request's token at a position is written for

OUT, IN = "out", "in"
FAIR = 3  # where loads may fail, one in so many does
SLOWEST = 4  # frames that a copy takes at most, beyond the first in which it can be over


@dataclass
class Job:
    """One copy. `due`: the frame with whose outputs it is reported; `carried`: what its sources held at its start.

    `broken`: the pair that does not come, if one does not. It is then told as a copy of its own, since what comes in
    part is told in parts.
    """

    number: int  # the connector's
    requests: tuple[str, ...]
    direction: str
    pairs: Pairs
    due: int
    carried: tuple[Slots, ...] = ()
    told: bool = False  # that it is over; the scheduler may hear of it later
    whole: bool = True
    broken: int | None = None

    def _parts(self) -> list[tuple[int, Pairs, bool]]:
        """What it is told as: a number, what is copied, and whether that comes."""
        parts = [(2 * self.number, tuple(pair for i, pair in enumerate(self.pairs) if i != self.broken), self.whole)]
        if self.broken is not None:
            parts.append((2 * self.number + 1, (self.pairs[self.broken],), False))
        return [part for part in parts if part[1]]

    def started(self) -> list[dict[str, Any]]:
        """Its `copy_start`, of each part."""
        return [
            {
                "event": "copy_start",
                "copy": number,
                "direction": self.direction,
                "blocks": [[src, dst, 0] for src, dst in pairs],
            }
            for number, pairs, _ in self._parts()
        ]

    def done(self) -> list[dict[str, Any]]:
        """Its `copy_done`, of each part."""
        return [
            {"event": "copy_done", "copy": number} | ({} if ok else {"ok": False}) for number, _, ok in self._parts()
        ]

    def invalid(self) -> list[int]:
        """The blocks that a worker would report as not loaded."""
        return [] if self.broken is None else [self.pairs[self.broken][1]]


class Tiers:
    """What the slots of the device's and the host's blocks hold, and the tables that the worker was told."""

    def __init__(self, page_size: int) -> None:
        self.page = page_size
        self.device: dict[int, Slots] = {}
        self.host: dict[int, Slots] = {}
        self.tables: dict[str, list[int]] = {}

    def hear(self, sent: Iterable[Sequence[Any]]) -> None:
        """Block tables as a step tells them: `[request, group, blocks]`, and whether that is all of the table."""
        for name, _, blocks, *full in sent:
            if full and full[0]:
                self.tables[name] = [*blocks]
            else:
                self.tables.setdefault(name, []).extend(blocks)

    def run(self, grants: Mapping[str, tuple[int, int]], prefix: Prefix) -> None:
        """A frame writes the slots of its grants: (start, tokens) by request."""
        for name, (start, tokens) in grants.items():
            table = self.tables.get(name, [])
            for position in range(start, start + tokens):
                page, slot = divmod(position, self.page)
                if page < len(table):
                    had = self.device.get(table[page], (None,) * self.page)
                    self.device[table[page]] = (*had[:slot], prefix(name, position), *had[slot + 1 :])

    def sources(self, job: Job) -> tuple[Slots, ...]:
        """What a copy's sources hold now."""
        tier = self.device if job.direction == OUT else self.host
        return tuple(tier.get(src, (None,) * self.page) for src, _ in job.pairs)

    def bring(self, job: Job) -> None:
        """A copy is over: its destinations hold what it carried, if that stood still meanwhile."""
        job.told = True
        job.whole = self.sources(job) == job.carried
        tier = self.host if job.direction == OUT else self.device
        for i, ((_, dst), slots) in enumerate(zip(job.pairs, job.carried, strict=True)):
            tier[dst] = slots if job.whole and i != job.broken else (None,) * self.page


class Copies:
    """The copies in hand. `in_order`: of one direction they end as they began. `failing`: some loads lose a page."""

    def __init__(self, page_size: int, seed: int, in_order: bool = False, failing: bool = False) -> None:
        self.tiers = Tiers(page_size)
        self.seed = seed
        self.in_order = in_order
        self.failing = failing
        self.jobs: dict[int, Job] = {}

    def start(self, number: int, requests: tuple[str, ...], direction: str, pairs: Pairs, frame: int) -> Job:
        """A copy begins with a frame; one to the host begins behind it, and is over with the next at the earliest."""
        takes = crc32(f"copy:{self.seed}:{number}".encode()) % (SLOWEST + 1)
        due = frame + takes + (direction == OUT)
        if self.in_order:
            due = max(due, *(job.due for job in self.jobs.values() if job.direction == direction), 0)
        job = Job(number, requests, direction, pairs, due)
        if self.failing and direction == IN and pairs:
            pick = crc32(f"fails:{self.seed}:{number}".encode()) >> 20  # its last bits vary too little with a digit
            job.broken = None if pick % FAIR else pick // FAIR % len(pairs)
        job.carried = self.tiers.sources(job)
        self.jobs[number] = job
        return job

    def finish(self, number: int, frame: int) -> Job | None:
        """A copy is waited for before a frame runs; None if it is over already."""
        job = self.jobs.get(number)
        if job is None or job.told:
            return None
        job.due = frame
        self.tiers.bring(job)
        return job

    def report(self, frame: int) -> tuple[list[Job], list[Job]]:
        """What a frame's outputs report as over, in no order to rely on: all of it, and what was not told yet."""
        over = [job for job in self.jobs.values() if job.due <= frame]
        if not self.in_order:
            over.sort(key=lambda job: crc32(f"order:{self.seed}:{job.number}".encode()))
        fresh = [job for job in over if not job.told]
        for job in over:
            del self.jobs[job.number]
        for job in fresh:
            self.tiers.bring(job)
        return over, fresh

    def loading(self, request: str) -> bool:
        """Whether a copy fills blocks for this request, or its end is not reported yet."""
        return any(request in job.requests and job.direction == IN for job in self.jobs.values())
