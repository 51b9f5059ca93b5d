"""What the recorder costs a real vLLM scheduler: CPU time per step with it and without, at 64 and 256 running requests.

Part of `make bench`, where vLLM is installed; alone, `python bench/recorder.py [VERSION [TURNS]]`. Ratios are of one
run: each turn of a variant is compared with the turn next to it that records nothing. The engine's thread is what a
user waits for; the process beside it is on another core.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from preempt_oracle.engines import environments
from preempt_oracle.record.settings import PREFIX

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results" / "recorder.json"
NEEDED = ("attr", "attrs", "msgspec", "backports")  # lent to vLLM's Python, which must be of the same version as ours
VERSION, TURNS = "0.33.0", 16
#: Workload -> blocks of the pool per request that may run. A request comes to need 40 at most, 23 on the average.
WORKLOADS = {"decoding": 28, "preempting": 22}


def variants(folder: str) -> dict[str, dict[str, str] | None]:
    """What is compared: settings of the recorder; None is vLLM's own class."""
    record, online = {"DIR": folder}, {"ONLINE": "on"}
    return {"without": None, "recorder": record, "online monitor": online}


def measure(version: str = VERSION, turns: int = TURNS) -> dict[str, Any] | None:
    """The figures of one run; None if that version is not installed here."""
    found = environments.ready("vllm", version)
    if found is None:
        return None
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as beside:
        for name in NEEDED:
            (Path(beside) / name).symlink_to(next(iter(__import__(name).__path__)))
        roots = [str(ROOT / part) for part in ("spec", "properties", "oracle")]
        env = {k: v for k, v in found.env.items() if not k.startswith(PREFIX)}
        env["PYTHONPATH"] = os.pathsep.join([*roots, beside, env.get("PYTHONPATH", "")])
        asked = {"running": [64, 256], "workloads": WORKLOADS, "variants": variants(folder), "turns": turns}
        command = [found.command[0], str(HERE / "recorder_child.py"), json.dumps(asked)]
        answer = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return {
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": os.getloadavg()[0],
        "vllm": version,
        "rows": json.loads(answer.stdout),
    }


def show(kept: dict[str, Any]) -> Table:
    """The figures as a table."""
    table = Table(
        "workload", "running", "variant", "engine's thread", "median", "least", "beside it", "to the end",
        title=f"recorder, vLLM {kept['vllm']}, one run",
    )  # fmt: skip
    for row in kept["rows"]:
        table.add_row(
            row["workload"], str(row["running"]), row["variant"], f"{row['thread_ms_median']:.3f} ms",
            f"{row['median_ratio'] - 1:+.1%}", f"{row['least_ratio'] - 1:+.1%}", f"{row['beside_ms']:.2f} ms",
            "yes" if row["recorded_to_the_end"] else "NO",
        )  # fmt: skip
    return table


def page(kept: dict[str, Any]) -> str:
    """The figures as they stand in docs/recording.md."""
    lines = ["| workload | running | | engine's thread | least | the process beside it |", "|---|---|---|---|---|---|"]
    for row in kept["rows"]:
        plain = row["variant"] == "without"
        spent = f"{row['thread_ms_median']:.2f} ms a step" if plain else f"{row['median_ratio'] - 1:+.1%}"
        least = f"{row['thread_ms_least']:.2f} ms" if plain else f"{row['least_ratio'] - 1:+.1%}"
        beside = "" if plain else f"{row['beside_ms']:.2f} ms a step"
        lines.append(f"| {row['workload']} | {row['running']} | {row['variant']} | {spent} | {least} | {beside} |")
    return "\n".join(lines) + "\n"


def main(version: str = VERSION, turns: str = str(TURNS)) -> None:
    """Measure, print, keep."""
    kept = measure(version, int(turns))
    if kept is None:
        raise SystemExit(f"vllm=={version} is not installed: preempt-oracle engines install vllm=={version}")
    Console(width=120).print(show(kept))
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
