"""Faults put into vLLM: blocks, reference counts, hashes and hits. See `vllm_faults`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines import vllm_seams as seams
    from preempt_oracle.engines.faults import Fault, Injection
    from preempt_oracle.engines.vllm_faults_parts import During, Parts, after_preemption, calling, preempting, waits
else:
    import vllm_seams as seams
    from faults import Fault, Injection
    from vllm_faults_parts import During, Parts, after_preemption, calling, preempting, waits


def _table_freed(into: Injection, scheduler: Any, during: During, spoil: Callable[[list[Any]], list[Any]]) -> None:
    """What the allocator gives back of a table while something is under way."""

    def change(blocks: list[Any]) -> list[Any]:
        if during.request is None or during.request.status.name == "FINISHED_ABORTED" or not blocks:
            return blocks
        into.acted()
        return spoil(blocks)

    seams.around_table_free(into.wrap, Parts(scheduler).single, change)


def _victim_leaks(into: Injection, scheduler: Any) -> None:
    _table_freed(into, scheduler, preempting(into, scheduler), lambda blocks: blocks[:-1])


def _end_leaks(into: Injection, scheduler: Any) -> None:
    _table_freed(into, scheduler, calling(into, scheduler, "_free_blocks"), lambda blocks: blocks[:-1])


def _freed_twice(into: Injection, scheduler: Any) -> None:
    def free(original: Callable[..., Any], blocks: Iterable[Any]) -> Any:
        given = list(blocks)
        answer = original(given)
        for block in given:
            # Below zero an assertion of vLLM would fail when the block is handed out, perhaps in this very step.
            block.ref_cnt = max(block.ref_cnt, 0)
        return answer

    into.wrap(Parts(scheduler).pool, "free_blocks", free)
    _table_freed(into, scheduler, preempting(into, scheduler), lambda blocks: [*blocks, blocks[-1]])


def _behind_the_plan(into: Injection, scheduler: Any, spoil: Callable[[Any], bool]) -> None:
    """Do something to the free list after a step that preempted: inside it, whoever asks for blocks next would see."""
    queue = Parts(scheduler).pool.free_block_queue
    victims: list[Any] = []

    def remember(request: Any) -> bool:
        victims.append(request)
        return False

    def schedule(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        victims.clear()
        output = original(*args, **kwargs)
        if victims and spoil(queue):
            into.acted()
        return output

    after_preemption(into, scheduler, remember)
    into.wrap(scheduler, "schedule", schedule)


def _lost_in_the_pool(into: Injection, scheduler: Any) -> None:
    def spoil(queue: Any) -> bool:
        if not queue.num_free_blocks:
            return False
        queue.popleft()
        return True

    _behind_the_plan(into, scheduler, spoil)


def _credited_twice(into: Injection, scheduler: Any) -> None:
    def spoil(queue: Any) -> bool:
        queue.num_free_blocks += 1
        return True

    _behind_the_plan(into, scheduler, spoil)


def _not_counted(into: Injection, scheduler: Any) -> None:
    def touch(original: Callable[..., Any], blocks: Any) -> Any:
        held = [block for block in seams.flat(blocks) if block.ref_cnt > 0 and not block.is_null]
        answer = original(blocks)
        for block in held:
            block.ref_cnt -= 1
            into.acted()
        return answer

    into.wrap(Parts(scheduler).pool, "touch", touch)


def _first_one_out(into: Injection, scheduler: Any) -> None:
    during = preempting(into, scheduler)

    def free(original: Callable[..., Any], blocks: Iterable[Any]) -> Any:
        given = list(blocks)
        for block in given:
            if during.request is not None and block.ref_cnt > 1:
                block.ref_cnt = 1
                into.acted()
        return original(given)

    into.wrap(Parts(scheduler).pool, "free_blocks", free)


def _lent(into: Injection, scheduler: Any) -> None:
    parts = Parts(scheduler)
    growing: list[str] = []

    def allocate(original: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        growing.append(name)
        try:
            return original(name, *args, **kwargs)
        finally:
            growing.pop()

    def new_blocks(original: Callable[..., Any], count: int) -> Any:
        found = original(count)
        tables = [t for name, t in parts.single.req_to_blocks.items() if t and name not in growing]
        if found and growing and tables:
            found[-1] = tables[0][0]
            into.acted()
        return found

    into.wrap(parts.single, "allocate_new_blocks", allocate)
    into.wrap(parts.pool, "get_new_blocks", new_blocks)


def _taken_before_it_failed(into: Injection, scheduler: Any) -> None:
    parts = Parts(scheduler)

    def allocate(original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        granted = original(request, *args, **kwargs)
        if granted is None and waits(request) and parts.free() and not parts.table(request.request_id):
            parts.single.req_to_blocks[request.request_id].extend(parts.pool.get_new_blocks(1))
            into.acted()
        return granted

    into.wrap(parts.manager, "allocate_slots", allocate)


def _one_block_short(into: Injection, scheduler: Any) -> None:
    parts = Parts(scheduler)

    def allocate(original: Callable[..., Any], name: str, tokens: int, *args: Any, **kwargs: Any) -> Any:
        if -(-tokens // parts.page) > len(parts.table(name)):
            into.acted()
            tokens -= parts.page
        return original(name, tokens, *args, **kwargs)

    into.wrap(parts.single, "allocate_new_blocks", allocate)


def _hits_anything(into: Injection, scheduler: Any) -> None:
    parts = Parts(scheduler)
    used: set[int] = set()
    missed: list[bool] = []

    def lookup(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        used.clear()
        missed.clear()
        return original(*args, **kwargs)

    def cached(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        if found is None and not missed:
            missed.append(True)  # one page beyond the right ones
            other = [b for b in parts.pool.blocks if b.block_hash is not None and b.block_id not in used]
            if other:
                into.acted()
                return other[:1]
        used.update(block.block_id for block in found or ())
        return found

    into.wrap(parts.manager, "get_computed_blocks", lookup)
    into.wrap(parts.pool, "get_cached_block", cached)


def _without_its_salt(into: Injection, scheduler: Any) -> None:
    def add(original: Callable[..., Any], request: Any) -> Any:
        if request.cache_salt:
            request.cache_salt = None
            seams.rehash(request)
            into.acted()
        return original(request)

    into.wrap(scheduler, "add_request", add)


def _half_a_page(into: Injection, scheduler: Any) -> None:
    parts = Parts(scheduler)

    def cache(original: Callable[..., Any], request: Any, tokens: int, *args: Any, **kwargs: Any) -> Any:
        full = tokens // parts.page
        if tokens % parts.page and min(len(request.block_hashes), len(parts.table(request.request_id))) > full:
            into.acted()
            tokens = (full + 1) * parts.page
        return original(request, tokens, *args, **kwargs)

    into.wrap(parts.coordinator, "cache_blocks", cache)


def _hash_stays(into: Injection, scheduler: Any) -> None:
    pool = Parts(scheduler).pool

    def evict(original: Callable[..., Any], block: Any) -> Any:
        old = block.block_hash
        gone = original(block)
        if gone and old is not None:
            pool.cached_block_hash_to_block.insert(old, block)
            into.acted()
        return gone

    into.wrap(pool, "_maybe_evict_cached_block", evict)


ELSEWHERE = "if the right page lies in another block the length of the hit is possible, and what is read is wrong"

NOT_EMPTIED = "a reset right behind it cannot empty the cache, and vLLM raises before anybody counts"

FAULTS = (
    Fault(
        "block-leaked",
        "Forgets the last block of a victim when it releases the others.",
        ("pool/conserve", "live/survives"),
        _victim_leaks,
        why=NOT_EMPTIED,
    ),
    Fault(
        "block-leaked-at-the-end",
        "Forgets the last block of a request that finishes.",
        ("pool/conserve", "live/survives"),
        _end_leaks,
        why=NOT_EMPTIED,
    ),
    Fault(
        "block-lost-in-the-pool",
        "Takes a victim's blocks back and loses one of its free list in the same step.",
        ("pool/conserve",),
        _lost_in_the_pool,
        also=("pool/refcount",),
        why="the free list of a small pool is read too, and lacks the block that the count lacks",
    ),
    Fault(
        "block-freed-twice",
        "Releases the last block of a victim's table twice, and counts no reference below zero.",
        ("pool/free-once", "live/survives"),
        _freed_twice,
        why=NOT_EMPTIED,
    ),
    Fault(
        "block-credited-twice",
        "Adds one block more to its free count than a victim gave back.",
        ("pool/conserve",),
        _credited_twice,
    ),
    Fault(
        "shared-block-not-counted",
        "Does not count the second reference to a block that a prefix hit shares.",
        ("pool/refcount",),
        _not_counted,
        config={"caching": True},
    ),
    Fault(
        "shared-block-freed",
        "Puts a shared block into the free list as soon as the first of its holders is preempted.",
        ("pool/refcount", "pool/conserve"),
        _first_one_out,
        why="a block that is free and held breaks both; handed out again in the same step, pool/conserve sees it first",
        config={"caching": True},
    ),
    Fault(
        "owned-block-handed-out",
        "Gives a growing request a block that another one holds.",
        ("pool/conserve",),
        _lent,
        config={"caching": False},  # with the cache vLLM's own assertions may be quicker
    ),
    Fault(
        "failed-admission-keeps-a-block",
        "Takes a block for a waiting request before it finds that the rest does not fit.",
        ("pool/all-or-nothing",),
        _taken_before_it_failed,
        also=("pool/conserve", "pool/refcount"),
        why="a block that joined no table by a grant is missing from the free count and from the free list as well",
    ),
    Fault(
        "one-block-short",
        "Gives a request one block less than its grant needs.",
        ("pool/capacity",),
        _one_block_short,
        config={"caching": False},
    ),
    Fault(
        "hit-beyond-what-was-written",
        "Takes some cached block for the first page that its lookup misses.",
        ("resume/hit", "resume/provenance"),
        _hits_anything,
        why=ELSEWHERE,
        config={"caching": True},
    ),
    Fault(
        "stale-hash",
        "Leaves the hash of a block in its index when the block is given to somebody else.",
        ("resume/hit", "resume/provenance"),
        _hash_stays,
        also=("pool/conserve",),
        why=f"{ELSEWHERE}; and one lookup may find a block twice, under its old hash and its new one",
        config={"caching": True},
    ),
    Fault(
        "salt-ignored",
        "Hashes the pages of salted requests without their salt.",
        ("resume/hit", "resume/provenance"),
        _without_its_salt,
        why=ELSEWHERE,
        config={"caching": True},
        script=("salt",),
    ),
    Fault(
        "published-too-early",
        "Publishes a page whose tokens are known and not all computed yet.",
        ("resume/publish", "resume/hit"),
        _half_a_page,
        why="a request that hits the page in the step that published it is seen before the end of the step",
        config={"caching": True},
    ),
)
