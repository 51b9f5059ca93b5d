"""vLLM v1 under its two policies."""

from __future__ import annotations

from attrs import evolve

from preempt_spec.policies.policy import (
    AfterPreemption,
    AfterSelf,
    Fence,
    FullHit,
    Need,
    Order,
    Oversize,
    Phase,
    Policy,
    Progress,
    Requeue,
    Slots,
    Victim,
)
from preempt_spec.policies.profiles.profile import CORE_WITH_WORKER, Deviation, Profile

_VLLM = "vLLM 0.31.0 and 0.33.0, v1/core/sched/scheduler.py"

VLLM_FCFS = Profile(
    name="vllm-fcfs",
    contract=Policy(
        name="vllm-fcfs",
        victim=Victim.LAST_RUNNING,
        requeue=Requeue.FRONT,
        order=Order.ARRIVAL,
        need=Need.GROWTH,
        phase=Phase.MIXED,
        after_preemption=AfterPreemption.CLOSED,
        after_self=AfterSelf.STOP,
        slots=Slots.RUNNING,
        full_hit=FullHit.LEAVE_ONE,
        oversize=Oversize.FRONT_END,
        progress=Progress.CHUNKED,
        fence=Fence.HOST,
    ),
    sources={
        "victim": f"{_VLLM}, schedule(): self.running.pop()",
        "requeue": f"{_VLLM}, _preempt_request(): waiting.prepend_request",
        "order": "vLLM v1/core/sched/request_queue.py, FCFSRequestQueue",
        "need": f"{_VLLM} with kv_cache_manager.allocate_slots()",
        "phase": f"{_VLLM}, schedule(): running loop, then waiting loop",
        "after_preemption": f"{_VLLM}, schedule(): waiting loop only `if not preempted_reqs`",
        "after_self": f"{_VLLM}, schedule(): break (under FCFS the requester is then the last one)",
        "slots": f"{_VLLM}, schedule(): len(self.running) against max_num_running_reqs",
        "full_hit": "vLLM v1/core/kv_cache_manager.py, get_computed_blocks(): num_tokens - 1",
        "oversize": "vLLM refuses over-long prompts before the scheduler, and a max_model_len beyond the pool at start",
        "progress": "derived: see policies.progress.patience",
        "causes": f"{_VLLM}, schedule(): _preempt_request only where allocate_slots() returned None; admission never",
        "memory": "vLLM 0.31.0 and 0.33.0 v1/core/sched/scheduler.py, _preempt_request(): num_computed_tokens = 0",
        "release": "same method: the blocks are freed before the request is prepended to waiting",
        "returns": "same method",
        "stale": "0.33.0, same method and _update_from_output(): stale output is appended unless drop_stale_output; "
        "schedule() skips a waiting request with deliverable stale output; reset_prefix_cache() drops",
        "publish": "v1/core/kv_cache_manager.py, allocate_slots(): cache_blocks() when the tokens are scheduled",
        "fence": "0.33.0, schedule(): `if not self._request_blocks_can_be_freed(…): break`, which holds back "
        "only with a consuming KV connector and overlapping batches",
        "lineup": f"{_VLLM}: self.running is appended to, and otherwise only removed from",
        "twins": "v1/core/block_pool.py: cached blocks of one hash stand side by side",
        "idle": "v1/core/block_pool.py, get_new_blocks(): a cached block of the free queue is evicted when it is taken",
        "hits": "v1/core/sched/scheduler.py, schedule(): who does not fit behind its hit stays where it waits",
        "reads": "nothing bounds what a step reads but its grants",
        "gate": f"{_VLLM}, schedule(): waiting requests are refused by the configuration's gates alone",
        "hidden": "no timers and no chance in the modes judged here (no prefill cadence, no connector)",
        "tax": "no bound is stated: reported only",
    },
    core=CORE_WITH_WORKER,
)

#: Those that were run.
_VLLM_BEFORE_0_33 = (
    *("0.11.0", "0.13.0", "0.16.0", "0.18.1", "0.20.0", "0.22.1"),
    *("0.25.1", "0.28.0", "0.30.0", "0.31.0", "0.32.0"),
)

VLLM_PRIORITY = Profile(
    name="vllm-priority",
    contract=evolve(
        VLLM_FCFS.contract,
        name="vllm-priority",
        victim=Victim.WORST_PRIORITY,
        requeue=Requeue.PRIORITY,
        order=Order.PRIORITY,
        after_self=AfterSelf.CONTINUE,
    ),
    sources={
        **VLLM_FCFS.sources,
        "victim": f"{_VLLM}, schedule(): max(self.running, key=(priority, arrival_time))",
        "requeue": "vLLM v1/core/sched/request_queue.py, PriorityRequestQueue.prepend_request is add_request",
        "order": "vLLM v1/core/sched/request_queue.py, PriorityRequestQueue; v1/request.py, Request.__lt__",
        "after_self": "vLLM 0.33.0 scheduler.py, schedule(): `continue` when a PRIORITY requester preempted itself",
    },
    core=CORE_WITH_WORKER,
    deviations=(
        Deviation(
            knob="after_self",
            value=AfterSelf.STOP,
            engine="vllm",
            versions=_VLLM_BEFORE_0_33,
            why="contract (0.33.0): the pass goes on behind a self-preempted requester; earlier versions end it (same "
            "method, `if new_blocks is None: break`), so later requests that fit get nothing in that step",
            scenario="PRIORITY, pages of 4, pool of 4: the worst request is not last in running and preempts itself",
        ),
    ),
)
