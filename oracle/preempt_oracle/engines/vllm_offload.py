"""A KV connector of vLLM, scheduler role, between the real scheduler and a made-up worker (`vllm_copies`).

Runs in the engine's Python (standard library and vLLM only). The worker does what vLLM's does, in its order: what a
step's message asks to flush is over before the step's frame runs; loads begin with the frame; stores begin behind it.
Where each observation comes from:

* copies: the connector's metadata, as the worker gets it (`vllm_orders`). A store that is flushed by the very message
  that asks for it is ordered before the frame: it is told as a `swap` of the request that gets one of its blocks.
* evictions and free host blocks: the connector's books on the host, two structures that are compared with the copies.
* who loads: vLLM's queue of waiting requests that hold blocks, and their status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines.child import require
    from preempt_oracle.engines.vllm_copies import IN, OUT, Copies
    from preempt_oracle.engines.vllm_orders import Orders, Reader
    from preempt_oracle.engines.vllm_orders_offloading import OffloadingReader
    from preempt_oracle.engines.vllm_orders_simple import SimpleReader
else:
    from child import require
    from vllm_copies import IN, OUT, Copies
    from vllm_orders_offloading import OffloadingReader
    from vllm_orders_simple import SimpleReader

Event = dict[str, Any]

#: What is told of a host tier on top of the device.
OBSERVES = ("copies", "host")
#: Why a waiting request is passed over for a younger one: see `Watch._matched`.
PENDING = "connector: a copy of its own, or of what it would load, is in flight"
READERS: Mapping[str, Callable[[Any, int, int], Reader]] = {"offloading": OffloadingReader, "simple": SimpleReader}


class Offload:
    """One scheduler's connector and the worker behind it, which plays all `stages` of a pipeline, who agree.

    `failing`: some loads lose a page.
    """

    def __init__(
        self,
        scheduler: Any,
        name: str,
        page_size: int,
        host_blocks: int,
        stages: int,
        seed: int,
        failing: bool = False,
    ) -> None:
        from vllm.v1.outputs import KVConnectorOutput

        self.output = KVConnectorOutput
        self.scheduler = scheduler
        self.hits: dict[str, int] = {}  # who loads -> tokens of its prefix hit on the device
        require(scheduler, ("connector", "kv_holding_waiting", "finished_recving_kv_req_ids", "deferred_frees"))
        require(scheduler, ("_request_blocks_can_be_freed", "defer_block_free"))
        self.connector = scheduler.connector
        require(self.connector, ("get_num_new_matched_tokens",))
        self.reader = READERS[name](self.connector, host_blocks, stages)
        self.copies = Copies(page_size, seed, self.reader.in_order, failing)
        self.filled: set[int] = set()  # host blocks that copies have filled, as far as the scheduler heard
        self.gone: list[int] = []  # of these, what was given up and is not told yet

    # -- what is seen ------------------------------------------------------------------------------------------------

    def loading(self) -> list[str]:
        """Who holds blocks that copies fill, or have filled since, and is not running yet.

        vLLM has them in a queue of their own, except who has loaded all it knows and that is one token: it is taken
        for one that has nothing yet, blocks or no blocks, and loads again (docs/findings.md).
        """
        owned = self.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks
        # Whose load failed as a whole stays in that queue, which is served first, without a block.
        found = [r.request_id for r in self.scheduler.kv_holding_waiting if not r.is_finished()]
        again = [r.request_id for r in self.scheduler.waiting if r.request_id in self.hits and owned.get(r.request_id)]
        return found + [name for name in again if name not in found]

    def dying(self) -> set[str]:
        """Who was cancelled and keeps its blocks until its load is over."""
        live = self.scheduler.requests
        names = {name for job in self.copies.jobs.values() if job.direction == IN for name in job.requests}
        return {name for name in names if name in live and live[name].is_finished()}

    def holds(self) -> str:
        """Who would keep blocks if everybody who runs were preempted; "" if nobody would."""
        if self.loading() or self.dying():
            return "a request that loads"
        late = self.scheduler.deferred_frees or not all(
            self.scheduler._request_blocks_can_be_freed(r) for r in self.scheduler.running
        )
        return "a frame that flies" if late else ""

    def look(self) -> None:
        """Note which host blocks were given up: behind a decision, and behind a reset, before they are filled anew."""
        self.gone += self.reader.evicted(self.filled)
        self.filled.difference_update(self.gone)

    # -- a step ------------------------------------------------------------------------------------------------------

    def dispatch(
        self, frame: int, output: Any, sent: Sequence[Sequence[Any]], starts: Mapping[str, int], given: dict[int, str]
    ) -> tuple[list[Event], list[Event], list[Event], int]:
        """A message reaches the worker: copies over before its frame, acts, copies begun with it, free host blocks.

        `given`: blocks that somebody gets in this step, and who.
        """
        orders = self.reader.orders(output.kv_connector_metadata)
        flush = sorted(self.copies.jobs) if orders.flush_all else sorted(orders.flush)
        tiers = self.copies.tiers
        earlier = [told for number in flush if (job := self.copies.finish(number, frame)) for told in job.done()]
        self.look()
        evicted, self.gone = self.gone, []
        acts: list[Event] = [{"act": "evict", "blocks": evicted}] if evicted else []
        ordered = self._ordered_before(frame, orders, given, acts)
        tiers.hear(sent)
        scheduled = output.num_scheduled_tokens
        tiers.run({name: (starts[name], tokens) for name, tokens in scheduled.items() if name in starts}, self._prefix)
        later: list[Event] = []
        for order in orders.loads:
            later += self.copies.start(order.number, order.requests, IN, order.pairs, frame).started()
        filled = 0
        for order in orders.stores:
            if order.number not in ordered:
                filled += len(order.pairs)
                later += self.copies.start(order.number, order.requests, OUT, order.pairs, frame).started()
                if order.number in orders.flush:
                    over = self.copies.finish(order.number, frame)
                    assert over is not None
                    later += over.done()
        return earlier, acts, later, self.reader.free() + filled

    def _ordered_before(self, frame: int, orders: Orders, given: Mapping[int, str], acts: list[Event]) -> set[int]:
        """Stores that are flushed by the message that asks for them; told, where somebody gets one of their blocks."""
        ordered: set[int] = set()
        for order in orders.stores:
            heir = next((given[src] for src, _ in order.pairs if src in given), None)
            if order.number not in orders.flush or heir is None:
                continue  # nobody gets any of its blocks: that it is over first changes nothing
            ordered.add(order.number)
            self.copies.start(order.number, order.requests, OUT, order.pairs, frame)
            self.copies.finish(order.number, frame)
            blocks = [[src, dst, 0] for src, dst in order.pairs]
            acts.append({"act": "swap", "request": heir, "direction": OUT, "blocks": blocks})
        return ordered

    def _prefix(self, name: str, position: int) -> Any:
        request = self.scheduler.requests.get(name)
        tokens = None if request is None else request.all_token_ids
        if tokens is None or position >= len(tokens):
            return name, position  # not known yet: it equals nothing but itself
        return getattr(request, "cache_salt", None), tuple(tokens[: position + 1])

    def report(self, frame: int) -> tuple[Any, list[Event]]:
        """What the worker says with a frame's outputs, and what of it was not told yet."""
        over, fresh = self.copies.report(frame)
        self.filled.update(dst for job in over if job.direction == OUT for _, dst in job.pairs)
        loaded, said = self.reader.answer(over)
        output = self.output(finished_recving=loaded or None, kv_connector_worker_meta=said)
        invalid = {block for job in over for block in job.invalid()}
        if invalid:
            output.invalid_block_ids = invalid
        return output, [told for job in fresh for told in job.done()]
