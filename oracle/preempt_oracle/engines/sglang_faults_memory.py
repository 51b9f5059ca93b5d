"""Faults of SGLang: its pages, its rows and its tree. See `sglang_faults`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault, Injection
else:
    from faults import Fault, Injection


def _in_retraction(into: Injection, on: Any) -> list[Any]:
    """Not empty while a victim is released."""
    inside: list[Any] = []

    def release(original: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        inside.append(batch)
        try:
            return original(batch, *args, **kwargs)
        finally:
            inside.pop()

    into.wrap(on.batch, "release_req", release)
    return inside


def _leaks(into: Injection, on: Any, of_victim: bool) -> None:
    inside, page = _in_retraction(into, on), on.scheduler.page_size

    def free_row(original: Any, kv: Any, ranges: Any) -> Any:
        start, end = ranges[-1]
        if bool(inside) is of_victim and start < end:
            into.acted()
            ranges = [*ranges[:-1], (start, (end - 1) // page * page)]
        return original(kv, ranges)

    into.wrap(on.scheduler.tree_cache, "free_kv_row", free_row)


def _leaks_of_victim(into: Injection, on: Any) -> None:
    _leaks(into, on, True)


def _leaks_at_finish(into: Injection, on: Any) -> None:
    _leaks(into, on, False)


def _frees_twice(into: Injection, on: Any) -> None:
    inside, allocator = _in_retraction(into, on), on.scheduler.token_to_kv_pool_allocator

    def free_row(original: Any, kv: Any, ranges: Any) -> Any:
        start, end = ranges[-1]
        again = on.scheduler.req_to_token_pool.req_to_token[kv.req_pool_idx][start : start + 1].clone()
        answer = original(kv, ranges)
        if inside and start < end:
            into.acted()
            allocator.free(again)
        return answer

    into.wrap(on.scheduler.tree_cache, "free_kv_row", free_row)


def _frees_what_the_tree_has(into: Injection, on: Any) -> None:
    inside = _in_retraction(into, on)

    def free_row(original: Any, kv: Any, ranges: Any) -> Any:
        start, end = ranges[0]
        if inside and start:
            into.acted()
            ranges = [(0, end), *ranges[1:]]
        return original(kv, ranges)

    into.wrap(on.scheduler.tree_cache, "free_kv_row", free_row)


def _locks_nothing(into: Injection, on: Any) -> None:
    cache = on.scheduler.tree_cache

    def lock(original: Any, node: Any, *args: Any, **kwargs: Any) -> Any:
        if len(cache.path_device_indices(node)):
            into.acted()
            return None
        return original(node, *args, **kwargs)

    into.wrap(cache, "lock", lock)


def _locks_twice(into: Injection, on: Any) -> None:
    cache = on.scheduler.tree_cache

    def lock(original: Any, node: Any, *args: Any, **kwargs: Any) -> Any:
        if len(cache.path_device_indices(node)):
            into.acted()
            original(node, *args, **kwargs)
        return original(node, *args, **kwargs)

    into.wrap(cache, "lock", lock)


def _failed_admission_counts(into: Injection, on: Any) -> None:
    def add_one(original: Any, adder: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(adder, req, *args, **kwargs)
        if not any(req is other for other in adder.can_run_list):
            into.acted()
            req.kv.kv_committed_len = on.scheduler.page_size
        return answer

    into.wrap(on.sgl.adder, "add_one_req", add_one)


def _forgets_salt(into: Injection, on: Any) -> None:
    def queue(original: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        if req.cache_salt:
            into.acted()
            req.cache_salt = None
        return original(req, *args, **kwargs)

    into.wrap(on.scheduler, "_add_request_to_queue", queue)


def _hits_another(into: Injection, on: Any) -> None:
    latest: list[Any] = []

    def match(original: Any, params: Any) -> Any:
        result = original(params)
        if result.device_prefix_len:
            latest[:] = [result]
        elif latest and latest[0].device_prefix_len < len(params.key) and there(latest[0]):
            into.acted()
            return latest[0]
        return result

    def there(hit: Any) -> bool:
        try:
            path = on.scheduler.tree_cache.path_device_indices(hit.last_device_node)
            return bool(len(path) == hit.device_prefix_len)
        except KeyError:  # the tree has given it up
            return False

    into.wrap(on.scheduler.tree_cache, "match_prefix", match)


def _path_out_of_order(into: Injection, on: Any) -> None:
    cache, page = on.scheduler.tree_cache, on.scheduler.page_size

    def path(original: Any, node: Any) -> Any:
        slots = original(node)
        if len(slots) < 2 * page:
            return slots
        into.acted()
        return on.sgl.torch.cat([slots[page : 2 * page], slots[:page], slots[2 * page :]])

    into.wrap(cache, "path_device_indices", path)


def _row_of_another(into: Injection, on: Any) -> None:
    rows = on.scheduler.req_to_token_pool

    def prepare(original: Any, batch: Any) -> Any:
        answer = original(batch)
        if len(batch.reqs) > 1:
            into.acted()
            first, second = batch.req_pool_indices_cpu[:2].tolist()
            rows.req_to_token[second, :1] = rows.req_to_token[first, :1]
        return answer

    into.wrap(on.batch, "prepare_for_decode", prepare)


def _old_row(into: Injection, on: Any) -> None:
    had: dict[str, Any] = {}
    rows, page = on.scheduler.req_to_token_pool, on.scheduler.page_size

    def release(original: Any, batch: Any, idx: int, *args: Any, **kwargs: Any) -> Any:
        req = batch.reqs[idx]
        had[req.rid] = rows.req_to_token[req.kv.req_pool_idx, : req.kv.kv_committed_len].clone()
        return original(batch, idx, *args, **kwargs)

    def prepare(original: Any, batch: Any) -> Any:
        answer = original(batch)
        for req in batch.reqs:
            old = had.pop(req.rid, None)
            now = rows.req_to_token[req.kv.req_pool_idx, : req.extend_end]
            if old is not None and (old[:page] != now[: len(old)][:page]).any():
                into.acted()
                rows.req_to_token[req.kv.req_pool_idx, : len(old)] = old
        return answer

    into.wrap(on.batch, "release_req", release)
    into.wrap(on.batch, "prepare_for_extend", prepare)


def _keeps_its_twin(into: Injection, on: Any) -> None:
    inside: list[Any] = []
    rows = on.scheduler.req_to_token_pool

    def checkpoint(original: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
        inside.append(req)
        try:
            return original(req, *args, **kwargs)
        finally:
            inside.pop()

    def write(original: Any, indices: Any, values: Any) -> Any:
        if inside and not inside[0].finished() and (rows.req_to_token[indices] != values).any():
            into.acted()
            return None
        return original(indices, values)

    into.wrap(on.scheduler.tree_cache, "checkpoint", checkpoint)
    into.wrap(rows, "write", write)


def _publishes_too_early(into: Injection, on: Any) -> None:
    cache, page = on.scheduler.tree_cache, on.scheduler.page_size

    def prepare(original: Any, batch: Any) -> Any:
        answer = original(batch)
        for req in batch.reqs:
            if req.extend_end // page > req.prefix_len // page:
                into.acted()
                cache.checkpoint(req, up_to=req.extend_end)
        return answer

    into.wrap(on.batch, "prepare_for_extend", prepare)


_CACHED = {"caching": True}
MEMORY: tuple[Fault, ...] = (
    Fault("leaks-of-victim", "Forgets a victim's last page.", ("pool/conserve",), _leaks_of_victim),
    Fault("leaks-at-finish", "Forgets the last page of a request that is done.", ("pool/conserve",), _leaks_at_finish),
    Fault("frees-twice", "Frees a victim's first page twice.", ("pool/free-once",), _frees_twice),
    Fault(
        "frees-what-the-tree-has",
        "Frees a victim's prefix, which the tree goes on having.",
        ("pool/conserve", "pool/refcount"),
        _frees_what_the_tree_has,
        also=("resume/hit", "pool/free-once"),
        why="the page is free twice, by count and in the list of what may be handed out: both at the end of the step",
        config=_CACHED,
    ),
    Fault(
        "locks-nothing",
        "Does not lock the prefix of a request that runs.",
        ("pool/conserve",),
        _locks_nothing,
        also=("pool/refcount",),
        config=_CACHED,
    ),
    Fault(
        "locks-twice",
        "Locks the prefix of a request once too often.",
        ("pool/refcount", "pool/conserve"),
        _locks_twice,
        why="who was only looked at keeps a lock too, so that its prefix is never free again",
        config=_CACHED,
    ),
    Fault(
        "failed-admission-counts",
        "Counts KV for a request that it does not admit.",
        ("pool/all-or-nothing",),
        _failed_admission_counts,
    ),
    Fault(
        "forgets-salt",
        "Takes prompts of every salt for prefixes of each other.",
        ("resume/hit", "resume/provenance"),
        _forgets_salt,
        also=("resume/publish",),
        why="of two who are admitted together none is hit: the pages of the first take the place of the second's",
        config=_CACHED,
        script=("salt",),
    ),
    Fault(
        "hits-another",
        "Takes the latest prefix that somebody hit for the prefix of who hits nothing.",
        ("resume/hit",),
        _hits_another,
        also=("resume/provenance",),
        config=_CACHED,
    ),
    Fault(
        "path-out-of-order",
        "Reads the first two pages of a prefix in the wrong order.",
        ("resume/provenance", "resume/publish"),
        _path_out_of_order,
        why="of a prefix that the tree has just taken over, what can be found is not where it is looked for",
        config=_CACHED,
    ),
    Fault("row-of-another", "Lets a request read the first page of another.", ("resume/message",), _row_of_another),
    Fault("old-row", "Lets a resumed request read the pages it had before.", ("resume/message",), _old_row),
    Fault(
        "keeps-its-twin",
        "Lets a request go on reading pages that were freed because the tree has the same.",
        ("resume/message",),
        _keeps_its_twin,
        config=_CACHED,
    ),
    Fault(
        "publishes-too-early",
        "Puts pages into the tree when their prefill is planned.",
        ("resume/publish",),
        _publishes_too_early,
        config=_CACHED,
    ),
)
