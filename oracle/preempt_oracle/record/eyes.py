"""What happens inside one call of the scheduler, seen on the engine's thread: rare things alone, and little of each.

The adapter's eyes (`engines.vllm_watch`) sit on `allocate_slots`, which every request calls in every step. These do
not: who was granted what stands in `SchedulerOutput`, whose tables grew is read behind the step, and the allocation
that failed is read where vLLM asks whether its victim can be preempted, from the variables of `schedule` itself.

Nothing in here comes between the engine and what it calls: each call is made once, with what the engine passed, and its
answer or its exception is what the engine gets.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from itertools import chain
from operator import attrgetter
from types import FrameType
from typing import Any

from preempt_oracle.engines.child import Unsupported, require
from preempt_oracle.engines.vllm_books import Books
from preempt_oracle.record.records import (
    Demoted,
    Emptied,
    Ended,
    Freed,
    Happened,
    Published,
    Requeued,
    Short,
    Waiting,
    Withdrawn,
)

#: Variables of `Scheduler.schedule` that are read where it is about to preempt.
LOCALS = ("request", "num_new_tokens", "num_scheduled_tokens")
DEEP = 8  # calls between `schedule` and what is wrapped, at most
ID = attrgetter("request_id")
_in_order = deque.__iter__


class Untellable(Exception):
    """Something happened that trace v1 has no words for."""


def raw(queue: Any) -> list[Any]:
    """What a waiting queue holds, as it keeps it: in order, or the heap of a PRIORITY queue."""
    # Not by the queue's own way to iterate, which is written in Python.
    return list(_in_order(queue) if isinstance(queue, deque) else getattr(queue, "_heap", queue))


class Eyes:
    """Wrappers around methods of one scheduler's objects. Raises Unsupported, when built, if it is another vLLM."""

    def __init__(self, books: Books, failed: Callable[[BaseException], None]) -> None:
        self.books = books
        self.scheduler = books.scheduler
        self.happened: list[Happened] = []
        self.ended: list[Ended] = []
        self.hits: dict[str, int] = {}
        self._failed = failed
        self.cut: Callable[[str, int], None] = lambda _name, _left: None  # told how many blocks a table is left
        self._blind = False
        self.stirred = True  # somebody may have come to a queue, or left one
        self._taken: list[int] | None = None  # blocks freed by the preemption or finish that is under way
        self.short: Short | None = None  # the allocation that failed in this step
        self.holding = [
            getattr(self.scheduler, name)
            for name in ("kv_holding_waiting", "skipped_waiting")
            if hasattr(self.scheduler, name)
        ]
        self._wrappers: list[tuple[Any, str, Callable[..., Any]]] = []
        require(self.scheduler, ("_preempt_request", "_request_blocks_can_be_freed"))
        for kind in type(self.scheduler).__mro__:  # ours is on top: what counts is the one that schedules
            method = vars(kind).get("schedule")
            code = getattr(method, "__code__", None)
            if code is not None and set(LOCALS) <= {*code.co_varnames, *code.co_cellvars}:
                self._code = code
                break
        else:
            raise Unsupported(f"no schedule() of {type(self.scheduler).__name__} has the variables {', '.join(LOCALS)}")
        pool, manager = books.pool, books.manager
        for owner, name, make in (
            (pool, "free_blocks", self._free_blocks),
            (pool, "cache_full_blocks", self._cache_full_blocks),
            (pool, "_maybe_evict_cached_block", self._evict),
            (pool, "reset_prefix_cache", self._reset),
            (manager, "get_computed_blocks", self._get_computed_blocks),
            (self.scheduler, "_request_blocks_can_be_freed", self._about_to_preempt),
            (self.scheduler, "_preempt_request", self._preempt),
            (self.scheduler, "_free_request", self._free_request),
        ):
            call = make(getattr(owner, name))
            setattr(owner, name, call)
            self._wrappers.append((owner, name, call))

    def close(self) -> None:
        """Take the wrappers off where nobody has put another on top; they let everything through in any case."""
        self._blind = True
        for owner, name, call in self._wrappers:
            if vars(owner).get(name) is call:
                delattr(owner, name)
        self._wrappers.clear()

    def waiting(self) -> Waiting:
        """The queues, by id."""
        return Waiting(
            list(map(ID, chain.from_iterable(map(raw, self.holding)))), list(map(ID, raw(self.scheduler.waiting)))
        )

    def _guard(self, error: BaseException) -> None:
        self._blind = True
        self._failed(error)

    # -- wrappers: each makes the call in place of `original` ----------------------------------------------------------

    def _evict(self, original: Callable[..., Any]) -> Callable[..., Any]:
        note = self.happened.append

        def evict(block: Any, *args: Any, **kwargs: Any) -> Any:
            gone = original(block, *args, **kwargs)
            if gone and not self._blind:
                try:
                    note(Withdrawn(block.block_id))
                except Exception as error:
                    self._guard(error)
            return gone

        return evict

    def _cache_full_blocks(self, original: Callable[..., Any]) -> Callable[..., Any]:
        note = self.happened.append

        def cache_full_blocks(request: Any, blocks: Any, *args: Any, **kwargs: Any) -> Any:
            answer = original(request, blocks, *args, **kwargs)
            if not self._blind:
                try:
                    first = kwargs["num_cached_blocks"] if "num_cached_blocks" in kwargs else args[0]
                    last = kwargs["num_full_blocks"] if "num_full_blocks" in kwargs else args[1]
                    if last - first == 1:
                        block = blocks[first]
                        if block.block_hash is not None:
                            note(Published(request.request_id, [block.block_id]))
                    elif ids := [block.block_id for block in blocks[first:last] if block.block_hash is not None]:
                        note(Published(request.request_id, ids))
                except Exception as error:
                    self._guard(error)
            return answer

        return cache_full_blocks

    def _reset(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def reset_prefix_cache(*args: Any, **kwargs: Any) -> Any:
            done = original(*args, **kwargs)
            if done and not self._blind:
                self.happened.append(Emptied())
            return done

        return reset_prefix_cache

    def _get_computed_blocks(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_computed_blocks(request: Any, *args: Any, **kwargs: Any) -> Any:
            found = original(request, *args, **kwargs)
            if not self._blind:
                try:
                    self.hits[request.request_id] = int(found[1])
                except Exception as error:
                    self._guard(error)
            return found

        return get_computed_blocks

    def _free_blocks(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def free_blocks(ordered_blocks: Any, *args: Any, **kwargs: Any) -> Any:
            blocks = list(ordered_blocks)  # it can be read only once, and is the engine's to read
            if not self._blind:
                try:
                    ids = [block.block_id for block in blocks if not block.is_null]
                    if self._taken is not None:
                        self._taken += ids
                    elif ids:
                        self.happened.append(Freed(ids))
                except Exception as error:
                    self._guard(error)
            return original(blocks, *args, **kwargs)

        return free_blocks

    def _about_to_preempt(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def can_be_freed(victim: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._blind:
                try:
                    frame = self._scheduling()
                    if frame is not None:
                        self.short = self._failed_for(victim, frame.f_locals)
                except Exception as error:
                    self._guard(error)
            return original(victim, *args, **kwargs)

        return can_be_freed

    def _scheduling(self) -> FrameType | None:
        """The call of `schedule` that is under way; somebody else may have wrapped what it calls, too."""
        frame: FrameType | None = sys._getframe(2)
        for _ in range(DEEP):
            if frame is None or frame.f_code is self._code:
                return frame
            frame = frame.f_back
        return None

    def _failed_for(self, victim: Any, seen: Any) -> Short:
        request, planned = seen["request"], seen["num_scheduled_tokens"]
        name = victim.request_id
        short = Short(
            request.request_id,
            request.num_computed_tokens + seen["num_new_tokens"],
            len(self.books.owned.get(request.request_id, ())),
            self.books.free(),
            request.status.name == "RUNNING",
            len(planned),
        )
        if name in planned:
            short.place, short.tokens = list(planned).index(name), planned[name]
        return short

    def _preempt(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def preempt(victim: Any, *args: Any, **kwargs: Any) -> Any:
            if self._blind:
                return original(victim, *args, **kwargs)
            try:
                short, self.short = self.short, None
                if short is None and self._scheduling() is not None:
                    raise Untellable("somebody was preempted, and no allocation had failed")
                self.happened.append(Demoted(victim.request_id, victim.num_computed_tokens, short))
                self._taken = []
            except Exception as error:
                self._guard(error)
            answer = original(victim, *args, **kwargs)
            if not self._blind:
                try:
                    self._queued_again(victim)
                except Exception as error:
                    self._guard(error)
            return answer

        return preempt

    def _queued_again(self, victim: Any) -> None:
        taken, self._taken = self._taken or [], None
        self.stirred = True
        left = self._left(victim.request_id)
        self.happened.append(
            Requeued(
                victim.request_id,
                taken,
                victim.num_computed_tokens,
                len(victim.spec_token_ids),
                victim.num_tokens,
                self.waiting(),
                left,
            )
        )

    def _free_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def free_request(request: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._blind:
                self._taken = []
                self.stirred = True
            answer = original(request, *args, **kwargs)
            if not self._blind:
                try:
                    name = request.request_id
                    taken, self._taken = self._taken or [], None
                    past = getattr(request, "num_preemptions", 0)
                    self.ended.append(Ended(name, request.status.name, taken, past, self._left(name)))
                    self.hits.pop(name, None)
                except Exception as error:
                    self._guard(error)
            return answer

        return free_request

    def _left(self, name: str) -> list[int]:
        left = [block.block_id for block in self.books.owned.get(name, ())]
        self.cut(name, len(left))
        return left
