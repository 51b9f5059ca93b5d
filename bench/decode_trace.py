"""Write a decode-heavy trace of a correct vllm-fcfs scheduler: 64 running, one of them ends about every seventh step.

How often somebody is preempted is a matter of the pool: about every eighth step where it is scarce, about every
hundredth where it is ample, as an engine is run in production; the load is the same.

Written for speed of generation, apart from the reference scheduler; every trace is checked before it is timed.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import BinaryIO

from preempt_oracle.trace import wire
from preempt_oracle.trace.writer import create
from preempt_spec.events import OBSERVABLE

PAGE, RUNNING, BUDGET, LENGTH = 16, 64, 2048, 2048
SCARCE, AMPLE = 1560, 1770  # blocks
OBSERVES = OBSERVABLE.keys() - {"free-ids", "publish", "reject"}


def generate(path: Path | BinaryIO, steps: int, pool: int = SCARCE, seed: int = 0) -> tuple[int, int]:
    """Write `steps` steps of an engine with `pool` blocks to `path`. Returns grants and preemptions."""
    limits = wire.Limits(max_running=RUNNING, budget=BUDGET, max_length=LENGTH)
    header = wire.Header(
        "bench",
        "1",
        "vllm-fcfs",
        limits,
        (wire.Group("full", "full", PAGE),),
        (wire.Pool("device", 0, pool),),
        frozenset(OBSERVES),
    )
    rng = random.Random(seed)
    free = list(range(pool))
    running: list[_Request] = []
    waiting: list[_Request] = []
    born = grants = preemptions = 0
    queues: tuple[list[str], list[str]] = ([], [])
    with create(path, header) as out:
        for frame in range(steps):
            while len(running) + len(waiting) < RUNNING + 4:
                r = _Request(f"req-{born}", rng.randint(32, 256), rng.randint(200, 700))
                born += 1
                waiting.append(r)
                prompt = tuple(rng.randrange(128_000) for _ in range(r.known))
                out.write(wire.Arrive(r.id, prompt, r.left, arrival=born))
            step = _Step(frame)
            budget = BUDGET
            i = 0
            while i < len(running) and budget:
                r = running[i]
                n = min(r.known - r.computed, budget)
                lack = -(-(r.computed + n) // PAGE) - len(r.table)
                while lack > len(free):
                    v = running.pop()
                    step.preempt(v, r, lack, len(free))
                    free.extend(reversed(v.table))
                    v.table, v.computed, v.preempted = [], 0, True
                    waiting.insert(0, v)
                    preemptions += 1
                    if v is r:
                        break
                if r.preempted:
                    break
                step.grant(r, n, [free.pop() for _ in range(lack)])
                budget -= n
                i += 1
            while not step.acts and waiting and len(running) < RUNNING and budget:
                r = waiting[0]
                n = min(r.known, budget)
                if -(-r.known // PAGE) > len(free):
                    break
                running.append(waiting.pop(0))
                step.grant(r, n, [free.pop() for _ in range(-(-n // PAGE))], admitted=True)
                budget -= n
            now = ([r.id for r in running], [r.id for r in waiting])
            out.write(step.event(len(free), *(now if now != queues else (None, None))))
            queues = now
            grants += len(step.ids)
            done = [r for r in step.requests if r.computed == r.known]
            tokens = tuple((rng.randrange(128_000),) for _ in done)
            out.write(wire.Deliver(frame, tuple(r.id for r in done), tokens))
            for r in done:
                r.known += 1
                r.left -= 1
                if not r.left:
                    running.remove(r)
                    free.extend(reversed(r.table))
                    out.write(wire.Finish(r.id, blocks=(tuple(r.table),)))
    return grants, preemptions


class _Request:
    def __init__(self, name: str, prompt: int, outputs: int) -> None:
        self.id, self.known, self.left = name, prompt, outputs
        self.computed = 0
        self.table: list[int] = []
        self.preempted = False


class _Step:
    def __init__(self, frame: int) -> None:
        self.frame = frame
        self.requests: list[_Request] = []
        self.ids: list[str] = []
        self.tokens: list[int] = []
        self.start: list[int] = []
        self.blocks: list[wire.Delta] = []
        self.sent: list[wire.Sent] = []
        self.resumed: list[wire.Resumed] = []
        self.acts: list[wire.Act] = []

    def preempt(self, v: _Request, r: _Request, need: int, supply: int) -> None:
        after = len(self.ids)
        self.acts += [
            wire.Demote(v.id, after, "growth", (r.id,), "blocks", need, supply),
            wire.Release(v.id, after, (tuple(v.table),), None, 0, 0),
            wire.Requeue(v.id, after, "waiting", 0, v.known),
        ]

    def grant(self, r: _Request, n: int, new: list[int], admitted: bool = False) -> None:
        if new:
            self.blocks.append(wire.Delta(r.id, 0, tuple(new)))
            self.sent.append(wire.Sent(r.id, 0, tuple(new), admitted))
        if r.preempted:
            self.resumed.append(wire.Resumed(r.id, r.known))
            r.preempted = False
        self.requests.append(r)
        self.ids.append(r.id)
        self.tokens.append(n)
        self.start.append(r.computed)
        r.table += new
        r.computed += n

    def event(self, free: int, running: list[str] | None, waiting: list[str] | None) -> wire.Step:
        # Queues are read when they change; everything else in every step.
        observed = wire.Observed(
            free=(free,),
            running=None if running is None else tuple(running),
            waiting=None if waiting is None else tuple(waiting),
            held=(),
            refs=(),
        )
        return wire.Step(
            self.frame,
            tuple(self.ids),
            tuple(self.tokens),
            tuple(self.start),
            tuple(self.blocks),
            tuple(self.sent),
            tuple(self.resumed),
            acts=tuple(self.acts),
            observed=observed,
        )
