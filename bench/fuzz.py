"""What fuzzing costs, and what guidance brings: CPU time of one core, one fixed seed.

    python bench/fuzz.py [--engine NAME==VERSION ...] [--json FILE]

A *foreseen* step is one decision of the reference (grants, victims, queues, free blocks) as its sketch computes it
(`preempt_properties.sketch`): a property holds it to the reference scheduler, step by step, and nothing is judged.
A *judged* step is one `step` event of a driven scheduler, with all that belongs to it, through the adapter protocol and
every rule.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path
from time import process_time
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from preempt_oracle.adapters.inprocess import InProcess
from preempt_oracle.adapters.protocol import Session
from preempt_oracle.adapters.reference import ReferenceEngine
from preempt_oracle.campaign import probe
from preempt_oracle.cli.target import target
from preempt_oracle.drive import Run, drive
from preempt_oracle.fuzz.search import CANDIDATES, Search
from preempt_properties.drawn import Bytes
from preempt_properties.sketch import Sketch
from preempt_properties.workload import CAPABILITIES, workload
from preempt_spec.policies.profiles import PROFILES

HERE = Path(__file__).resolve().parent
POLICY, SEED = "vllm-fcfs", 0
Row = tuple[str, float, str]


def foreseeing(workloads: int = 400) -> list[Row]:
    """The search without an engine: draw, change, decode, foresee, choose."""
    search = Search(SEED, POLICY, CAPABILITIES)
    before = process_time()
    scenarios = [search.scenario() for _ in range(workloads)]
    seconds = process_time() - before
    sketch, steps = Sketch(PROFILES[POLICY].contract), 0
    before = process_time()
    for _ in range(3):
        steps += sum(sketch.run(s)[0] for s in scenarios)
    alone = process_time() - before
    return [
        ("foreseen in the fuzz loop: drawn, decoded, chosen", search.sketched / seconds, "steps/s"),
        ("… candidate workloads", workloads * CANDIDATES / seconds, "workloads/s"),
        ("the sketch alone", steps / alone, "steps/s"),
    ]


def drawing(examples: int = 2000) -> list[Row]:
    """What it costs that Hypothesis draws the bytes instead of our own search."""

    def decode(data: bytes) -> None:
        workload(Bytes(data), POLICY, capabilities=CAPABILITIES)

    @settings(max_examples=examples, database=None, deadline=None, phases=[Phase.generate], derandomize=True)
    @given(st.binary(min_size=48, max_size=400))
    def drawn(data: bytes) -> None:
        decode(data)

    before = process_time()
    drawn()
    theirs = process_time() - before
    search = Search(SEED, POLICY, CAPABILITIES, candidates=1)
    before = process_time()
    for _ in range(examples):
        search.scenario()
    ours = process_time() - before
    return [
        ("workloads from bytes that Hypothesis draws", examples / theirs, "workloads/s"),
        ("workloads from our own search, foreseen too", examples / ours, "workloads/s"),
    ]


def judging(seconds: float = 6.0) -> list[Row]:
    """All of it on the reference in this process; and what guidance brings in the same time."""
    out: list[Row] = []
    for what, candidates, fresh in (("searched", CANDIDATES, 50), ("drawn afresh", 1, 100)):
        search = Search(SEED, POLICY, CAPABILITIES, candidates=candidates, fresh=fresh)
        session = Session(InProcess(ReferenceEngine(), "reference", "preempt_spec"))
        steps, workloads, before = 0, 0, process_time()
        while process_time() - before < seconds:
            run = drive(session, search.scenario(), policy=POLICY, watch=search.watch)
            assert isinstance(run, Run)
            search.ran(run)
            steps += run.monitor.steps
            workloads += 1
        out.append((f"judged, the reference itself included, {what}", steps / seconds, "steps/s"))
        out.append((f"… workloads in {seconds:g} s of CPU", workloads, "workloads"))
        out.append(("… abstract states reached in that time", len(search.states), "states"))
    return out


def living() -> float:
    """CPU seconds of the processes that this one started and that still run, all their threads. Linux only."""
    ticks = 0
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def against(engine: str, warm: int, workloads: int) -> list[Row]:
    """CPU of this process and of the engine's, behind `warm` workloads: an import costs more than all that follows."""
    chosen = target(engine)
    policy = chosen.policy(None)
    session = chosen.connect()
    search = Search(SEED, policy, probe(session, policy).started.capabilities)

    def driven(n: int) -> int:
        steps = 0
        for _ in range(n):
            run = drive(session, search.scenario(), policy=policy, watch=search.watch)
            if isinstance(run, Run):
                search.ran(run)
                steps += run.monitor.steps
        return steps

    driven(warm)
    mine, its = process_time(), living()
    steps = driven(workloads)
    mine, its = process_time() - mine, living() - its
    session.close()
    if not its:
        raise SystemExit(f"{engine}: no process of its own, or none whose time can be read here")
    return [
        (f"{engine}: its process, scheduler and adapter", 1e6 * its / steps, "µs/step"),
        ("… the harness: search, protocol, every rule", 1e6 * mine / steps, "µs/step"),
        ("… harness / engine", mine / its, "times"),
    ]


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", action="append", default=[], help="an installed engine to set the harness against")
    parser.add_argument("--workloads", type=int, default=300, help="of each engine")
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    args = parser.parse_args()
    rows = [*foreseeing(), *drawing(), *judging()]
    for engine in args.engine:
        rows += against(engine, 10, args.workloads)
    table = Table("what", "how much", "unit", title="fuzzing, CPU time of one core")
    table.columns[1].justify = "right"
    for what, amount, unit in rows:
        table.add_row(what, f"{amount:,.0f}" if amount >= 1000 else f"{amount:.3g}", unit)
    Console(width=110).print(table)
    if args.json is not None:
        kept: dict[str, Any] = {
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "load": os.getloadavg()[0],
            "rows": [{"what": what, "amount": amount, "unit": unit} for what, amount, unit in rows],
        }
        args.json.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
