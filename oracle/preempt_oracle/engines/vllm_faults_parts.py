"""What the faults of `vllm_faults` share: where things stand in a vLLM scheduler, and which part of it is at work.

Runs in the engine's Python (standard library only). Everything here is the engine's own; nothing of the adapter's
observation is read or changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines.faults import Injection
else:
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

    def step(self, request: Any) -> tuple[int, str]:
        """Which attempt this is: the same in every try of one request in one step."""
        return int(self.scheduler.current_step), str(request.request_id)


def running(request: Any) -> bool:
    """Whether a request runs, as vLLM says."""
    return bool(request.status.name == "RUNNING")


def waits(request: Any) -> bool:
    """Whether a request waits to be admitted, for the first time or again."""
    return request.status.name in ("WAITING", "PREEMPTED")


class During:
    """Says whether a call of one of the scheduler's methods is under way, and of which request."""

    def __init__(self, into: Injection, scheduler: Any, method: str) -> None:
        self.request: Any = None
        into.wrap(scheduler, method, self._call)

    def _call(self, original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        self.request = request
        try:
            return original(request, *args, **kwargs)
        finally:
            self.request = None


def preempting(into: Injection, scheduler: Any) -> During:
    """While a request is preempted."""
    return During(into, scheduler, "_preempt_request")


def after_preemption(into: Injection, scheduler: Any, spoil: Callable[[Any], bool]) -> None:
    """Do something to each victim behind `_preempt_request`; `spoil` says whether that made a difference."""

    def preempt(original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(request, *args, **kwargs)
        if spoil(request):
            into.acted()
        return answer

    into.wrap(scheduler, "_preempt_request", preempt)
