"""Watch a live vLLM scheduler: what happened inside one call of it, in real order.

Runs in the engine's Python (standard library only). Methods of this one scheduler's objects are wrapped, so that a
fault injected into a class of vLLM stays underneath and is seen. Where each observation comes from:

* tables: `req_to_blocks` of the KV cache manager, read around every `allocate_slots` and compared as a whole at the end
  of a step; what the manager says it allocated is not used. What the worker is told is read from `SchedulerOutput`,
  which is a different object (see `vllm_child`).
* demotions: around each preemption, wherever this version has it (`vllm_seams`); the trigger is the `allocate_slots`
  that failed last.
* releases: what was passed to `BlockPool.free_blocks` meanwhile.
* published hashes: blocks whose `block_hash` changed in `BlockPool.cache_full_blocks`; withdrawn ones through
  `_maybe_evict_cached_block` and `reset_prefix_cache`, checked against all hashes of a small pool after each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines import vllm_seams as seams
    from preempt_oracle.engines.child import Unsupported
    from preempt_oracle.engines.vllm_books import Books
    from preempt_oracle.engines.vllm_holds import Holds
    from preempt_oracle.engines.vllm_offload import PENDING, Offload
    from preempt_oracle.engines.vllm_steps import Act, Grant, arrange, in_order
else:
    import vllm_seams as seams
    from child import Unsupported
    from vllm_books import Books
    from vllm_holds import Holds
    from vllm_offload import PENDING
    from vllm_steps import Act, Grant, arrange, in_order

#: Acts that are told with whatever brought them about: a step, a delivery, an abort.
LABELS = ("publish", "withdraw", "pin", "unpin", "unfence")
#: Why a waiting request is passed over for a younger one: see `Watch._pop_request`.
PASSED_OVER = "uncut: its tokens exceed the rest of the budget"


class Watch:
    """Everything seen of one scheduler since the last `take`, and the tables as far as they were seen."""

    offload: Offload | None
    holds: Holds | None

    def __init__(self, books: Books, page_size: int, offload: Offload | None = None) -> None:
        self.begins(books, page_size, books.pool, books.owned)
        self.manager = books.manager
        self._wrapped: list[tuple[Any, str]] = []
        for owner, name, wrapper in (
            (self.manager, "allocate_slots", self._allocate_slots),
            (self.manager, "get_computed_blocks", self._get_computed_blocks),
            (self.pool, "free_blocks", self._free_blocks),
            (self.pool, "cache_full_blocks", self._cache_full_blocks),
            (self.pool, "_maybe_evict_cached_block", self._evict),
            (self.pool, "reset_prefix_cache", self._reset),
            (books.scheduler, "_free_request", self._free_request),
            (books.scheduler.waiting, "pop_request", self._pop_request),
        ):
            self._wrap(owner, name, wrapper)
        if offload is not None:
            self.offload = offload
            self._wrap(offload.connector, "get_num_new_matched_tokens", self._matched)
            self.holds = Holds(offload, self._wrap, lambda: self.timeline, self.tables)
        seams.around_preemption(self._wrap, books.scheduler, self._preempted, self._queued_again)

    def begins(self, books: Any, page_size: int, pool: Any, owned: Any) -> None:
        """Nothing was seen yet. Apart from the wrappers: a recording is played back without any (`record.mirror`)."""
        self.books = books
        self.page_size = page_size
        self.pool = pool
        self.owned = owned
        self.offload = self.holds = None
        self.tables: dict[str, list[int]] = {}
        self.published: set[int] = set()
        self.timeline: list[Grant | Act] = []
        self.finished: list[tuple[str, Any, list[int]]] = []
        self.stray: list[int] = []
        self._taken: list[int] | None = None  # blocks freed by the preemption or finish that is under way
        self._late: list[Act] | None = None  # publications of the allocation that is under way
        #: Who failed to allocate last: request, need, supply, and what for: to grow, or to be admitted.
        self._short: tuple[str, int, int, str] | None = None
        self._hits: dict[str, int] = {}

    def _wrap(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return wrapper(original, *args, **kwargs)

        setattr(owner, name, call)
        self._wrapped.append((owner, name))

    def close(self) -> None:
        """Take the wrappers off, so that the scheduler is freed at once and not by the garbage collector."""
        for owner, name in self._wrapped:
            delattr(owner, name)
        self._wrapped.clear()

    # -- wrappers ----------------------------------------------------------------------------------------------------

    def _get_computed_blocks(self, original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(request, *args, **kwargs)
        self._hits[request.request_id] = found[1]
        return found

    def _matched(self, original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        """What could be loaded; None, if the connector wants to be asked again later: the request is passed over.

        It is told only where a copy is in flight with the worker, or a load begins in this step: else there is nothing
        to wait for.
        """
        answer = original(request, *args, **kwargs)
        copying = self.offload is not None and self.offload.copies.jobs
        if answer[0] is None and (copying or any(_is(entry, "load") for entry in self.timeline)):
            self.timeline.append({"act": "skip", "request": request.request_id, "guard": PENDING})
        return answer

    def _allocate_slots(
        self, original: Callable[..., Any], request: Any, num_new_tokens: int, *args: Any, **kwargs: Any
    ) -> Any:
        before = len(self.owned.get(request.request_id, ()))
        self._late = []
        granted = original(request, num_new_tokens, *args, **kwargs)
        self._allocated(before, granted, request, num_new_tokens, args, kwargs)
        return granted

    def _allocated(
        self, before: int, granted: Any, request: Any, tokens: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Behind an allocation, of which there is one per request and step: this must be quick."""
        name = request.request_id
        late, self._late = self._late, None
        start = request.num_computed_tokens
        if args or len(kwargs) > 1:  # more than the lookahead of a running request
            start += kwargs.get("num_new_computed_tokens", args[0] if args else 0)
            start += kwargs.get("num_external_computed_tokens", 0)
        if granted is None:
            length = start + tokens + kwargs.get("num_lookahead_tokens", 0)
            needed = -(-min(length, self.books.scheduler.max_model_len) // self.page_size)
            cause = "growth" if request.status.name == "RUNNING" else "admission"
            self._short = (name, max(needed - before, 0), self.books.free(), cause)
            self.timeline += late or ()
            return
        self._short = None
        table = self.owned.get(name, ())
        blocks: list[int] = []
        if len(table) > before:
            blocks = [block.block_id for block in table[before:]]
            self.tables.setdefault(name, []).extend(blocks)
        hit = self._hits.pop(name, None) if self._hits else None
        if kwargs.get("delay_cache_blocks"):  # copies will fill these blocks: it is not granted anything yet
            if before == 0:  # else it loads once more what it has: its copies are told, and it waits where it was
                self.timeline.append(
                    {"act": "load", "request": name, "computed": start, "blocks": [blocks], "hit": hit or 0}
                )
                if self.offload is not None:
                    self.offload.hits[name] = hit or 0
        else:
            self.timeline.append(Grant(name, start, tokens, blocks, hit))
        if late:
            # A hash is published while the slots are allocated; it is told after the grant that makes the blocks owned.
            self.timeline += late

    def _pop_request(self, original: Callable[..., Any]) -> Any:
        """Before 0.12, where prefills are not cut, one that exceeds the rest of the budget is passed over."""
        request = original()
        name = request.request_id
        config = self.books.scheduler.scheduler_config
        if getattr(config, "chunked_prefill_enabled", True):
            return request
        grants = [entry for entry in self.timeline if isinstance(entry, Grant)]
        if grants and grants[-1].request == name:
            return request  # it was admitted
        # What vLLM does is told as passed over only where the budget, counted here, bears it out.
        wanted = request.num_tokens - self._hits.get(name, 0)
        wanted = min(wanted, config.long_prefill_token_threshold or wanted)
        left = self.books.scheduler.max_num_scheduled_tokens - sum(grant.tokens for grant in grants)
        if wanted > left:
            self.timeline.append({"act": "skip", "request": name, "guard": PASSED_OVER})
        return request

    def _preempted(self, request: Any) -> None:
        demote: Act = {"act": "demote", "request": request.request_id}
        if self._short is None:
            demote["cause"] = "reset"
        else:
            beneficiary, need, supply, cause = self._short
            demote.update(cause=cause, beneficiaries=[beneficiary], need=need, supply=supply)
        self.timeline.append(demote)
        self._taken = []

    def _queued_again(self, request: Any) -> None:
        name = request.request_id
        taken, self._taken = self._taken or [], None
        self.timeline.append(
            {
                "act": "release",
                "request": name,
                "blocks": [taken[::-1]],  # freed tail first, told in table order
                "computed": request.num_computed_tokens,
                "drafts": len(request.spec_token_ids),
            }
        )
        self._reread(name)
        place = self.books.place(request)
        if place is not None:
            self.timeline.append({"act": "requeue", "request": name, "index": place, "known": request.num_tokens})
        self.timeline.append({"act": "unplan", "request": name})  # dropped by `take` if there was no grant

    def _free_request(self, original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        self._taken = []
        answer = original(request, *args, **kwargs)
        taken, self._taken = self._taken, None
        self.finished.append((request.request_id, request.status, taken[::-1]))
        self._hits.pop(request.request_id, None)
        self._reread(request.request_id)
        self.books.past += getattr(request, "num_preemptions", 0)  # not in every version
        return answer

    def _free_blocks(self, original: Callable[..., Any], ordered_blocks: Iterable[Any]) -> Any:
        blocks = list(ordered_blocks)
        ids = [block.block_id for block in blocks if not block.is_null]
        if self.holds is not None and self.holds.takes_back(ids, ending=self._taken is not None):
            return original(blocks)
        if self._taken is not None:
            self._taken += ids
        elif ids:
            self._stray(ids)
        return original(blocks)

    def _stray(self, ids: list[int]) -> None:
        """Blocks go back with nobody preempted or finished: told as a release of the request whose table has them."""
        for name, table in self.tables.items():
            if ids[0] not in table:
                continue
            over = next((taken for other, _, taken in self.finished if other == name), None)
            if over is not None:  # its load failed, and it with it: nothing fills them any more
                over += ids[::-1]
                self._reread(name)
                return
            self.timeline.append({"act": "release", "request": name, "blocks": [ids]})
            if self.offload is not None:
                self._reread(name)  # a load failed as a whole
            return
        self.stray += ids

    def _cache_full_blocks(
        self, original: Callable[..., Any], request: Any, blocks: list[Any], *args: Any, **kwargs: Any
    ) -> Any:
        first = kwargs.get("num_cached_blocks", args[0] if args else 0)
        last = kwargs.get("num_full_blocks", args[1] if len(args) > 1 else len(blocks))
        before = [block.block_hash for block in blocks[first:last]]
        answer = original(request, blocks, *args, **kwargs)
        ids = [
            block.block_id
            for block, old in zip(blocks[first:last], before, strict=True)
            if block.block_hash is not None and block.block_hash != old
        ]
        if ids:
            self.published.update(ids)
            target = self.timeline if self._late is None else self._late
            target.append({"act": "publish", "request": request.request_id, "blocks": ids})
        return answer

    def _evict(self, original: Callable[..., Any], block: Any) -> Any:
        gone = original(block)
        if gone:
            self._withdraw([block.block_id])
        return gone

    def _reset(self, original: Callable[..., Any]) -> Any:
        done = original()
        if done and self.published:
            self._withdraw(sorted(self.published))
        return done

    def _withdraw(self, ids: list[int]) -> None:
        self.published.difference_update(ids)
        last = self.timeline[-1] if self.timeline else None
        if isinstance(last, dict) and last["act"] == "withdraw":
            last["blocks"] += ids
        else:
            self.timeline.append({"act": "withdraw", "blocks": ids})

    # -- reading -----------------------------------------------------------------------------------------------------

    def _reread(self, name: str) -> None:
        """Take over the manager's table of a request whose blocks were freed; a table that is left stays known."""
        table = [block.block_id for block in self.owned.get(name, ())]
        if table:
            self.tables[name] = table
        else:
            self.tables.pop(name, None)

    # -- the step ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A step begins: forget triggers and lookups of the one before."""
        self._short = None
        self._hits.clear()

    def labels(self) -> list[Act]:
        """What became of blocks since the last call, outside of a decision; the rest waits for `take`."""
        seen = [x for x in self.timeline if not isinstance(x, Grant) and x["act"] in LABELS]
        self.timeline = [x for x in self.timeline if isinstance(x, Grant) or x["act"] not in LABELS]
        return seen

    def take(self, scheduled: dict[str, int]) -> tuple[list[Grant], list[Act], list[list[Any]]]:
        """Everything since the last call: standing grants in real order, acts, and block deltas.

        `scheduled` is what the engine tells the worker to run, by request.
        """
        if self.stray:
            raise Unsupported(f"blocks {self.stray} of nobody were freed outside of a preemption or a finish")
        timeline, self.timeline = self.timeline, []
        grants, acts = arrange(timeline, scheduled)
        deltas: dict[str, list[int]] = {}
        for grant in grants:
            if grant.blocks:
                deltas.setdefault(grant.request, []).extend(grant.blocks)
        self._compare(acts, deltas, len(grants))
        return in_order(grants, scheduled), acts, [[name, 0, ids] for name, ids in deltas.items()]

    def _compare(self, acts: list[Act], deltas: dict[str, list[int]], after: int) -> None:
        """Find table changes and hashes that no wrapper saw."""
        tables = self.tables
        for name in [n for n in tables if n not in self.owned]:
            acts.append({"act": "release", "request": name, "after": after, "blocks": [tables.pop(name)]})
        for name, blocks in self.owned.items():
            known = tables.get(name, [])
            if len(blocks) == len(known) and not self.books.small:
                continue
            real = [block.block_id for block in blocks]
            if real == known:
                continue
            if real[: len(known)] == known:
                deltas.setdefault(name, []).extend(real[len(known) :])
            else:  # not an extension: the old table ended, a new one began
                acts.append({"act": "release", "request": name, "after": after, "blocks": [known]})
                deltas[name] = real
            tables[name] = real
        if self.books.small:
            hashed = {block.block_id for block in self.pool.blocks if block.block_hash is not None}
            if hashed - self.published:
                raise Unsupported(f"blocks {sorted(hashed - self.published)} were published in an unknown way")
            if self.published - hashed:
                acts.append({"act": "withdraw", "after": after, "blocks": sorted(self.published - hashed)})
                self.published = hashed


def _is(entry: Grant | Act, kind: str) -> bool:
    return not isinstance(entry, Grant) and entry["act"] == kind
