"""A process that examines theorems: ids come in on standard input, verdicts go out on standard output, as JSON lines.

    python -P -m preempt_properties.z3.worker MODULE SECONDS

MODULE has the registry `THEOREMS`. A theorem that takes more than SECONDS of processor time ends the process, by the
kernel's hand, whatever the solver is doing: `pool` starts another.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys
from typing import TextIO

from preempt_properties.theorems.theorem import Registry
from preempt_properties.z3.examine import examine


def serve(theorems: Registry, seconds: float, asked: TextIO, answers: TextIO) -> None:
    """Answer until nothing more is asked."""
    print("ready", file=answers, flush=True)
    for line in asked:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        verdict = examine(theorems[line.strip()])
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(verdict.as_json()), file=answers, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends this process
    serve(importlib.import_module(sys.argv[1]).THEOREMS, float(sys.argv[2]), sys.stdin, sys.stdout)
