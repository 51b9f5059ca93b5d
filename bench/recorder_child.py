"""A real vLLM scheduler with and without the recorder, in vLLM's Python: `recorder.py` starts it and says how.

Each variant schedules the same workload, in turns of fifty steps, so that a shared machine is as busy for one as
for the other; a turn is compared with the one next to it that records nothing. Times are CPU times of the engine's
thread inside of `add_request`, `schedule` and `update_from_output`, and of the process beside it. The model is a wait.
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
from statistics import median
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

TURN = 50  # steps
WARM = 8  # turns that fill the pool and are not counted
WAIT = 0.005  # seconds of the model's, in which the other process works; a real model takes longer
TICKS = os.sysconf("SC_CLK_TCK")


class Served:
    """One scheduler, its queue kept full."""

    def __init__(self, running: int, blocks: int, settings: dict[str, str] | None) -> None:
        """`blocks`: of the pool, for each request that may run."""
        self.shape = build.parse(
            {
                "policy": "vllm-fcfs", "blocks": blocks * running, "page_size": 16, "max_running": running,
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
        self.rng = random.Random(running)
        self.born = self.steps = self.granted = self.preempted = 0
        self.turns: list[float] = []  # milliseconds of CPU per step, turn by turn
        self.beside = 0.0

    @property
    def capture(self) -> Any:
        """The recorder's eyes, if there is one."""
        return getattr(self.scheduler, "capture", None)

    def keeper(self) -> float:
        """Seconds of CPU that the process beside has used so far."""
        if self.capture is None:
            return 0.0
        fields = Path(f"/proc/{self.capture.channel._keeper.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def turn(self, *, count: bool) -> None:
        """Fifty steps."""
        before = self.keeper()
        spent = sum(self.step(count) for _ in range(TURN))
        if count:
            self.turns.append(spent / TURN / 1e6)
            self.beside += self.keeper() - before

    def step(self, count: bool) -> int:
        """Nanoseconds of CPU of one step."""
        scheduler, rng, clock = self.scheduler, self.rng, time.thread_time_ns
        spent = 0
        while len(scheduler.requests) < self.shape.max_running + 4:
            prompt = [rng.randrange(50_000) for _ in range(rng.randint(32, 256))]
            told = {"request": f"req-{self.born}", "prompt": prompt, "max_tokens": rng.randint(200, 700)}
            if self.born < self.shape.max_running:  # as if it had run for a while already: no two end together
                told["max_tokens"] = rng.randint(1, 700)
            request = build.request(self.shape, {**told, "arrival": self.born})
            before = clock()
            scheduler.add_request(request)
            spent += clock() - before
            self.born += 1
        before = clock()
        output = scheduler.schedule()
        spent += clock() - before
        names = list(output.num_scheduled_tokens)
        requests = [scheduler.requests[name] for name in names]
        rows = [[rng.randrange(50_000)] if r.num_computed_tokens >= r.num_tokens else [] for r in requests]
        sampled = build.features.runner_output(dict(zip(names, rows, strict=True)))
        time.sleep(WAIT)
        before = clock()
        scheduler.update_from_output(output, sampled)
        spent += clock() - before
        if count:
            self.steps += 1
            self.granted += len(names)
            self.preempted += len(output.preempted_req_ids or ())
        return spent


def measured(workload: str, running: int, blocks: int, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Each variant, turn by turn in one run."""
    served = {name: Served(running, blocks, settings) for name, settings in asked["variants"].items()}
    for turn in range(asked["turns"] + WARM):
        if turn == WARM:  # as vLLM's engine core does when it has started
            gc.collect()
            gc.freeze()
        order = list(served.values())
        for one in order[turn % len(order) :] + order[: turn % len(order)]:
            one.turn(count=turn >= WARM)
    plain = next(iter(served.values()))
    rows = []
    for name, one in served.items():
        ratios = [mine / other for mine, other in zip(one.turns, plain.turns, strict=True)]
        to_the_end = one.capture is None or not (one.capture.over or one.capture.channel.stopped)
        one.scheduler.shutdown()
        rows.append(
            {
                "workload": workload,
                "running": running,
                "variant": name,
                "steps": one.steps,
                "granted_per_step": one.granted / one.steps,
                "steps_per_preemption": one.steps / max(one.preempted, 1),
                "thread_ms_least": min(one.turns),
                "thread_ms_median": median(one.turns),
                "least_ratio": min(one.turns) / min(plain.turns),
                "median_ratio": median(ratios),
                "beside_ms": 1e3 * one.beside / one.steps,
                "recorded_to_the_end": to_the_end,
            }
        )
    return rows


def main() -> None:
    """Prints one JSON list, a row for each workload, number of running requests, and variant."""
    asked = json.loads(sys.argv[1])
    rows = [
        row
        for workload, blocks in asked["workloads"].items()
        for running in asked["running"]
        for row in measured(workload, running, blocks, asked)
    ]
    child.claim().write(json.dumps(rows) + "\n")
    child.claim().flush()


main()
