"""The exported theorems put to another solver, cvc5, in processes that can be killed: it may hang in whole numbers.

    python -P -m preempt_oracle.second_solver FILE SECONDS [OPTION=VALUE...]

prints what it answers, and is ended by the kernel after SECONDS of processor time.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

#: Seconds of processor time for one attempt.
SECONDS = 2.0
#: Seconds of wall time after which an attempt is killed whatever it does.
SILENCE = 30.0
WORKERS = 2

#: What is tried, one after another, until there is an answer.
ATTEMPTS: tuple[tuple[str, ...], ...] = ((), ("decision=justification",))


@attrs.frozen
class Second:
    """What the second solver says of a theorem."""

    #: sat, unsat, unknown (which includes that its time was up), or its error message.
    answer: str
    #: sat or unsat: what agrees with the theorem.
    expected: str
    #: Wall time of all attempts, in milliseconds.
    ms: float

    @property
    def undecided(self) -> bool:
        """It does not know."""
        return self.answer == "unknown"

    @property
    def wrong(self) -> bool:
        """It contradicts the theorem, or cannot read the file: either way the file or a solver is at fault."""
        return self.answer not in ("unknown", self.expected)


def recheck(files: Mapping[str, Path], expected: Mapping[str, str], seconds: float = SECONDS) -> dict[str, Second]:
    """Ask about every file: id -> answer. `expected`: id -> sat or unsat. `seconds` of processor time an attempt."""

    def ask(id: str) -> Second:
        began, answer = time.monotonic(), "unknown"
        for options in ATTEMPTS:
            answer = _attempt(files[id], seconds, options)
            if answer != "unknown":
                break
        return Second(answer, expected[id], (time.monotonic() - began) * 1000)

    with ThreadPoolExecutor(WORKERS) as threads:
        return dict(zip(files, threads.map(ask, files), strict=True))


def _attempt(file: Path, seconds: float, options: tuple[str, ...]) -> str:
    command = [sys.executable, "-P", "-m", "preempt_oracle.second_solver", str(file), str(seconds), *options]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SILENCE, check=False, text=True
        )
    except subprocess.TimeoutExpired:
        return "unknown"
    if done.returncode == -signal.SIGPROF:
        return "unknown"
    said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    if not said:
        return f"no answer, exit {done.returncode}"
    return "unknown" if said[-1].startswith("unknown") else said[-1]  # cvc5 adds why


def answer(file: str, options: list[str]) -> str:
    """Ask cvc5 about one file, in this process: sat, unsat, unknown. Raises RuntimeError on a file it cannot read."""
    import cvc5

    solver = cvc5.Solver()
    for option in options:
        solver.setOption(*option.split("="))
    parser = cvc5.InputParser(solver)
    parser.setFileInput(cvc5.InputLanguage.SMT_LIB_2_6, file)
    symbols, said = parser.getSymbolManager(), ""
    while not (command := parser.nextCommand()).isNull():
        said += str(command.invoke(solver, symbols))
    return said.strip()


if __name__ == "__main__":
    signal.setitimer(signal.ITIMER_PROF, float(sys.argv[2]))
    print(answer(sys.argv[1], sys.argv[3:]))
