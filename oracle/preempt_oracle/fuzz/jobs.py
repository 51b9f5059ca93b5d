"""Fuzzing in several processes: each searches with a seed of its own, and what they found is put together.

Job j of a run with seed S searches with seed S + j and, of N workloads, takes its share; so a run with `--workloads` is
the same each time it is made with the same seed and as many jobs. Of a rule that several broke, the shortest scenario
stays.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any

from attrs import Factory, define, evolve, frozen

from preempt_oracle.adapters.protocol import HarnessError
from preempt_oracle.campaign import Budget, Campaign, NoStart, Progress, Save, campaign
from preempt_oracle.fuzz.search import Search
from preempt_oracle.fuzz.states import Abstract
from preempt_oracle.known import Ledger

GRACE = 30  # seconds a job may take to end what it does, once it was told to


@frozen
class Order:
    """What to fuzz, as another process can be told."""

    named: dict[str, Any]  # which engine: the arguments of `cli.target.target`
    policy: str
    seed: int
    budget: Budget
    tries: int
    spec: str
    known_file: str | None
    folder: str
    stop_at_first: bool


@define
class Fuzzed:
    """What came of it."""

    campaign: Campaign
    states: set[Abstract]
    sketched: int  # steps of candidate workloads
    known: Ledger | None
    files: dict[str, list[str]] = Factory(dict)  # rule -> what was written for it


#: Makes the callback that writes a failure; given the dictionary of what was written.
Saver = Callable[[Order, dict[str, list[str]]], Save]


def one(order: Order, saver: Saver, progress: Progress = lambda *_: None) -> Fuzzed:
    """In this process. Raises NoStart, HarnessError, UnknownPolicy before the first workload."""
    from preempt_oracle.cli.choices import ledger
    from preempt_oracle.cli.target import target

    known, engine = ledger(order.known_file), target(**order.named)
    searches: list[Search] = []

    def source(can: frozenset[str]) -> Search:
        searches.append(Search(order.seed, order.policy, can))
        return searches[-1]

    files: dict[str, list[str]] = {}
    found = campaign(
        engine.connect,
        order.policy,
        order.seed,
        order.budget,
        saver(order, files),
        progress,
        order.tries,
        spec=order.spec,
        known=known,
        source=source,
        stop_at_first=order.stop_at_first,
    )
    return Fuzzed(found, searches[0].states, searches[0].sketched, known, files)


def _job(order: Order, saver: Saver, pipe: Connection) -> None:
    """A process. What it is told to end by, an interrupt, ends its campaign, which then has what it has."""

    def progress(*told: Any) -> None:
        pipe.send(("progress", told))

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        pipe.send(("done", one(order, saver, progress)))
    except (NoStart, HarnessError) as e:
        pipe.send(("failed", e))
    except (KeyboardInterrupt, BrokenPipeError):
        pipe.close()


def several(order: Order, jobs: int, saver: Saver, progress: Progress = lambda *_: None) -> Fuzzed:
    """In so many processes. Raises what `one` does, or HarnessError for a process that died."""
    spawn, began = multiprocessing.get_context("spawn"), monotonic()
    pipes: dict[Connection, int] = {}
    processes = []
    for j in range(jobs):
        workloads = order.budget.workloads
        share = None if workloads is None else workloads // jobs + (j < workloads % jobs)
        here, there = spawn.Pipe(duplex=False)
        mine = evolve(order, seed=order.seed + j, budget=Budget(share, order.budget.seconds))
        processes.append(spawn.Process(target=_job, args=(mine, saver, there), daemon=True))
        processes[-1].start()
        there.close()
        pipes[here] = j
    done: dict[int, Fuzzed] = {}
    counts, failed = dict.fromkeys(range(jobs), (0, 0)), list[Exception]()
    until, interrupted = float("inf"), False
    while pipes and monotonic() < until:
        try:
            for pipe in wait(list(pipes), 0.5):
                assert isinstance(pipe, Connection)
                j = pipes[pipe]
                try:
                    kind, told = pipe.recv()
                except (EOFError, OSError):
                    del pipes[pipe]
                    if not interrupted:
                        failed.append(HarnessError(f"job {j + 1} of {jobs} died"))
                    continue
                if kind == "progress":
                    counts[j] = (told[0], told[2])
                    progress(
                        sum(c for c, _ in counts.values()), monotonic() - began, max(f for _, f in counts.values())
                    )
                    continue
                del pipes[pipe]
                if kind == "failed":
                    failed.append(told)
                else:
                    done[j] = told
                    if order.stop_at_first and told.campaign.scenarios:
                        until = min(until, monotonic() + GRACE)
                        _end(processes)
        except KeyboardInterrupt:
            # A terminal sends it to every process of the group; one sent to this process alone is passed on.
            interrupted, until = True, min(until, monotonic() + GRACE)
            _end(processes)
    for process in processes:
        process.join(1)
        if process.is_alive():
            process.kill()
            process.join()
    if not done:
        raise failed[0] if failed else KeyboardInterrupt
    out = merged([done[j] for j in sorted(done)], order.seed)
    out.campaign.interrupted |= interrupted
    if failed and not out.campaign.broken:
        out.campaign.broken = str(failed[0])
    return out


def _end(processes: list[Any]) -> None:
    for process in processes:
        with suppress(OSError, ValueError):
            process.terminate()


def merged(parts: list[Fuzzed], seed: int) -> Fuzzed:
    """All of them as one. Of each rule the shortest scenario stays, and the files of the others go."""
    out = parts[0]
    mine = out.campaign
    mine.seed = seed
    for part in parts[1:]:
        other = part.campaign
        mine.workloads += other.workloads
        mine.seconds = max(mine.seconds, other.seconds)
        mine.outside.update(other.outside)
        mine.several += other.several
        mine.interrupted |= other.interrupted
        if other.broken and not mine.broken:
            mine.broken, mine.culprit = other.broken, other.culprit
        for rule, reduced in other.found.items():
            have = mine.found.get(rule)
            worse = have is not None and (have.actions, len(have.scenario.script)) <= (
                reduced.actions,
                len(reduced.scenario.script),
            )
            gone = part if worse else out
            for file in gone.files.pop(rule, []):
                Path(file).unlink(missing_ok=True)
            tally = gone.campaign.tally
            tally.failures = [f for f in tally.failures if f.violation.rule != rule or f.known]
            if not worse:
                mine.found[rule], mine.scenarios[rule] = reduced, other.scenarios[rule]
                out.files[rule] = part.files.get(rule, [])
            mine.first[rule] = min(mine.first.get(rule, float("inf")), other.first[rule])
        mine.tally.join(other.tally)
        out.states |= part.states
        out.sketched += part.sketched
        if out.known is not None and part.known is not None:
            out.known.absorb(part.known)
    return out
