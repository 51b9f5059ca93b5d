"""Faults of LMDeploy: whom it preempts, why, and what becomes of it. See `lmdeploy_faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
else:
    from faults import Fault, Injection


def _needless(into: Injection, loop: Any) -> None:
    def make_room(original: Any, seq: Any, *args: Any, **kwargs: Any) -> bool:
        answer = bool(original(seq, *args, **kwargs))
        if answer and seq.status is loop.lib.status.RUNNING:
            into.acted()
            return False
        return answer

    into.wrap(loop.scheduler.eviction_helper, "try_make_capacity_for", make_room)


def _oldest_first(into: Injection, loop: Any) -> None:
    def decode(original: Any, running: Any, *args: Any, **kwargs: Any) -> Any:
        mask = original(list(running)[::-1], *args, **kwargs)[::-1]
        if not all(mask) and mask[-1]:
            into.acted()
        return mask

    into.wrap(loop.scheduler, "schedule_running", decode)


def _for_nobody(into: Injection, loop: Any) -> None:
    def decode(original: Any, running: Any, *args: Any, **kwargs: Any) -> Any:
        mask = original(running, *args, **kwargs)
        # All could go on, and the last one is sent away "to keep its blocks in reserve".
        if all(mask) and len(mask) > 1 and not loop.scheduler.block_manager.get_num_free_gpu_blocks():
            into.acted()
            loop.scheduler.preempt_seqs((running[-1],))
            mask[-1] = False
        return mask

    into.wrap(loop.scheduler, "schedule_running", decode)


def _starves(into: Injection, loop: Any) -> None:
    def preempt(original: Any, seqs: Any) -> Any:
        seqs = list(seqs)
        stuck = [seq for seq in seqs if seq.status is loop.lib.status.RUNNING]
        if stuck:
            into.acted()
        return original([seq for seq in seqs if all(seq is not other for other in stuck)])

    into.wrap(loop.scheduler, "preempt_seqs", preempt)


def _keeps_computed(into: Injection, loop: Any) -> None:
    def release(original: Any, seq: Any) -> Any:
        had = seq.num_history_ids
        answer = original(seq)
        if had and seq.status is loop.lib.status.WAITING:
            into.acted()
            seq.set_step(had)
        return answer

    into.wrap(loop.scheduler.sequence_lifecycle, "release_paging_resources", release)


def _keeps_table(into: Injection, loop: Any) -> None:
    def release(original: Any, seq: Any) -> Any:
        had = seq.logical_blocks.get_real_blocks().copy()
        answer = original(seq)
        if len(had) and seq.status is loop.lib.status.WAITING:
            into.acted()
            seq.logical_blocks.append(had)
        return answer

    into.wrap(loop.scheduler.sequence_lifecycle, "release_paging_resources", release)


def _releases_at_once(into: Injection, loop: Any) -> None:
    def preempt(original: Any, seqs: Any) -> Any:
        seqs = list(seqs)
        ran = [seq for seq in seqs if seq.status is loop.lib.status.RUNNING]
        answer = original(seqs)
        for seq in ran:
            into.acted()
            loop.scheduler.block_manager.free(seq)
        return answer

    into.wrap(loop.scheduler, "preempt_seqs", preempt)


def _forgets_output(into: Injection, loop: Any) -> None:
    def preempt(original: Any, seqs: Any) -> Any:
        seqs = list(seqs)
        ran = [seq for seq in seqs if seq.status is loop.lib.status.RUNNING]
        answer = original(seqs)
        for seq in ran:
            into.acted()
            seq._num_token_ids = 0
        return answer

    into.wrap(loop.scheduler, "preempt_seqs", preempt)


def _keeps_grant(into: Injection, loop: Any) -> None:
    def decode(original: Any, running: Any, *args: Any, **kwargs: Any) -> Any:
        mask = original(running, *args, **kwargs)
        if not all(mask):
            gone = [seq.status is loop.lib.status.WAITING for seq in running]
            if any(gone):
                into.acted()
            return [valid or waits for valid, waits in zip(mask, gone, strict=True)]
        return mask

    into.wrap(loop.scheduler, "schedule_running", decode)


VICTIMS: tuple[Fault, ...] = (
    Fault(
        "needless",
        "Preempts a request that can grow whenever it has to.",
        ("victim/necessity",),
        _needless,
    ),
    Fault(
        "oldest-first",
        "Looks at the running requests from the first to the last, so that older ones leave for younger ones.",
        ("victim/choice",),
        _oldest_first,
    ),
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
