"""Faults of LMDeploy: whom it preempts, why, and what becomes of it. See `lmdeploy_faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
    from preempt_oracle.engines.lmdeploy_faults_parts import (
        decoded,
        demoted,
        kept_running,
        leave,
        released,
        room,
        turned,
    )
else:
    from faults import Fault, Injection
    from lmdeploy_faults_parts import decoded, demoted, kept_running, leave, released, room, turned


def _needless(into: Injection, loop: Any) -> None:
    def answer(seq: Any, ask: Callable[[], bool]) -> bool:
        there = ask()
        if there and seq.status is loop.lib.status.RUNNING:
            into.acted()
            return False
        return there

    room(into, loop, answer)


def _oldest_first(into: Injection, loop: Any) -> None:
    def decode(original: Any, running: Any, *args: Any, **kwargs: Any) -> Any:
        mask = original(list(running)[::-1], *args, **kwargs)[::-1]
        if not all(mask) and mask[-1]:
            into.acted()
        return mask

    into.wrap(loop.scheduler, "schedule_running", decode)


def _newest_first(into: Injection, loop: Any) -> None:
    status = loop.lib.status

    def decode(original: Any, *args: Any, **kwargs: Any) -> Any:
        ran = loop.scheduler.running
        turned(loop, status.RUNNING)
        served, *rest = original(*args, **kwargs)
        turned(loop, status.RUNNING)
        if any(seq.status is status.WAITING for seq in ran[1:]):
            into.acted()
        return served[::-1], *rest

    into.wrap(loop.scheduler, "_schedule_decoding", decode)


def _for_nobody(into: Injection, loop: Any) -> None:
    def change(running: list[Any], mask: list[bool]) -> None:
        # All could go on, and the last one is sent away "to keep its blocks in reserve".
        if all(mask) and len(mask) > 1 and not loop.scheduler.block_manager.get_num_free_gpu_blocks():
            into.acted()
            leave(loop, running[-1])
            mask[-1] = False

    decoded(into, loop, change)


def _starves(into: Injection, loop: Any) -> None:
    stuck: list[Any] = []

    def stays(seq: Any) -> bool:
        into.acted()
        stuck.append(seq)
        return True

    def change(running: list[Any], mask: list[bool]) -> None:
        mask[:] = [valid and all(seq is not other for other in stuck) for seq, valid in zip(running, mask, strict=True)]
        stuck.clear()

    kept_running(into, loop, stays)
    decoded(into, loop, change)


def _keeps_computed(into: Injection, loop: Any) -> None:
    def change(seq: Any, step: int, _: Any) -> None:
        if step:
            into.acted()
            seq.set_step(step)

    released(into, loop, change)


def _keeps_table(into: Injection, loop: Any) -> None:
    def change(seq: Any, _: int, blocks: Any) -> None:
        if len(blocks):
            into.acted()
            seq.logical_blocks.append(blocks)

    released(into, loop, change)


def _releases_at_once(into: Injection, loop: Any) -> None:
    def change(seq: Any) -> None:
        into.acted()
        loop.scheduler.block_manager.free(seq)

    demoted(into, loop, change)


def _forgets_output(into: Injection, loop: Any) -> None:
    def change(seq: Any) -> None:
        into.acted()
        seq._num_token_ids = 0

    demoted(into, loop, change)


def _keeps_grant(into: Injection, loop: Any) -> None:
    def change(running: list[Any], mask: list[bool]) -> None:
        gone = [seq.status is loop.lib.status.WAITING for seq in running]
        if any(gone):
            into.acted()
            mask[:] = [valid or waits for valid, waits in zip(mask, gone, strict=True)]

    decoded(into, loop, change)


OLDEST_FIRST = Fault(
    "oldest-first",
    "Looks at the running requests from the first to the last, so that older ones leave for younger ones.",
    ("victim/choice",),
    _oldest_first,
)
NEWEST_FIRST = Fault(
    "newest-first",
    "Looks at the running requests from the last to the first, so that younger ones leave for older ones.",
    ("victim/choice",),
    _newest_first,
)

VICTIMS: tuple[Fault, ...] = (
    Fault(
        "needless",
        "Preempts a request that can grow whenever it has to.",
        ("victim/necessity",),
        _needless,
    ),
    OLDEST_FIRST,
    Fault(
        "for-nobody",
        "Preempts the last running request because the pool is full, though nobody lacks a block.",
        ("victim/trigger",),
        _for_nobody,
    ),
    Fault(
        "starves",
        "Passes over running requests that cannot grow instead of preempting them.",
        ("victim/duty",),
        _starves,
    ),
    Fault(
        "keeps-computed",
        "Takes a victim's blocks back and goes on counting its step (LMDeploy #3589).",
        ("victim/reset",),
        _keeps_computed,
    ),
    Fault(
        "keeps-table",
        "Takes a victim's blocks back and leaves them in its table.",
        ("pool/all-or-nothing", "victim/reset"),
        _keeps_table,
        why="whether the victim was demoted in this step or an earlier one: what it holds is not what it was left",
    ),
    Fault(
        "releases-at-once",
        "Frees a victim's blocks when it is preempted, and leaves it its step.",
        ("victim/reset",),
        _releases_at_once,
        also=("pool/conserve", "pool/refcount"),
        why="nothing told of a release: the free list and what the victim still counts as its own disagree",
    ),
    Fault("forgets-output", "Cuts the last token off a victim.", ("victim/keep-tokens",), _forgets_output),
    Fault(
        "keeps-grant",
        "Serves a request that has just preempted itself.",
        ("victim/unplan",),
        _keeps_grant,
        also=("pool/capacity", "queue/admission", "queue/order", "resume/hit"),
        why="it stands among those that wait: the very grant admits it again, perhaps without room",
    ),
)
