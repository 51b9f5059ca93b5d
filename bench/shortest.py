"""How short counterexamples become, and how long that takes: over every known-bad scheduler, one fixed seed.

    python bench/shortest.py [--json FILE] [--jobs N] [--every N] [NAME ...]

Each variant is fuzzed through the adapter protocol, as a user's scheduler is, until its rule breaks for the first time;
that failure is minimised, and nothing else is timed. An action is an arrival, a cancellation, a control or a step; the
deliveries that follow a step by themselves belong to it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from multiprocessing import Pool
from pathlib import Path
from statistics import median
from time import monotonic, process_time
from typing import Any

from rich.console import Console
from rich.table import Table

from preempt_oracle.adapters.inprocess import InProcess
from preempt_oracle.adapters.protocol import HarnessError, Refused, Session
from preempt_oracle.adapters.reference import ReferenceEngine
from preempt_oracle.drive import Run, actions, drive
from preempt_oracle.fuzz.search import Search
from preempt_oracle.monitor import Monitor
from preempt_oracle.reduce import Weight, weight
from preempt_oracle.shortest import shortest
from preempt_properties.known_bad import ZOO, KnownBad
from preempt_properties.known_bad.base import BadCache
from preempt_properties.scenario import Scenario
from preempt_properties.workload import CAPABILITIES
from preempt_spec.events import Header
from preempt_spec.policies.policy import Policy

HERE = Path(__file__).resolve().parent
WITHIN = 400  # workloads until the rule must have broken
SEED = 0
OUTSIDE = "not reachable by this protocol"


def bad(variant: type[KnownBad]) -> Session:
    """A known-bad scheduler behind the adapter protocol."""

    class Claims(variant):  # type: ignore[misc, valid-type]
        def __init__(self, header: Header, policy: Policy) -> None:
            super().__init__(header, variant.contract(policy))

    class Bad(ReferenceEngine):
        scheduler = Claims

    return Session(InProcess(Bad(), variant.__name__, "preempt_spec"))


def measure(variant: type[KnownBad]) -> dict[str, Any] | None:
    """One row; None if the fault cannot be reached through this protocol, or was not."""
    policy = variant.policies[0]
    session = bad(variant)

    def judge(header: Header, policy: Policy, spec: str) -> Monitor:
        return Monitor(header, variant.contract(policy), spec)

    search = Search(SEED, policy, (CAPABILITIES | variant.needs) - {"offload"})
    began = process_time()
    for n in range(1, WITHIN + 1):
        scenario = variant.scene(search.scenario())
        run = drive(session, scenario, policy=policy, judge=judge, watch=search.watch)
        if isinstance(run, Refused):
            continue
        search.ran(run)
        if any(v.rule == variant.rule for v in run.violations):
            found = process_time() - began
            return {"name": variant.__name__, "rule": variant.rule, "workloads": n, "found": found} | _minimised(
                session, scenario, run, variant.rule, judge
            )
    return None


def _minimised(session: Session, scenario: Scenario, run: Run, rule: str, judge: Any) -> dict[str, Any]:
    def weigh(candidate: Scenario) -> Weight | None:
        again = drive(session, candidate, judge=judge)
        if isinstance(again, Refused) or all(v.rule != rule for v in again.violations):
            return None
        return weight(candidate, actions(again))

    cpu, wall = process_time(), monotonic()
    short = shortest(scenario, weight(scenario, actions(run)), weigh)
    return {
        "before": actions(run),
        "actions": short.actions,
        "tries": short.tries,
        "cpu": process_time() - cpu,
        "wall": monotonic() - wall,
        "how": "shortest" if short.bounds else "locally minimal" if short.minimal else "given up",
    }


def row(name: str) -> dict[str, Any]:
    """As `measure`, by name; `out`: why there is nothing to minimise."""
    variant = next(v for v in ZOO if v.__name__ == name)
    if issubclass(variant, BadCache):
        return {"name": name, "out": OUTSIDE}  # copies in the background: no reply of the reference adapter tells them
    try:
        return measure(variant) or {"name": name, "out": "missed"}
    except HarnessError:
        return {"name": name, "out": OUTSIDE}  # what it does wrong is no reply of the protocol: refused, not judged


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    parser.add_argument("--jobs", type=int, default=1, help="processes; times are CPU times of each")
    parser.add_argument("--every", type=int, default=1, help="only every so-manieth known-bad scheduler")
    parser.add_argument("names", nargs="*", help="only these known-bad schedulers")
    args = parser.parse_args()
    names = [v.__name__ for v in ZOO if not args.names or v.__name__ in args.names][:: args.every]
    with Pool(args.jobs) as pool:
        every = pool.map(row, names, chunksize=1)
    rows = [r for r in every if "out" not in r]
    missed = [r["name"] for r in every if r.get("out") == "missed"]
    outside = [r["name"] for r in every if r.get("out") == OUTSIDE]
    table = Table("known-bad scheduler", "rule", "workloads", "before", "actions", "tries", "CPU s", "how")
    for r in rows:
        table.add_row(
            r["name"], r["rule"], *(str(r[k]) for k in ("workloads", "before", "actions", "tries")),
            f"{r['cpu']:.2f}", r["how"],
        )  # fmt: skip
    Console(width=120).print(table)
    summary = {
        "variants": len(names),
        "minimised": len(rows),
        "median actions": median(r["actions"] for r in rows),
        "most actions": max(r["actions"] for r in rows),
        "median CPU s": median(r["cpu"] for r in rows),
        "worst CPU s": max(r["cpu"] for r in rows),
        "shortest in stated bounds": sum(r["how"] == "shortest" for r in rows),
        "locally minimal": sum(r["how"] == "locally minimal" for r in rows),
        "given up": sum(r["how"] == "given up" for r in rows),
        f"not caught by its rule in {WITHIN} workloads": missed,
        OUTSIDE: outside,
    }
    for name, value in summary.items():
        print(f"{name}: {value}")
    if args.json is not None:
        machine = f"{platform.machine()}, {os.cpu_count()} cores"
        kept = {"python": platform.python_version(), "machine": machine, "seed": SEED, **summary, "rows": rows}
        args.json.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
