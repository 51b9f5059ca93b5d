"""A process that examines theorems: ids come in on standard input, verdicts go out on standard output, as JSON lines.

    python -P -m preempt_properties.z3.worker MODULE SECONDS

MODULE has the registry `THEOREMS`. Each theorem gets a fork of this process, which has never used the solver: what the
solver does depends on all it did before, and so no verdict depends on which theorems came first. A theorem that takes
more than SECONDS of processor time is ended by the kernel, whatever the solver is doing, and this process ends the same
way: `pool` starts another.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from typing import NoReturn, TextIO

from preempt_properties.theorems.theorem import Registry, Theorem
from preempt_properties.z3.examine import examine


def serve(theorems: Registry, seconds: float, asked: TextIO, answers: TextIO) -> None:
    """Answer until nothing more is asked."""
    print("ready", file=answers, flush=True)
    for line in asked:
        theorem = theorems[line.strip()]
        child = os.fork()
        if child == 0:
            _answer(theorem, seconds, answers)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            signal.raise_signal(os.WTERMSIG(status))
        elif status:
            sys.exit(os.WEXITSTATUS(status))


def _answer(theorem: Theorem, seconds: float, answers: TextIO) -> NoReturn:
    """In a fork."""
    code = 1
    try:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        verdict = examine(theorem)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(verdict.as_json()), file=answers, flush=True)
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(importlib.import_module(sys.argv[1]).THEOREMS, float(sys.argv[2]), sys.stdin, sys.stdout)
