"""What the recorder costs a real vLLM scheduler: CPU time per step with it and without, at 64 and 256 running requests.

`python bench/recorder.py [VERSION]` prints ratios of one run and keeps them in bench/results/recorder.json. The
engine's thread is what a user waits for; the whole process has the writing thread in it, which works while the model
runs.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from preempt_oracle.engines import environments
from preempt_oracle.record.settings import PREFIX

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results" / "recorder.json"
NEEDED = ("attr", "attrs", "msgspec", "backports")  # lent to vLLM's Python, which must be of the same version as ours


def variants(folder: str) -> dict[str, dict[str, str] | None]:
    """What is compared: settings of the recorder; None is vLLM's own class."""
    record, online = {"DIR": folder}, {"ONLINE": "on"}
    return {
        "without": None,
        "recorder": {**record, "QUEUE": "20000"},
        "recorder, no thread": {**record, "QUEUE": "0"},
        "recorder, plain tokens": {**record, "QUEUE": "20000", "CONTENT": "plain"},
        "online monitor": {**online, "QUEUE": "20000"},
        "online monitor, no thread": {**online, "QUEUE": "0"},
    }


def main(version: str, turns: int) -> None:
    """Measure, print, keep."""
    found = environments.ready("vllm", version)
    if found is None:
        raise SystemExit(f"vllm=={version} is not installed: preempt-oracle engines install vllm=={version}")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as beside:
        for name in NEEDED:
            (Path(beside) / name).symlink_to(next(iter(__import__(name).__path__)))
        roots = [str(ROOT / part) for part in ("spec", "properties", "oracle")]
        env = {k: v for k, v in found.env.items() if not k.startswith(PREFIX)}
        env["PYTHONPATH"] = os.pathsep.join([*roots, beside, env.get("PYTHONPATH", "")])
        asked = json.dumps({"running": [64, 256], "variants": variants(folder), "turns": turns})
        command = [found.command[0], str(HERE / "recorder_child.py"), asked]
        answer = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    rows = json.loads(answer.stdout)
    base = {row["running"]: row for row in rows if row["variant"] == "without"}
    table = Table(
        "running", "variant", "engine's thread", "whole process", "to the end", title=f"vLLM {version}, one run"
    )
    for row in rows:
        own = base[row["running"]]
        row["thread_ratio"] = row["thread_ms"] / own["thread_ms"]
        row["process_ratio"] = row["process_ms"] / own["process_ms"]
        shown = [f"{row[part + '_ms']:.2f} ms, {row[part + '_ratio'] - 1:+.0%}" for part in ("thread", "process")]
        table.add_row(str(row["running"]), row["variant"], *shown, "yes" if row["recorded_to_the_end"] else "NO")
    Console(width=110).print(table)
    kept = {
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": os.getloadavg()[0],
        "vllm": version,
        "rows": rows,
    }
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    given = (*sys.argv[1:], *("0.33.0", "5")[len(sys.argv) - 1 :])
    main(given[0], int(given[1]))
