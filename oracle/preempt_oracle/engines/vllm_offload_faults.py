"""Faults of vLLM's `OffloadingConnector`, for `smoke vllm --inject --option connector=offloading`.

Runs in the engine's Python (standard library only). Wrapped are the connector's own methods, the chunk pool's and the
scheduler's: what the worker is told is what a broken connector would tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines.faults import Fault, Injection
else:
    from faults import Fault, Injection

HOST = {"host_blocks": True}
PUBLISHED = (
    "what was loaded is published when its request is looked at; if that is not admitted in the same step, a wrong "
    "page is seen by its hash before anybody attends it"
)
Put = Callable[[Injection, Any], None]
Change = Callable[[Injection, Any, Any], None]  # the injection, the scheduler, a message for the worker
#: What either connector may get wrong: what it does, which rules may say so, and which besides.
_KINDS: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "store-not-issued": ("Counts a page as stored that nobody was told to copy.", ("swap/host-pool",), ()),
    "load-not-issued": (
        "Counts pages as loaded that nobody was told to copy.",
        ("swap/round-trip", "resume/publish"),
        (),
    ),
    "wrong-page-loaded": (
        "Loads the first page where the last belongs, and the last where the first does.",
        ("swap/round-trip", "resume/publish"),
        (),
    ),
    "load-cut-short": (
        "Counts all of a load whose last page did not come.",
        ("swap/round-trip", "resume/publish"),
        (),
    ),
    "load-into-free-block": ("Loads a page into a block that nobody owns.", ("swap/fence",), ()),
    "stores-over-another": ("Stores a page into a host block that holds another.", ("swap/host-pool",), ()),
    "resumes-before-load": (
        "Resumes a request before what it loads is there.",
        ("swap/fence", "resume/publish"),
        ("swap/round-trip",),
    ),
}


def of_any(name: str, put: Put) -> Fault:
    """A fault that any connector may have, as this one has it."""
    does, rules, also = _KINDS[name]
    return Fault(name, does, rules, put, also, PUBLISHED if "resume/publish" in rules else "", config=HOST)


def told(change: Change) -> Put:
    """A fault that changes each message for the worker."""

    def put(into: Injection, scheduler: Any) -> None:
        def build(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            message = original(*args, **kwargs)
            change(into, scheduler, message)
            return message

        into.wrap(scheduler.connector, "build_connector_meta", build)

    return put


def _side(scheduler: Any) -> Any:
    return scheduler.connector.connector_scheduler


def _over(scheduler: Any, number: int) -> Any:
    """The scheduler forgets a job as if it were over; its status."""
    side = _side(scheduler)
    job = side._jobs.pop(number)
    side._req_status[job.req_id].transfer_jobs.discard(number)
    return job, side._req_status[job.req_id].req_context


def _store_not_issued(into: Injection, scheduler: Any, message: Any) -> None:
    for number in [*message.store_jobs][:1]:
        job, context = _over(scheduler, number)
        if job.fenced_block_ids or number in (message.jobs_to_flush or ()):
            message.jobs_to_flush.discard(number)
        del message.store_jobs[number]
        _side(scheduler).manager.complete_store(job.keys, context)
        into.acted()


def _load_not_issued(into: Injection, scheduler: Any, message: Any) -> None:
    for number in [*message.load_jobs][:1]:
        job, context = _over(scheduler, number)
        del message.load_jobs[number]
        _side(scheduler).manager.complete_load(job.keys, context)
        scheduler.finished_recving_kv_req_ids.add(job.req_id)
        into.acted()


def _loads(message: Any, least: int) -> Iterator[tuple[Any, Any]]:
    """Source and destination block ids of the loads that have so many."""
    for job in message.load_jobs.values():
        if len(job.src_spec.block_ids) >= least:
            yield job.src_spec.block_ids, job.dst_spec.block_ids


def _pages_swapped(into: Injection, _: Any, message: Any) -> None:
    for sources, _targets in _loads(message, 2):
        sources[[0, -1]] = sources[[-1, 0]]
        into.acted()


def _cut_short(into: Injection, _: Any, message: Any) -> None:
    for job in message.load_jobs.values():
        if len(job.src_spec.block_ids) > 1:
            job.src_spec.block_ids = job.src_spec.block_ids[:-1]
            job.dst_spec.block_ids = job.dst_spec.block_ids[:-1]
            into.acted()


def _into_a_free_block(into: Injection, scheduler: Any, message: Any) -> None:
    queue = scheduler.kv_cache_manager.block_pool.free_block_queue
    for _, targets in _loads(message, 1):
        if queue.num_free_blocks:
            targets[-1] = queue.fake_free_list_tail.prev_free_block.block_id
            into.acted()


def _not_flushed(into: Injection, _: Any, message: Any) -> None:
    waited = set(message.jobs_to_flush or ()) - message.store_jobs.keys()
    if waited:
        message.jobs_to_flush -= waited
        into.acted()


def _over_another(into: Injection, scheduler: Any, message: Any) -> None:
    for job in message.store_jobs.values():
        own = {int(b) for b in job.dst_spec.block_ids}
        chunks = _side(scheduler).manager._policy.chunks.values()
        others = [chunk.chunk_id for chunk in chunks if chunk.is_ready and chunk.chunk_id not in own]
        if others:
            job.dst_spec.block_ids[0] = others[0]
            into.acted()


def _resumes_before_its_load(into: Injection, scheduler: Any) -> None:
    side = _side(scheduler)
    hidden: dict[int, Any] = {}  # loads that are in flight, and nobody waits for

    def allocated(original: Callable[..., Any], request: Any, blocks: Any, tokens: int) -> Any:
        answer = original(request, blocks, tokens)
        if tokens:
            scheduler.finished_recving_kv_req_ids.add(request.request_id)
            status = side._req_status[request.request_id]
            hidden.update(dict.fromkeys(status.transfer_jobs, status))
            status.transfer_jobs.clear()  # else an assertion of the connector would notice before anybody else
            into.acted()
        return answer

    def heard(original: Callable[..., Any], output: Any) -> Any:
        done = getattr(output.kv_connector_worker_meta, "completed_jobs", {})
        for number in done:
            if number in hidden:
                hidden.pop(number).transfer_jobs.add(number)
        return original(output)

    into.wrap(scheduler.connector, "update_state_after_alloc", allocated)
    into.wrap(scheduler.connector, "update_connector_output", heard)


def _evicts_what_is_in_use(into: Injection, scheduler: Any) -> None:
    side = _side(scheduler)
    policy = side.manager._policy
    flying: set[Any] = set()

    def schedule(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        flying.clear()
        for job in side._jobs.values():
            flying.update(job.keys)
        return original(*args, **kwargs)

    def evict(original: Callable[..., Any], count: int, protected: Any) -> Any:
        evicted = original(count, protected)
        used = [key for key, chunk in policy.chunks.items() if key in flying and chunk.ref_cnt and key not in protected]
        if evicted and used:
            key, kept = evicted[-1]
            chunk = policy.chunks[used[0]]
            # The two change places: the one that may go stays, under the other's key.
            policy.chunks[used[0]] = kept
            kept.ref_cnt, chunk.ref_cnt = chunk.ref_cnt, 0
            evicted[-1] = (key, chunk)
            into.acted()
        return evicted

    into.wrap(scheduler, "schedule", schedule)
    into.wrap(policy, "evict", evict)


def _frees_a_host_block_twice(into: Injection, scheduler: Any) -> None:
    manager = _side(scheduler).manager

    def free(original: Callable[..., Any], chunk: Any) -> Any:
        original(chunk)
        into.acted()
        return original(chunk)

    into.wrap(manager, "_free_chunk", free)


FAULTS: tuple[Fault, ...] = (
    of_any("store-not-issued", told(_store_not_issued)),
    of_any("load-not-issued", told(_load_not_issued)),
    of_any("wrong-page-loaded", told(_pages_swapped)),
    of_any("load-cut-short", told(_cut_short)),
    of_any("load-into-free-block", told(_into_a_free_block)),
    Fault(
        "store-not-flushed",
        "Hands out blocks while a copy to the host still reads them.",
        ("swap/fence",),
        told(_not_flushed),
        config=HOST,
    ),
    of_any("stores-over-another", told(_over_another)),
    of_any("resumes-before-load", _resumes_before_its_load),
    Fault(
        "evicts-in-use",
        "Gives a host block up that a copy still uses.",
        ("swap/fence", "swap/host-pool"),
        _evicts_what_is_in_use,
        why="a copy that is flushed by the same message is over first; then a block is given up instead of another",
        config=HOST,
    ),
    Fault(
        "host-block-freed-twice",
        "Credits an evicted host block twice.",
        ("swap/host-pool",),
        _frees_a_host_block_twice,
        config=HOST,
    ),
)
