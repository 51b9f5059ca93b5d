"""`make bench`: how fast the oracle is, every figure of one run, so that ratios hold on any machine.

The monitor is the compiled one, if that is on the path (`make bench` puts it there); `check` by the one that runs as it
is written is measured beside it.

Times are CPU time of this process, the best of several, unless the row says otherwise. The table is printed, and the
figures are kept in bench/results/latest.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import async_trace
import msgspec
import recorder
from decode_trace import AMPLE, SCARCE, generate
from naive import per_grant
from rich.console import Console
from rich.table import Table

from preempt_oracle.adapters.inprocess import InProcess
from preempt_oracle.adapters.protocol import Session
from preempt_oracle.adapters.reference import ReferenceEngine
from preempt_oracle.check import check
from preempt_oracle.drive import Run, drive
from preempt_oracle.monitor import Monitor, cohort
from preempt_oracle.trace.convert import to_wire
from preempt_oracle.trace.reader import read_steadily
from preempt_oracle.verdict import Verdict
from preempt_properties.play import header, play
from preempt_properties.workload import workload
from preempt_spec import events as ev
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import Reference
from preempt_spec.state import initial
from preempt_spec.system import clauses, run

HERE = Path(__file__).resolve().parent
COMPILED = not cohort.__file__.endswith(".py")
LATEST = HERE / "results" / "latest.json"
STEPS = 5000
STEPS_PER_MB = 345
POLICY = "vllm-fcfs"
Row = tuple[str, float, str]  # what, how much, unit

#: Reads a trace from standard input, as a child whose memory is measured: prints verdict and peak memory in bytes.
#: Linux hands ru_maxrss on from the parent at exec, so it is asked for the peak of this very program where it can.
_FED = """
import pathlib, resource, sys
from preempt_oracle.check import check
tally = check("-")
status = pathlib.Path("/proc/self/status")
if status.exists():
    peak = int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(tally.verdict.value, tally.grants, peak)
"""
#: Checks a trace some times, and prints the CPU seconds of the quickest.
_AS_WRITTEN = """
import sys, time
from preempt_oracle.check import check
from preempt_oracle.monitor import cohort
assert cohort.__file__.endswith(".py")
best = float("inf")
for _ in range(5):
    before = time.process_time()
    check(sys.argv[1])
    best = min(best, time.process_time() - before)
print(best)
"""
_FEEDS = """
import sys
from decode_trace import generate
generate(sys.stdout.buffer, int(sys.argv[1]))
"""


def best(work: Callable[[], Any], times: int = 3) -> float:
    """CPU seconds of the quickest of some runs."""
    seconds = []
    for _ in range(times):
        before = time.process_time()
        work()
        seconds.append(time.process_time() - before)
    return min(seconds)


def conforming(path: Path) -> int:
    """Check a trace that must conform. Returns its grants."""
    tally = check(path)
    if tally.verdict is not Verdict.CONFORMS:
        raise SystemExit(f"{path}: {tally.verdict.value}: {tally.failures or tally.missing}")
    return tally.grants


def as_written(trace: Path) -> float:
    """CPU seconds of a check by the modules of this checkout."""
    roots = os.pathsep.join(str(HERE.parent / root) for root in ("spec", "properties", "oracle"))
    command, env = [sys.executable, "-c", _AS_WRITTEN, str(trace)], {**os.environ, "PYTHONPATH": roots}
    return float(subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout)


def decoding(trace: Path, pool: int) -> Iterator[Row]:
    """Read, check, and the baseline; how scarce the pool is says how often somebody is preempted."""
    grants, preemptions = generate(trace, STEPS, pool)
    if conforming(trace) != grants:
        raise SystemExit(f"{trace}: not every grant was judged")
    reading = checking = loop = float("inf")
    for _ in range(5):  # in turn, so that a busy moment of the machine's is not one of theirs alone
        reading = min(reading, best(lambda: sum(1 for _ in read_steadily(trace)), 1))
        checking = min(checking, best(lambda: conforming(trace), 1))
        loop = min(loop, best(lambda: per_grant(trace), 1))
    yield f"decoding, a preemption every {STEPS / preemptions:.2g} steps: read alone", grants / reading, "grants/s"
    yield "… check, every rule", grants / checking, "grants/s"
    if COMPILED:
        yield "… the same, not compiled", grants / as_written(trace), "grants/s"
    yield "… baseline: a loop over grants, few rules", grants / loop, "grants/s"
    yield "… check / baseline", loop / checking, "times as fast"
    yield "… check / read alone", reading / checking, "times as fast"


def lengthening(folder: Path) -> Iterator[Row]:
    """Check of a trace ten times as long."""
    short, long = folder / "1x.jsonl", folder / "10x.jsonl"
    generate(short, STEPS)
    generate(long, 10 * STEPS)
    grants = conforming(short)
    # Against ten checks of the short one, in turn: over seconds, a shared machine has no quiet moment to be best in.
    ten, one = float("inf"), float("inf")
    for _ in range(3):
        ten = min(ten, best(lambda: [conforming(short) for _ in range(10)], 1))
        one = min(one, best(lambda: conforming(long), 1))
    yield "check of a trace 10 times as long", 10 * one / ten, "times as long"
    yield "… per grant", 10 * one / ten * grants / conforming(long), "times as long"


def in_flight(folder: Path) -> Iterator[Row]:
    """Three frames in flight and a prefix cache."""
    trace = folder / "3f.jsonl"
    async_trace.generate(trace, STEPS, 3)
    grants = conforming(trace)
    reading = best(lambda: sum(1 for _ in read_steadily(trace)), 5)
    yield "three frames in flight, prefix cache: read alone", grants / reading, "grants/s"
    yield "… check, every rule", grants / best(lambda: conforming(trace), 5), "grants/s"
    if COMPILED:
        yield "… the same, not compiled", grants / as_written(trace), "grants/s"


def memory(full: bool) -> Iterator[Row]:
    """Peak memory of a checking process that is fed through a pipe."""
    peaks = []
    for megabytes in (1, 100, 1000) if full else (1, 100):
        feeder = subprocess.Popen(
            [sys.executable, "-c", _FEEDS, str(megabytes * STEPS_PER_MB)], stdout=subprocess.PIPE, cwd=HERE
        )
        fed = subprocess.run(
            [sys.executable, "-c", _FED], stdin=feeder.stdout, capture_output=True, text=True, check=True
        )
        if feeder.wait() or not fed.stdout.startswith("conforms"):
            raise SystemExit(f"a trace of {megabytes} MB: {fed.stdout}")
        peaks.append(int(fed.stdout.split()[-1]))
        yield f"peak memory, trace of {megabytes} MB", peaks[-1] / 1e6, "MB"
    yield "… the longest / the shortest", peaks[-1] / peaks[0], "times as much"


def played(seeds: range) -> list[tuple[ev.Header, list[ev.Event]]]:
    """Streams of the reference scheduler over generated workloads."""
    out = []
    for seed in seeds:
        scenario = workload(Random(seed), POLICY)
        head = header(scenario.config)
        out.append((head, [*play(scenario, Reference(head, PROFILES[POLICY].contract))]))
    return out


def judges() -> Iterator[Row]:
    """The reference scheduler, the pure system and the monitor over the same small workloads."""
    seeds = range(40)
    streams = played(seeds)
    events = sum(len(stream) for _, stream in streams)
    steps = sum(isinstance(e, ev.Step) for _, stream in streams for e in stream)
    on_wire = [(head, [to_wire(e) for e in stream]) for head, stream in streams]
    contract = PROFILES[POLICY].contract

    def purely() -> None:
        for head, stream in streams:
            state, active = initial(head, contract), clauses(head.observes)
            for event in stream:
                state = run(state, event, active).state

    def monitored() -> None:
        for head, stream in on_wire:
            monitor = Monitor(head, contract)
            for event in stream:
                monitor.feed(event)

    pure, fast = best(purely), best(monitored)
    yield "reference scheduler", steps / best(lambda: played(seeds)), "steps/s"
    yield "pure system, small workloads", events / pure, "events/s"
    yield "monitor, small workloads", events / fast, "events/s"
    yield "monitor / pure system", pure / fast, "times as fast"


def driving() -> Iterator[Row]:
    """Generated workloads through the adapter protocol, judged: what a campaign does, the engine's own work apart."""
    session = Session(InProcess(ReferenceEngine(), "reference", "preempt_spec"))
    scenarios = [workload(Random(seed), POLICY) for seed in range(60)]

    def drive_all() -> int:
        runs = [drive(session, scenario, seed) for seed, scenario in enumerate(scenarios)]
        return sum(len(r.events) for r in runs if isinstance(r, Run))

    events = drive_all()
    seconds = best(drive_all)
    yield "workloads driven and judged, in process", len(scenarios) / seconds, "workloads/s"
    yield "… events of theirs", events / seconds, "events/s"
    generating = best(lambda: [workload(Random(seed), POLICY) for seed in range(300)])
    yield "workloads generated", 300 / generating, "workloads/s"


def starting() -> Iterator[Row]:
    """From the command to its help, wall clock."""
    seconds = []
    for _ in range(5):
        before = time.perf_counter()
        subprocess.run([sys.executable, "-m", "preempt_oracle", "--help"], capture_output=True, check=True)
        seconds.append(time.perf_counter() - before)
    yield "preempt-oracle --help", min(seconds), "s"


def against_engine(trace: Path, produced_in: float) -> Iterator[Row]:
    """A recorded trace: how much longer the engine took to make the steps than we take to judge them."""
    grants = check(trace).grants
    seconds = best(lambda: check(trace))
    yield f"check of {trace.name}", grants / seconds, "grants/s"
    yield "engine's time / ours", produced_in / seconds, "times as fast"


def recording(figures: dict[str, Any]) -> Iterator[Row]:
    """What the recorder and the online monitor cost a real scheduler of vLLM."""
    for row in figures["rows"]:
        if row["variant"] != "without":
            what = f"vLLM {figures['vllm']}, {row['workload']}, {row['running']} running: {row['variant']}"
            yield what, 100 * (row["median_ratio"] - 1), "% of the scheduler's time"


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description="Measure the oracle; every figure of one run.")
    parser.add_argument("--full", action="store_true", help="memory also for a trace of 1 GB (some minutes)")
    parser.add_argument("--trace", type=Path, help="a recorded trace to compare with its engine")
    parser.add_argument("--produced-in", type=float, metavar="SECONDS", help="how long the engine took for --trace")
    parser.add_argument("--json", type=Path, default=LATEST, help="where to keep the figures")
    args = parser.parse_args()
    if (args.trace is None) != (args.produced_in is None):
        parser.error("--trace and --produced-in go together")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        rows += decoding(Path(folder) / "ample.jsonl", AMPLE)
        rows += decoding(Path(folder) / "scarce.jsonl", SCARCE)
        rows += lengthening(Path(folder))
        rows += in_flight(Path(folder))
    rows += memory(args.full)
    rows += judges()
    rows += driving()
    rows += starting()
    if args.trace is not None:
        rows += against_engine(args.trace, args.produced_in)
    in_production = recorder.measure()
    if in_production is not None:
        rows += recording(in_production)
    table = Table("what", "how much", "unit")
    table.title = f"preempt-oracle, one run, monitor {'compiled' if COMPILED else 'as it is written'}"
    table.columns[1].justify = "right"
    for what, amount, unit in rows:
        table.add_row(what, f"{amount:,.0f}" if amount >= 1000 else f"{amount:.3g}", unit)
    Console().print(table)
    if in_production is None:
        print(f"the recorder: absent, vllm=={recorder.VERSION} is not installed (preempt-oracle engines install)")
    kept = {
        "python": platform.python_version(),
        "compiled": COMPILED,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": os.getloadavg()[0],
        "msgspec": msgspec.__version__,
        "rows": [{"what": what, "amount": amount, "unit": unit} for what, amount, unit in rows],
        "recorder": in_production or f"absent: vllm=={recorder.VERSION} is not installed",
    }
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
