"""Faults of SGLang: whom it retracts, why, and what becomes of it. See `sglang_faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
else:
    from faults import Fault, Injection


def _reordered(into: Injection, on: Any, change: Any) -> None:
    """The order in which requests are kept is another one: who goes first is another one too."""

    def order(original: Any, _: Any, reqs: Any) -> Any:
        right = original(reqs)
        wrong = change(reqs, right)
        if wrong[-1] != right[-1]:
            into.acted()
            return wrong
        return right

    into.wrap(on.batch, "_get_decode_retraction_order", order)


def _most_outputs(into: Injection, on: Any) -> None:
    _reordered(into, on, lambda _, right: right[::-1])


def _first_of_equals(into: Injection, on: Any) -> None:
    def change(reqs: Any, right: Any) -> Any:
        return sorted(right, key=lambda i: (-len(reqs[i].output_ids), len(reqs[i].origin_input_ids), -i))

    _reordered(into, on, change)


def _any_prompt(into: Injection, on: Any) -> None:
    _reordered(into, on, lambda reqs, right: sorted(sorted(right), key=lambda i: -len(reqs[i].output_ids)))


def _needless(into: Injection, on: Any) -> None:
    def check(original: Any, batch: Any, selected_indices: Any = None) -> Any:
        answer = original(batch, selected_indices)
        if answer and selected_indices is None and len(batch.reqs) > 1:
            into.acted()
            return False
        return answer

    into.wrap(on.batch, "check_decode_mem", check)


def _one_too_many(into: Injection, on: Any) -> None:
    lied: list[Any] = []

    def retract(original: Any, batch: Any) -> Any:
        lied.clear()
        return original(batch)

    def check(original: Any, batch: Any, selected_indices: Any = None) -> Any:
        answer = original(batch, selected_indices)
        if answer and selected_indices is not None and len(selected_indices) > 1 and not lied:
            lied.append(batch)
            into.acted()
            return False
        return answer

    into.wrap(on.batch, "retract_decode", retract)
    into.wrap(on.batch, "check_decode_mem", check)


def _waits(into: Injection, on: Any) -> None:
    def update(original: Any, batch: Any) -> Any:
        if len(batch.reqs) > 1 and not batch.check_decode_mem():
            into.acted()
            return None
        return original(batch)

    into.wrap(on.scheduler, "update_running_batch", update)


def _believes_it_fits(into: Injection, on: Any) -> None:
    def check(original: Any, batch: Any, selected_indices: Any = None) -> Any:
        if not original(batch, selected_indices):
            into.acted()
        return True

    into.wrap(on.batch, "check_decode_mem", check)


def _for_admission(into: Injection, on: Any) -> None:
    def add_one(original: Any, adder: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(adder, req, *args, **kwargs)
        running = adder.running_batch
        if answer is type(answer).NO_TOKEN and not adder.can_run_list and len(running.reqs) > 1:
            into.acted()
            victim = running.reqs[-1]
            running.release_req(len(running.reqs) - 1, len(running.reqs) - 1)
            running.filter_batch(keep_indices=list(range(len(running.reqs) - 1)))
            on.scheduler._add_request_to_queue(victim)
        return answer

    into.wrap(on.sgl.adder, "add_one_req", add_one)


def _after_release(into: Injection, on: Any, change: Any) -> None:
    """What is left of a victim behind its release is changed."""

    def release(original: Any, batch: Any, idx: int, *args: Any, **kwargs: Any) -> Any:
        req = batch.reqs[idx]
        had = req.kv.kv_committed_len, req.kv.kv_allocated_len, req.kv.req_pool_idx
        answer = original(batch, idx, *args, **kwargs)
        if change(req, *had):
            into.acted()
        return answer

    into.wrap(on.batch, "release_req", release)


def _keeps_computed(into: Injection, on: Any) -> None:
    def change(req: Any, committed: int, _: int, __: int) -> bool:
        req.kv.kv_committed_len = committed
        return True

    _after_release(into, on, change)


def _keeps_row(into: Injection, on: Any) -> None:
    def change(req: Any, _: int, allocated: int, row: int) -> bool:
        req.kv.kv_allocated_len, req.kv.req_pool_idx = allocated, row
        return True

    _after_release(into, on, change)


def _forgets_outputs(into: Injection, on: Any) -> None:
    def change(req: Any, _: int, __: int, ___: int) -> bool:
        had = len(req.output_ids)
        del req.output_ids[:]
        return had > 0

    _after_release(into, on, change)


def _keeps_grant(into: Injection, on: Any) -> None:
    released: list[int] = []

    def retract(original: Any, batch: Any) -> Any:
        released.clear()
        return original(batch)

    def release(original: Any, batch: Any, idx: int, *args: Any, **kwargs: Any) -> Any:
        released.append(idx)
        return original(batch, idx, *args, **kwargs)

    def keep(original: Any, batch: Any, reqs_to_exclude: Any = None, keep_indices: Any = None) -> Any:
        if keep_indices and released:
            into.acted()
            keep_indices = [*keep_indices, released[0]]
        released.clear()
        return original(batch, reqs_to_exclude, keep_indices)

    into.wrap(on.batch, "retract_decode", retract)
    into.wrap(on.batch, "release_req", release)
    into.wrap(on.batch, "filter_batch", keep)


VICTIMS: tuple[Fault, ...] = (
    Fault("most-outputs", "Retracts who has most outputs, not fewest.", ("victim/choice",), _most_outputs),
    Fault("first-of-equals", "Retracts the first of equals, not the last.", ("victim/choice",), _first_of_equals),
    Fault(
        "any-prompt", "Retracts the last of those with fewest outputs, however long.", ("victim/choice",), _any_prompt
    ),
    Fault("needless", "Retracts a request though all of the batch fits.", ("victim/necessity",), _needless),
    Fault("one-too-many", "Retracts one request more than it takes.", ("victim/minimal",), _one_too_many),
    Fault("waits", "Decodes nobody in a step in which not all fit, and retracts nobody.", ("victim/duty",), _waits),
    Fault(
        "believes-it-fits",
        "Takes every decode batch for one that fits.",
        ("live/survives",),
        _believes_it_fits,
    ),
    Fault(
        "for-admission", "Retracts a request because a waiting one does not fit.", ("victim/trigger",), _for_admission
    ),
    Fault("keeps-computed", "Goes on counting a victim's KV as committed.", ("victim/reset",), _keeps_computed),
    Fault(
        "keeps-row", "Leaves a victim its row of the table, and what it had allocated.", ("victim/reset",), _keeps_row
    ),
    Fault("forgets-outputs", "Forgets what a victim has emitted.", ("victim/keep-tokens",), _forgets_outputs),
    Fault(
        "keeps-grant",
        "Lets a victim decode in the very batch it was taken out of.",
        ("victim/unplan",),
        _keeps_grant,
        also=("pool/capacity", "pool/conserve", "queue/admission", "queue/order", "resume/hit"),
        why="its pages are gone and it stands among those that wait: the very grant has no room, and admits it again",
    ),
)
