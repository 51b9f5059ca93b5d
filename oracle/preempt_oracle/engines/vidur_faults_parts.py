"""What the faults of Vidur's vLLM scheduler share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Injection


def free_blocks(scheduler: Any) -> int:
    """Free blocks by the scheduler's own counter."""
    return int(scheduler._cache_config.num_blocks - scheduler._num_allocated_blocks)


def restarted(into: Injection, engine: Any) -> list[Any]:
    """The requests restarted in the call of `_get_next_batch` that is under way, in order."""
    victims: list[Any] = []

    def restart(original: Any, request: Any) -> Any:
        victims.append(request)
        return original(request)

    def next_batch(original: Any, time: float) -> Any:
        victims.clear()
        return original(time)

    into.wrap(engine.request, "restart", restart)
    into.wrap(engine.scheduler, "_get_next_batch", next_batch)
    return victims
