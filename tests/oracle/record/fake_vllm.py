"""A scheduler of vLLM's shape that needs no vLLM: first come, first served, one frame at a time, no prefix cache.

Its attributes and calls are those that the recorder reads and wraps; it schedules, preempts and finishes in earnest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any


class FullAttentionSpec:
    def __init__(self, page: int) -> None:
        self.block_size = page


class Status:
    def __init__(self, name: str) -> None:
        self.name = name


class Request:
    def __init__(self, name: str, prompt: list[int], limit: int, arrival: float = 0.0, **more: Any) -> None:
        self.request_id = name
        self.prompt_token_ids = prompt
        self.max_tokens = limit
        self.priority = 0
        self.arrival_time = arrival
        self._output_token_ids: list[int] = []
        self.output_token_ids = self._output_token_ids
        self.num_computed_tokens = 0
        self.spec_token_ids: list[int] = []
        self.status = Status("WAITING")
        self.num_preemptions = 0
        vars(self).update(more)

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.output_token_ids)


class Waiting(list[Any]):
    def pop_request(self) -> Any:
        return self.pop(0)

    def prepend_request(self, request: Any) -> None:
        self.insert(0, request)


class Pool:
    """Blocks 1 … n; block 0 is the null block. The free list is linked, as vLLM's is."""

    enable_caching = False

    def __init__(self, blocks: int) -> None:
        self.num_gpu_blocks = blocks + 1
        self.blocks = [
            SimpleNamespace(block_id=i, ref_cnt=0, block_hash=None, is_null=i == 0, next_free_block=None)
            for i in range(blocks + 1)
        ]
        self.null_block = self.blocks[0]
        self._free = self.blocks[1:]
        self.free_block_queue = SimpleNamespace(
            num_free_blocks=0, fake_free_list_head=SimpleNamespace(), fake_free_list_tail=SimpleNamespace()
        )
        self._link()

    def _link(self) -> None:
        queue = self.free_block_queue
        queue.num_free_blocks = len(self._free)
        for block, after in zip(
            [queue.fake_free_list_head, *self._free], [*self._free, queue.fake_free_list_tail], strict=True
        ):
            block.next_free_block = after

    def take(self, count: int) -> list[Any]:
        taken, self._free = self._free[:count], self._free[count:]
        for block in taken:
            block.ref_cnt += 1
        self._link()
        return taken

    def free_blocks(self, ordered_blocks: Iterable[Any]) -> None:
        for block in ordered_blocks:
            block.ref_cnt -= 1
            self._free.append(block)
        self._link()

    def cache_full_blocks(self, *_: Any) -> None: ...

    def _maybe_evict_cached_block(self, _: Any) -> bool:
        return False

    def reset_prefix_cache(self) -> bool:
        return True


class Manager:
    watermark_blocks = 0

    def __init__(self, blocks: int, page: int) -> None:
        self.block_pool = Pool(blocks)
        self.page = page
        single = SimpleNamespace(req_to_blocks=defaultdict(list))
        self.tables: dict[str, list[Any]] = single.req_to_blocks
        self.coordinator = SimpleNamespace(single_type_managers=[single])

    def get_computed_blocks(self, _: Any) -> tuple[list[Any], int]:
        return [], 0

    def allocate_slots(self, request: Any, num_new_tokens: int, num_new_computed_tokens: int = 0) -> Any:
        table = self.tables[request.request_id]
        needed = -(-(request.num_computed_tokens + num_new_tokens) // self.page) - len(table)
        if needed > self.block_pool.free_block_queue.num_free_blocks:
            return None
        table += self.block_pool.take(needed)
        return table

    def free(self, request: Any) -> None:
        self.block_pool.free_blocks(reversed(self.tables.pop(request.request_id, [])))


class FakeScheduler:
    """As vLLM's: see the module."""

    num_spec_tokens = num_lookahead_tokens = 0
    scheduler_reserve_full_isl = True

    def __init__(self, blocks: int = 6, page: int = 2, running: int = 3, budget: int = 16, length: int = 10) -> None:
        self.max_num_running_reqs = running
        self.max_num_scheduled_tokens = budget
        self.max_model_len = length
        self.block_size = page
        self.policy = SimpleNamespace(value="fcfs")
        self.pause_state = Status("UNPAUSED")
        self.scheduler_config = SimpleNamespace(
            async_scheduling=False, long_prefill_token_threshold=0, enable_chunked_prefill=True
        )
        self.vllm_config = SimpleNamespace(
            parallel_config=SimpleNamespace(pipeline_parallel_size=1), max_concurrent_batches=1
        )
        self.kv_cache_config = SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=FullAttentionSpec(page))])
        self.kv_cache_manager = Manager(blocks, page)
        self.requests: dict[str, Any] = {}
        self.running: list[Any] = []
        self.waiting = Waiting()
        self.told: set[str] = set()
        self.breaks: Callable[[], None] | None = None
        self.wrong: Callable[[Any], Any] | None = None  # picks another victim

    def add_request(self, request: Any) -> None:
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def _request_blocks_can_be_freed(self, _: Any) -> bool:
        return True

    def _preempt_request(self, request: Any, timestamp: float = 0.0, **_: Any) -> None:
        self.kv_cache_manager.free(request)
        request.status = Status("PREEMPTED")
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self.waiting.prepend_request(request)

    def schedule(self) -> Any:
        if self.breaks is not None:
            self.breaks()
        budget = self.max_num_scheduled_tokens
        num_scheduled_tokens: dict[str, int] = {}
        new: list[Any] = []
        cached: list[str] = []
        preempted = False
        index = 0
        starts: dict[str, tuple[int, list[int]]] = {}
        while index < len(self.running) and budget:
            request = self.running[index]
            num_new_tokens = min(request.num_tokens - request.num_computed_tokens, budget)
            before = len(self.kv_cache_manager.tables[request.request_id])
            alive = True
            while (table := self.kv_cache_manager.allocate_slots(request, num_new_tokens)) is None:
                victim = self.running[-1] if self.wrong is None else self.wrong(self)
                self._request_blocks_can_be_freed(victim)
                if self.running.index(victim) < index:  # its grant is taken back
                    index -= 1
                    budget += num_scheduled_tokens.pop(victim.request_id)
                    cached.remove(victim.request_id)
                self.running.remove(victim)
                self._preempt_request(victim)
                preempted = True
                if victim is request:
                    alive = False
                    break
            if not alive:
                break
            num_scheduled_tokens[request.request_id] = num_new_tokens
            starts[request.request_id] = request.num_computed_tokens, [b.block_id for b in table[before:]]
            cached.append(request.request_id)
            budget -= num_new_tokens
            index += 1
        resumed = set()
        while not preempted and self.waiting and len(self.running) < self.max_num_running_reqs and budget:
            request = self.waiting[0]
            self.kv_cache_manager.get_computed_blocks(request)
            if (
                -(-request.num_tokens // self.block_size)
                > self.kv_cache_manager.block_pool.free_block_queue.num_free_blocks
            ):
                break
            tokens = min(request.num_tokens, budget)
            table = self.kv_cache_manager.allocate_slots(request, tokens)
            if table is None:
                break
            self.waiting.pop_request()
            name = request.request_id
            num_scheduled_tokens[name] = tokens
            starts[name] = 0, [b.block_id for b in table]
            if request.status.name == "PREEMPTED":
                resumed.add(name)
                cached.append(name)
            else:
                new.append(request)
            request.status = Status("RUNNING")
            self.running.append(request)
            budget -= tokens
        output = SimpleNamespace(
            num_scheduled_tokens=num_scheduled_tokens,
            scheduled_spec_decode_tokens={},
            scheduled_new_reqs=[
                SimpleNamespace(
                    req_id=r.request_id,
                    num_computed_tokens=0,
                    block_ids=(starts[r.request_id][1],),
                    prompt_token_ids=r.prompt_token_ids,
                )
                for r in new
            ],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=cached,
                resumed_req_ids=resumed,
                num_computed_tokens=[starts[n][0] for n in cached],
                new_block_ids=[(starts[n][1],) for n in cached],
                all_token_ids={
                    n: [*self.requests[n].prompt_token_ids, *self.requests[n].output_token_ids] for n in resumed
                },
            ),
        )
        for name, tokens in num_scheduled_tokens.items():
            self.requests[name].num_computed_tokens += tokens
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        out = []
        for name in scheduler_output.num_scheduled_tokens:
            request = self.requests.get(name)
            some = model_runner_output.sampled_token_ids[model_runner_output.req_id_to_index[name]]
            if request is None or not some:
                continue
            request._output_token_ids += some
            out.append(SimpleNamespace(request_id=name, new_token_ids=list(some)))
            if request.num_output_tokens >= request.max_tokens:
                request.status = Status("FINISHED_LENGTH_CAPPED")
                self.running.remove(request)
                self._free_request(request)
        return {0: SimpleNamespace(outputs=out)}

    def _free_request(self, request: Any) -> None:
        self.kv_cache_manager.free(request)
        del self.requests[request.request_id]

    def finish_requests(self, request_ids: Any, finished_status: Any) -> list[Any]:
        names = [request_ids] if isinstance(request_ids, str) else list(request_ids)
        found = [self.requests[name] for name in names if name in self.requests]
        for request in found:
            queue: list[Any] = self.running if request in self.running else self.waiting
            queue.remove(request)
            request.status = finished_status
            self._free_request(request)
        return found

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        while reset_running_requests and self.running:
            self._preempt_request(self.running.pop())
        return self.kv_cache_manager.block_pool.reset_prefix_cache()

    def set_pause_state(self, pause_state: Any) -> None:
        self.pause_state = pause_state

    def update_draft_token_ids(self, draft_token_ids: Any) -> None: ...

    def shutdown(self) -> None: ...
