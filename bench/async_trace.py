"""Write a decode-heavy trace with several frames in flight and a prefix cache, as vLLM's asynchronous mode does it.

64 running, half of the prompts behind one of a few system prompts, full pages findable when they are scheduled and
their tokens are known, freed blocks findable until they are handed out again (the oldest first), a preemption every few
steps, whose flying outputs are appended while the victim waits. Written for speed of generation, apart from the
reference scheduler; every trace is checked before it is timed.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import BinaryIO

from decode_trace import BUDGET, LENGTH, PAGE, RUNNING

from preempt_oracle.trace import wire
from preempt_oracle.trace.writer import create
from preempt_spec.events import OBSERVABLE

POOL = 1560
SYSTEM = (32, 48, 64)  # tokens of the system prompts
OBSERVES = OBSERVABLE.keys() - {"free-ids", "reject", "copies", "host"}


def generate(path: Path | BinaryIO, steps: int, frames: int = 3, seed: int = 0) -> tuple[int, int]:
    """Write `steps` steps to `path`, at most `frames` of them in flight. Returns grants and preemptions."""
    limits = wire.Limits(max_running=RUNNING, budget=BUDGET, max_length=LENGTH, caching=True, frames=frames)
    header = wire.Header(
        "bench",
        "1",
        "vllm-fcfs",
        limits,
        (wire.Group("full", "full", PAGE),),
        (wire.Pool("device", 0, POOL),),
        frozenset(OBSERVES),
    )
    with create(path, header) as out:
        engine = _Engine(random.Random(seed), frames)
        for frame in range(steps):
            for event in engine.arrivals():
                out.write(event)
            out.write(engine.step(frame))
            while len(engine.flying) >= frames:
                for event in engine.deliver():
                    out.write(event)
    return engine.grants, engine.preemptions


class _Request:
    def __init__(self, name: str, tokens: list[int], outputs: int) -> None:
        self.id, self.tokens, self.limit = name, tokens, len(tokens) + outputs
        self.computed = self.promised = 0
        self.stale = 0  # outputs that fly and were promised before it was preempted
        self.published = 0  # pages
        self.table: list[int] = []
        self.keys: list[int] = []
        self.preempted = False

    def key(self, page: int) -> int:
        while len(self.keys) <= page:
            at = len(self.keys) * PAGE
            self.keys.append(hash((self.keys[-1] if self.keys else 0, *self.tokens[at : at + PAGE])))
        return self.keys[page]


class _Engine:
    def __init__(self, rng: random.Random, frames: int) -> None:
        self.rng, self.frames = rng, frames
        self.free = dict.fromkeys(range(POOL))  # the oldest first
        self.refs = [0] * POOL
        self.shared: dict[int, int] = {}
        self.cached: dict[int, int] = {}  # key of a prefix -> block
        self.hash: dict[int, int] = {}  # block -> key
        self.running: list[_Request] = []
        self.waiting: list[_Request] = []
        self.flying: dict[int, list[_Request]] = {}  # whom each frame owes a token
        self.born = self.grants = self.preemptions = 0
        self.system = [[rng.randrange(128_000) for _ in range(n)] for n in SYSTEM]
        self.queues: tuple[list[str], list[str]] = ([], [])

    # -- the world ---------------------------------------------------------------------------------------------------

    def arrivals(self) -> list[wire.Event]:
        out: list[wire.Event] = []
        while len(self.running) + len(self.waiting) < RUNNING + 4:
            own = [self.rng.randrange(128_000) for _ in range(self.rng.randint(32, 256))]
            tokens = self.rng.choice(self.system) + own if self.rng.random() < 0.5 else own
            r = _Request(f"req-{self.born}", tokens, self.rng.randint(200, 700))
            out.append(wire.Arrive(r.id, tuple(tokens), r.limit - len(tokens), arrival=self.born))
            self.waiting.append(r)
            self.born += 1
        return out

    def deliver(self) -> list[wire.Event]:
        frame, owed = next(iter(self.flying.items()))
        del self.flying[frame]
        tokens = tuple((self.rng.randrange(128_000),) for _ in owed)
        out: list[wire.Event] = [wire.Deliver(frame, tuple([r.id for r in owed]), tokens)]
        for r, new in zip(owed, tokens, strict=True):
            r.tokens += new
            if r.stale:
                r.stale -= 1
            else:
                r.promised -= 1
            if len(r.tokens) == r.limit:
                out.append(wire.Finish(r.id, blocks=(tuple(r.table),)))
                self.release(r)
                (self.running if r in self.running else self.waiting).remove(r)
        return out

    # -- blocks ------------------------------------------------------------------------------------------------------

    def take(self, b: int) -> None:
        self.refs[b] += 1
        if self.refs[b] == 1:
            del self.free[b]
        else:
            self.shared[b] = self.refs[b]

    def release(self, r: _Request) -> None:
        for b in reversed(r.table):
            self.refs[b] -= 1
            if not self.refs[b]:
                self.free[b] = None
            elif self.refs[b] == 1:
                del self.shared[b]
            else:
                self.shared[b] = self.refs[b]
        r.table, r.computed, r.published = [], 0, 0

    def fresh(self, count: int) -> tuple[list[int], list[int]]:
        """Blocks to be written anew, and those of them that were findable."""
        blocks, old = [], []
        for _ in range(count):
            b = next(iter(self.free))
            self.take(b)
            blocks.append(b)
            if b in self.hash:
                old.append(b)
                key = self.hash.pop(b)
                if self.cached.get(key) == b:
                    del self.cached[key]
        return blocks, old

    # -- a decision --------------------------------------------------------------------------------------------------

    def step(self, frame: int) -> wire.Step:
        self.s = _Step()
        budget, i, preempted = BUDGET, 0, False
        while i < len(self.running) and budget:
            r = self.running[i]
            known = len(r.tokens) + r.promised
            if r.promised and known >= r.limit:
                i += 1
                continue
            n = min(known - r.computed, budget)
            lack = -(-(r.computed + n) // PAGE) - len(r.table)
            while lack > len(self.free):
                preempted = True
                v = self.running.pop()
                self.preempt(v, r, lack)
                if v is r:
                    break
            if r.preempted:
                break
            self.grant(r, n, lack)
            budget -= n
            i += 1
        while not preempted and len(self.running) < RUNNING and budget:
            ready = [r for r in self.waiting if not r.stale]
            if not ready or not (n := self.admit(ready[0], budget)):
                break
            budget -= n
        if self.s.ids:
            self.flying[frame] = self.s.ends
        self.grants += len(self.s.ids)
        return self.event(frame)

    def preempt(self, v: _Request, r: _Request, need: int) -> None:
        after = len(self.s.ids)
        self.s.acts += [
            wire.Demote(v.id, after, "growth", (r.id,), "blocks", need, len(self.free)),
            wire.Release(v.id, after, (tuple(v.table),), None, 0, 0),
            wire.Requeue(v.id, after, "waiting", 0, len(v.tokens)),
        ]
        self.release(v)
        v.preempted, v.stale, v.promised = True, v.stale + v.promised, 0
        self.waiting.insert(0, v)
        self.preemptions += 1

    def admit(self, r: _Request, budget: int) -> int:
        """Tokens granted to the first that waits; 0 if it does not fit."""
        hit: list[int] = []
        for page in range((len(r.tokens) - 1) // PAGE):
            if (b := self.cached.get(r.key(page))) is None:
                break
            hit.append(b)
        start = len(hit) * PAGE
        n = min(len(r.tokens) - start, budget)
        if -(-len(r.tokens) // PAGE) - len(hit) + sum(not self.refs[b] for b in hit) > len(self.free):
            return 0
        self.waiting.remove(r)
        self.running.append(r)
        for b in hit:
            self.take(b)
        r.table, r.computed, r.published = hit, start, len(hit)
        if start:
            self.s.hits.append(wire.Hit(r.id, start))
        self.s.cached.append(wire.Cached(r.id, start))
        if r.preempted:
            self.s.resumed.append(wire.Resumed(r.id, len(r.tokens)))
            r.preempted = False
        self.grant(r, n, -(-(start + n) // PAGE) - len(hit), admitted=True)
        return n

    def grant(self, r: _Request, n: int, lack: int, admitted: bool = False) -> None:
        s, start = self.s, r.computed
        new, old = self.fresh(lack)
        if old:
            s.acts.append(wire.Withdraw(tuple(old), len(s.ids)))
        r.table += new
        if admitted:
            new = r.table
        if new:
            s.blocks.append(wire.Delta(r.id, 0, tuple(new)))
            s.sent.append(wire.Sent(r.id, 0, tuple(new), admitted))
        s.ids.append(r.id)
        s.tokens.append(n)
        s.start.append(start)
        r.computed += n
        if r.computed == len(r.tokens) + r.promised:
            r.promised += 1
            s.ends.append(r)
        pages = min(r.computed, len(r.tokens)) // PAGE
        if pages > r.published:
            blocks = r.table[r.published : pages]
            s.acts.append(wire.Publish(r.id, tuple(blocks), len(s.ids)))
            for page, b in enumerate(blocks, r.published):
                key = r.key(page)
                self.hash[b] = key
                self.cached.setdefault(key, b)
            r.published = pages

    def event(self, frame: int) -> wire.Step:
        s = self.s
        now = ([r.id for r in self.running], [r.id for r in self.waiting])
        running, waiting = (None, None) if now == self.queues else (tuple(now[0]), tuple(now[1]))
        self.queues = now
        # Queues are read when they change; everything else in every step.
        observed = wire.Observed(
            free=(len(self.free),),
            running=running,
            waiting=waiting,
            held=(),
            refs=tuple([wire.Refs(0, b, n) for b, n in self.shared.items()]),
            preemptions=self.preemptions,
            cached=tuple(s.cached) or None,
        )
        return wire.Step(
            frame,
            tuple(s.ids),
            tuple(s.tokens),
            tuple(s.start),
            tuple(s.blocks),
            tuple(s.sent),
            tuple(s.resumed),
            tuple(s.hits),
            acts=tuple(s.acts),
            observed=observed,
        )


class _Step:
    def __init__(self) -> None:
        self.ids: list[str] = []
        self.tokens: list[int] = []
        self.start: list[int] = []
        self.ends: list[_Request] = []
        self.blocks: list[wire.Delta] = []
        self.sent: list[wire.Sent] = []
        self.resumed: list[wire.Resumed] = []
        self.hits: list[wire.Hit] = []
        self.cached: list[wire.Cached] = []
        self.acts: list[wire.Act] = []
