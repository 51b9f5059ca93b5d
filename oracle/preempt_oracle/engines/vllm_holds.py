"""Blocks that a KV connector keeps from being free: those it references itself, and those whose release is deferred.

Runs in the engine's Python (standard library only). Sits inside of a `vllm_watch.Watch` and appends to its timeline.
Where each observation comes from:

* pins: `BlockPool.touch` while one of the connector's own methods runs; unpins: `BlockPool.free_blocks` meanwhile.
* the table of a request that is cancelled while it loads, which vLLM keeps as a whole until the load is over: pinned at
  the abort, and unpinned when it is given back with nobody preempted or finished.
* fences: what `pop_blocks_for_free` takes out of a table without giving it back, which vLLM does while a frame flies
  that may still write there; they fall when those blocks are given back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines import vllm_seams as seams
    from preempt_oracle.engines.child import Unsupported
    from preempt_oracle.engines.vllm_offload import Offload
    from preempt_oracle.engines.vllm_steps import Act, Grant
else:
    import vllm_seams as seams
    from child import Unsupported
    from vllm_steps import Act, Grant

#: The connector's methods in which the scheduler lets it touch blocks.
ENTRANCES = (
    "update_state_after_alloc",
    "build_connector_meta",
    "update_connector_output",
    "request_finished",
    "request_finished_all_groups",
)


class Holds:
    """What one scheduler's connector holds. `timeline`, asked for anew each time, and `tables` are the watch's."""

    def __init__(
        self,
        offload: Offload,
        wrap: Callable[[Any, str, Callable[..., Any]], None],
        timeline: Callable[[], list[Grant | Act]],
        tables: dict[str, list[int]],
    ) -> None:
        self.offload = offload
        self.timeline = timeline
        self.tables = tables
        self.pins: Counter[int] = Counter()
        self.dying: dict[str, list[int]] = {}  # cancelled while they loaded -> the table that is kept
        self.fences: Counter[int] = Counter()
        self.late: set[str] = set()  # whose blocks went behind a fence, and that was not told yet
        self._inside = 0
        manager = offload.scheduler.kv_cache_manager
        for name in ENTRANCES:
            if hasattr(offload.connector, name):
                wrap(offload.connector, name, self._enter)
        wrap(manager.block_pool, "touch", self._touch)
        wrap(manager, "pop_blocks_for_free", self._pop)

    def _enter(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._inside += 1
        try:
            return original(*args, **kwargs)
        finally:
            self._inside -= 1

    def _touch(self, original: Callable[..., Any], blocks: Any) -> Any:
        blocks = list(blocks)
        if self._inside:
            self._told("pin", [block.block_id for block in seams.flat(blocks) if not block.is_null])
        return original(blocks)

    def _pop(self, original: Callable[..., Any], request: Any) -> Any:
        blocks = original(request)
        # Before 0.31 and without deferral nobody calls this: vLLM frees what it takes out of a table.
        ids = [block.block_id for block in blocks if not block.is_null]
        if ids:
            self.fences.update(ids)
            self.late.add(request.request_id)
        return blocks

    def _told(self, act: str, ids: list[int]) -> None:
        self.timeline().extend({"act": act, "blocks": [block]} for block in ids)
        if act == "pin":
            self.pins.update(ids)
        else:
            self.pins.subtract(ids)
            self.pins += Counter()

    # -- for the watch -----------------------------------------------------------------------------------------------

    def takes_back(self, ids: list[int], *, ending: bool) -> bool:
        """Blocks are given back: whether they are the connector's, or were kept until now; that is then told.

        `ending`: somebody is being preempted, or is over, and they may be that request's.
        """
        if self._inside:
            self._told("unpin", ids)
            return True
        if ending:
            return False
        for name, table in self.dying.items():
            if sorted(table) == sorted(ids):
                del self.dying[name], self.tables[name]
                self._told("unpin", ids)
                return True
        if ids and all(self.fences[block] for block in ids):
            self.fences.subtract(ids)
            fallen = [block for block in ids if not self.fences[block]]
            self.fences += Counter()
            if fallen:
                self.timeline().append({"act": "unfence", "blocks": fallen})
            return True
        return False

    def keeps(self, name: str, table: list[int]) -> None:
        """A request that loads was cancelled, and keeps its table."""
        if name in self.dying:
            raise Unsupported(f"{name} was cancelled twice while it loads")
        self.dying[name] = table
        self._told("pin", table)
