"""Hugging Face transformers, continuous batching."""

from __future__ import annotations

from attrs import evolve

from preempt_spec.policies.policy import (
    AfterPreemption,
    AfterSelf,
    Fence,
    FullHit,
    Hits,
    Idle,
    Memory,
    Need,
    Order,
    Oversize,
    Phase,
    Policy,
    Progress,
    Publish,
    Reads,
    Requeue,
    Slots,
    Twins,
    Victim,
)
from preempt_spec.policies.profiles.profile import CORE_WITH_WORKER, PLAIN, Profile

_CB = "transformers 5.23.0 generation/continuous_batching"
_OFFLOAD = f"{_CB}/offloading_manager.py, offload_requests()"
_SCHEDULER = f"{_CB}/scheduler.py"

HF_CB = Profile(
    name="hf-cb",
    contract=Policy(
        name="hf-cb",
        victim=Victim.LAST_STARVED,
        requeue=Requeue.BACK,
        order=Order.ARRIVAL,
        need=Need.GROWTH,
        phase=Phase.DECODE_FIRST,
        after_preemption=AfterPreemption.UNTIL_FINISH,
        after_self=AfterSelf.CONTINUE,
        slots=Slots.BATCH,
        full_hit=FullHit.LEAVE_ONE,
        oversize=Oversize.FRONT_END,
        progress=Progress.CHUNKED,
        publish=Publish.COMMIT,
        fence=Fence.NONE,
        twins=Twins.MERGED,
        idle=Idle.STARVED,
        hits=Hits.ALL,
        reads=Reads.POOL,
    ),
    sources={
        **PLAIN,
        "memory": f"{_CB}/requests.py, create_equivalent_initial_request(): outputs join the prompt, position 0",
        "publish": f"{_CB}/continuous_api.py, update_batch(): mark_complete_blocks, behind the forward pass",
        "victim": f"{_OFFLOAD}: starved.pop() while the rest cannot be stored and more than one is active",
        "requeue": f"{_OFFLOAD}: add_waiting_request, oldest first, which appends",
        "order": f"{_SCHEDULER}, add_waiting_request()",
        "need": f"{_CB}/cache.py, can_store_request_tokens(): blocks the grant lacks",
        "phase": f"{_SCHEDULER}, FIFOScheduler.schedule_batch(): decoding, prefilling, waiting; _process_candidates(): "
        "`continue` where a request does not fit",
        "after_preemption": f"{_OFFLOAD} sets block_new_requests; continuous_api.py, update_batch() clears it when a "
        "request finishes. That it opens as well when nobody is left to finish is what anything else would deadlock on",
        "after_self": "follows: the pass is over when somebody is preempted",
        "slots": f"{_SCHEDULER}, _process_candidates(): max_requests_per_batch counts the batch",
        "full_hit": f"{_CB}/cache_allocators/cache_allocator.py, match_prefix_blocks(): len - 1",
        "twins": f"{_CB}/cache_allocators/cache_allocator.py, mark_complete_blocks(): the request adopts the "
        "identical block and releases its own",
        "idle": f"{_CB}/cache.py, can_store_request_tokens(): free sectors only; evict_cached_blocks() gives up what "
        f"is cached, all of it: {_OFFLOAD}, before anybody is offloaded, whose own pages are not cached (no_cache)",
        "hits": f"{_SCHEDULER}, _infer_request_tokens(): a match makes the request active, even if it is not scheduled",
        "reads": f"{_SCHEDULER}, _process_candidates(): cache_budget, which is cache.max_tokens_read, less "
        "current_len() of each who is scheduled",
        "oversize": "nothing is refused: such requests are outside its contract",
        "progress": "derived: see policies.progress.patience",
        "causes": f"{_OFFLOAD}: only for starved_requests",
    },
    core=CORE_WITH_WORKER,
)

HF_CB_PREFILL_FIRST = Profile(
    name="hf-cb-prefill-first",
    contract=evolve(HF_CB.contract, name="hf-cb-prefill-first", phase=Phase.CHUNKS_FIRST),
    sources={
        **HF_CB.sources,
        "phase": f"{_SCHEDULER}, PrefillFirstScheduler.schedule_batch(): prefilling, decoding, waiting",
    },
    core=CORE_WITH_WORKER,
)

HF_CB_OFFLOAD = Profile(
    name="hf-cb-offload",
    contract=evolve(HF_CB.contract, name="hf-cb-offload", memory=Memory.SWAP),
    sources={
        **HF_CB.sources,
        "memory": f"{_CB}/offloading_manager.py, _offload_to_cpu(): all blocks of a victim or, if the pool is full, a "
        "soft reset; scheduler.py, _get_waiting_candidates(): offloaded ones first, taking turns with others",
    },
    core=(*CORE_WITH_WORKER, "swap/round-trip", "swap/host-pool"),
)
