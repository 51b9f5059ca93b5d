"""Record a trace of a real vLLM scheduler with 64 running requests, and how long it took to produce those steps.

The time is the engine process's answers to `step` and `deliver` alone: vLLM's own work, our observation of it and the
pipe. `python bench/vllm_trace.py OUT [VERSION] [STEPS]` prints it; `bench/run.py --trace OUT --produced-in SECONDS`
compares.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from preempt_oracle.adapters.protocol import Session, Started
from preempt_oracle.adapters.stdio import Stdio
from preempt_oracle.engines import environments
from preempt_oracle.trace import wire
from preempt_oracle.trace.writer import create
from preempt_properties.scenario import Add, Config

CONFIG = Config("vllm-fcfs", 1560, 16, 64, 2048, 2048)


def record(out: Path, version: str, steps: int, seed: int = 0) -> float:
    """Drive vLLM for `steps` steps with the queue kept full. Returns seconds."""
    env = environments.ready("vllm", version)
    if env is None:
        raise SystemExit(f"vllm=={version} is not installed: preempt-oracle engines install vllm=={version}")
    session = Session(Stdio(env.command, env.name, env.env))
    started = session.start(CONFIG)
    assert isinstance(started, Started), started
    rng = random.Random(seed)
    known: dict[str, int] = {}
    born, took = 0, 0.0
    with create(out, started.header) as trace:
        for _ in range(steps):
            while len(known) < CONFIG.max_running + 4:
                prompt = tuple(rng.randrange(50_000) for _ in range(rng.randint(32, 256)))
                arrived = session.add(Add(f"req-{born}", prompt, rng.randint(200, 700), arrival=born))
                assert isinstance(arrived, wire.Arrive)
                trace.write(arrived)
                known[arrived.request] = len(prompt)
                born += 1
            before = time.perf_counter()
            step = session.step()
            took += time.perf_counter() - before
            assert isinstance(step, wire.Step), step
            trace.write(step)
            assert step.start is not None
            grants = zip(step.requests, step.start, step.tokens, strict=True)
            due = [r for r, start, n in grants if start + n == known[r]]
            before = time.perf_counter()
            told = session.deliver(step.frame, due, [(rng.randrange(50_000),) for _ in due]) if step.requests else ()
            took += time.perf_counter() - before
            for r in due:
                known[r] += 1
            for event in told:
                trace.write(event)
                if isinstance(event, wire.Finish):
                    del known[event.request]
    session.close()
    return took


if __name__ == "__main__":
    target, version, steps = (*sys.argv[1:], *("", "0.33.0", "3000")[len(sys.argv) - 1 :])
    print(f"{record(Path(target), version, int(steps)):.3f} s")
