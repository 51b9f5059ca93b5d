"""A real vLLM scheduler with and without the recorder, in vLLM's Python: `recorder.py` starts it and says how.

Each variant schedules the same workload, in turns of a hundred steps, so that a shared machine is as busy for one as
for the other. Times are CPU times: of the engine's thread, and of the whole process, the writing thread included. Half
a page of the loop below is what an engine core does; the model is a wait, during which the writing thread works.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

spec = find_spec("preempt_oracle")
assert spec is not None
assert spec.submodule_search_locations is not None
sys.path.insert(0, str(Path(spec.submodule_search_locations[0]) / "engines"))

import child  # noqa: E402

child.claim()

import vllm_build as build  # noqa: E402

from preempt_oracle.record import settings as configured  # noqa: E402
from preempt_oracle.record import vllm as recorded  # noqa: E402

TURN = 100  # steps
WAIT = 0.002  # seconds of the model's


class Served:
    """One scheduler, its queue kept full."""

    def __init__(self, running: int, settings: dict[str, str] | None, seed: int) -> None:
        # 24 blocks a request where a request comes to need 40: a preemption every few steps.
        blocks = 24 * running
        self.shape = build.parse(
            {
                "policy": "vllm-fcfs", "blocks": blocks, "page_size": 16, "max_running": running,
                "budget": 2048, "max_length": 1024, "caching": True,
            }
        )  # fmt: skip
        for name in configured.VARIABLES:
            os.environ.pop(configured.PREFIX + name, None)
        for name, value in (settings or {}).items():
            os.environ[configured.PREFIX + name] = value
        plain = build.Scheduler
        build.Scheduler = plain if settings is None else recorded.RecordingScheduler
        try:
            self.scheduler: Any = build.build(self.shape)
        finally:
            build.Scheduler = plain
        self.rng = random.Random(seed)
        self.born = self.steps = self.running = 0
        self.thread = self.process = 0.0

    def turn(self, *, count: bool) -> None:
        began = time.process_time()
        for _ in range(TURN):
            self.step(count)
        if count:
            self.process += time.process_time() - began

    def step(self, count: bool) -> None:
        scheduler, rng = self.scheduler, self.rng
        before = time.thread_time()
        while len(scheduler.requests) < self.shape.max_running + 4:
            prompt = [rng.randrange(50_000) for _ in range(rng.randint(32, 256))]
            told = {"request": f"req-{self.born}", "prompt": prompt, "max_tokens": rng.randint(200, 700)}
            scheduler.add_request(build.request(self.shape, {**told, "arrival": self.born}))
            self.born += 1
        output = scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        spent = time.thread_time() - before
        requests = [scheduler.requests[name] for name in names]
        rows = [[rng.randrange(50_000)] if r.num_computed_tokens >= r.num_tokens else [] for r in requests]
        sampled = build.features.runner_output(dict(zip(names, rows, strict=True)))
        time.sleep(WAIT)
        before = time.thread_time()
        scheduler.update_from_output(output, sampled)
        spent += time.thread_time() - before
        if count:
            self.thread += spent
            self.steps += 1
            self.running += len(names)


def main() -> None:
    """Prints one JSON object: per number of running requests and variant, milliseconds of CPU per step."""
    asked = json.loads(sys.argv[1])
    out = []
    for running in asked["running"]:
        served: dict[str, Served] = {
            name: Served(running, settings, seed=running) for name, settings in asked["variants"].items()
        }
        for turn in range(asked["turns"] + 4):
            if turn == 4:  # as vLLM's engine core does when it has started
                gc.collect()
                gc.freeze()
            for one in served.values():
                one.turn(count=turn >= 4)  # the first fill the pool
        for name, one in served.items():
            observer = getattr(one.scheduler, "observer", None)
            state = SimpleNamespace(over=False) if observer is None else observer
            out.append(
                {
                    "running": running,
                    "variant": name,
                    "steps": one.steps,
                    "granted": one.running / one.steps,
                    "thread_ms": 1e3 * one.thread / one.steps,
                    "process_ms": 1e3 * one.process / one.steps,
                    "recorded_to_the_end": not state.over,
                }
            )
            one.scheduler.shutdown()
    child.claim().write(json.dumps(out) + "\n")
    child.claim().flush()


main()
