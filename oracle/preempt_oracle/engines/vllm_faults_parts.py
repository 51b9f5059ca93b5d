"""What the faults of `vllm_faults` share: where things stand in a vLLM scheduler, and which part of it is at work.

Runs in the engine's Python (standard library only). Everything here is the engine's own; nothing of the adapter's
observation is read or changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines import vllm_seams as seams
    from preempt_oracle.engines.faults import Injection
else:
    import vllm_seams as seams
    from faults import Injection

PRIORITY = ("vllm-priority",)


class Parts:
    """The parts of one scheduler that faults reach for."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.manager = scheduler.kv_cache_manager
        self.coordinator = self.manager.coordinator
        (self.single,) = self.coordinator.single_type_managers
        self.pool = self.manager.block_pool
        self.page = self.single.block_size

    def free(self) -> int:
        """Free blocks as the pool counts them."""
        return int(self.pool.get_num_free_blocks())

    def table(self, name: str) -> list[Any]:
        """The blocks of a request, not to be changed through this."""
        return list(self.single.req_to_blocks.get(name, ()))

    def short(self, request: Any, tokens: int) -> int:
        """How many blocks a running request lacks to be granted so many tokens; 0 or less if it fits."""
        length = min(request.num_computed_tokens + tokens, self.scheduler.max_model_len)
        return int(-(-length // self.page)) - len(self.table(request.request_id)) - self.free()


class Steps:
    """Counts the steps of a scheduler."""

    def __init__(self, into: Injection, scheduler: Any) -> None:
        self.count = 0
        into.wrap(scheduler, "schedule", self._schedule)

    def _schedule(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return original(*args, **kwargs)

    def attempt(self, request: Any) -> tuple[int, str]:
        """Which attempt this is: the same in every try of one request in one step."""
        return self.count, str(request.request_id)


def running(request: Any) -> bool:
    """Whether a request runs, as vLLM says."""
    return bool(request.status.name == "RUNNING")


def waits(request: Any) -> bool:
    """Whether a request waits to be admitted, for the first time or again."""
    return request.status.name in ("WAITING", "PREEMPTED")


class During:
    """Says whether something is under way, and of which request."""

    def __init__(self) -> None:
        self.request: Any = None

    def begin(self, request: Any) -> None:
        """It begins."""
        self.request = request

    def end(self, _: Any) -> None:
        """It is over."""
        self.request = None


def calling(into: Injection, scheduler: Any, method: str) -> During:
    """While one of the scheduler's methods works on a request."""
    during = During()

    def call(original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        during.begin(request)
        try:
            return original(request, *args, **kwargs)
        finally:
            during.end(request)

    into.wrap(scheduler, method, call)
    return during


def preempting(into: Injection, scheduler: Any) -> During:
    """While a request is preempted."""
    during = During()
    seams.around_preemption(into.wrap, scheduler, during.begin, during.end)
    return during


def nothing(_: Any) -> None:
    """Of a preemption that only its end, or its beginning, is of interest."""


def after_preemption(into: Injection, scheduler: Any, spoil: Callable[[Any], bool]) -> None:
    """Do something to each victim once it is queued again; `spoil` says whether that made a difference."""

    def after(request: Any) -> None:
        if spoil(request):
            into.acted()

    seams.around_preemption(into.wrap, scheduler, nothing, after)
