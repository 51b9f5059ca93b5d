"""Theorems examined side by side in processes that can be killed. The solver is never loaded into this one."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO

import attrs

from preempt_properties.z3.verdict import Outcome, Verdict

#: Seconds of processor time for one theorem, all checks included.
BUDGET = 1.0
#: A worker that says nothing for this many seconds is killed: it may wait for something that needs no processor.
SILENCE = 20.0
WORKERS = 2


class ProverBroken(Exception):
    """A worker did not start: the theorems cannot even be imported."""


@attrs.define(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    pending: bytes = b""
    #: The theorem it is at; None: it has not said that it is ready.
    at: str | None = None
    since: float = attrs.Factory(time.monotonic)

    def lines(self) -> list[bytes] | None:
        """What came in, in whole lines; None: the process ended."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        *lines, self.pending = (self.pending + data).split(b"\n")
        return lines if data else None

    def ask(self, id: str) -> None:
        assert self.process.stdin is not None
        self.at, self.since = id, time.monotonic()
        with suppress(BrokenPipeError):  # it died: reading says so
            self.process.stdin.write(f"{id}\n".encode())
            self.process.stdin.flush()

    def end(self) -> int:
        """Kill and clean up; the return code."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # with the fork that is at a theorem
        code = self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        return code


def _start(source: str, budget: float) -> _Worker:
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
    command = [sys.executable, "-P", "-m", "preempt_properties.z3.worker", source, str(budget)]
    return _Worker(subprocess.Popen(command, stdin=-1, stdout=-1, stderr=errors, process_group=0), errors)


def examine_all(
    ids: Iterable[str],
    *,
    source: str = "preempt_properties.theorems",
    budget: float = BUDGET,
    silence: float = SILENCE,
    workers: int = WORKERS,
    tell: Callable[[Verdict], None] = lambda _: None,
) -> list[Verdict]:
    """Examine theorems of the registry `source.THEOREMS`; verdicts in the order asked, `tell` as they come.

    `budget`: seconds of processor time for each; `silence`: seconds of wall time. Raises ProverBroken if the theorems
    cannot be loaded.
    """
    order = list(ids)
    waiting = deque(order)
    found: dict[str, Verdict] = {}
    running: list[_Worker] = []

    def settle(verdict: Verdict) -> None:
        found[verdict.id] = verdict
        tell(verdict)

    with selectors.DefaultSelector() as selector:

        def start() -> None:
            worker = _start(source, budget)
            running.append(worker)
            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]

        def stop(worker: _Worker) -> int:
            selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
            running.remove(worker)
            return worker.end()

        def replace(worker: _Worker, reason: str) -> None:
            """A worker died, or had to: that is the verdict on the theorem it was at."""
            worker.errors.seek(0)
            said = worker.errors.read().decode(errors="replace").strip().splitlines()
            code = stop(worker)
            if worker.at is None:
                raise ProverBroken("\n".join(said[-5:]) or f"the prover does not start: exit {code}")
            late = code == -signal.SIGPROF
            outcome = Outcome.UNKNOWN if late or reason else Outcome.BROKEN
            reason = f"not done in {budget:g} s of processor time" if late else reason
            reason = reason or f"the prover died: exit {code}{': ' + said[-1] if said else ''}"
            settle(Verdict(id=worker.at, outcome=outcome, stands=False, reason=reason, ms=budget * 1000))
            if waiting:
                start()

        def next_for(worker: _Worker) -> None:
            if waiting:
                worker.ask(waiting.popleft())
            else:
                stop(worker)

        try:
            for _ in range(min(workers, len(order))):
                start()
            while running:
                for key, _ in selector.select(timeout=0.2):
                    worker: _Worker = key.data
                    lines = worker.lines()
                    if lines is None:
                        replace(worker, "")
                        continue
                    for line in lines:
                        if worker.at is not None:
                            settle(Verdict.from_json(json.loads(line)))
                        next_for(worker)
                for worker in list(running):
                    if time.monotonic() - worker.since > silence:
                        replace(worker, f"no answer in {silence:g} s")
        finally:
            for worker in list(running):
                stop(worker)
    return [found[id] for id in order]
