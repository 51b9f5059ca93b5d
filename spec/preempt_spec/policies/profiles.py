"""Profiles: the policies of named engines, with the source of each value.

A profile has a *contract* (what the engine documents or upstream has fixed) and *deviations* (what runs of certain
versions show instead, with the scenario that shows it). Under `as_built` a deviation replaces the contract's value and
is reported with the verdict; so a policy never swallows a bug.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, frozen

from preempt_spec.policies.policy import (
    AfterPreemption,
    AfterSelf,
    Fence,
    FullHit,
    Memory,
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


@frozen
class Deviation:
    """A knob whose value in some versions of an engine is not the contract's."""

    knob: str
    value: object
    engine: str
    versions: tuple[str, ...]
    why: str  # what the contract says, what runs show
    scenario: str  # how to see it


@frozen
class Profile:
    """A policy by name. `run`: seen in runs; a profile only read from source gives no verdict."""

    name: str
    contract: Policy
    sources: Mapping[str, str]  # knob -> where the value comes from
    core: tuple[str, ...]  # rules that must have been exercised before anything conforms
    deviations: tuple[Deviation, ...] = ()
    run: bool = True

    def as_built(self, engine: str, version: str) -> tuple[Policy, tuple[Deviation, ...]]:
        """The policy as this version of the engine has it, and where it departs from the contract."""
        apply = tuple(d for d in self.deviations if d.engine == engine and version in d.versions)
        changes: dict[str, Any] = {d.knob: d.value for d in apply}
        return evolve(self.contract, **changes), apply


#: Without these, exercised, a run says nothing about preemption.
CORE = (
    "pool/conserve",
    "pool/capacity",
    "victim/trigger",
    "victim/necessity",
    "victim/choice",
    "victim/reset",
    "victim/keep-tokens",
    "victim/unplan",
    "queue/one-place",
    "queue/front",
    "queue/order",
    "queue/visit-once",
    "queue/admission",
    "output/stream",
    "live/progress",
)
CORE_WITH_WORKER = (*CORE, "resume/message", "resume/hit", "resume/provenance")

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
        "progress": "derived: see policies.functions.patience",
        "causes": f"{_VLLM}, schedule(): _preempt_request only where allocate_slots() returned None; admission never",
        "memory": "vLLM 0.31.0 and 0.33.0 v1/core/sched/scheduler.py, _preempt_request(): num_computed_tokens = 0",
        "release": "same method: the blocks are freed before the request is prepended to waiting",
        "returns": "same method",
        "stale": "0.33.0, same method and _update_from_output(): stale output is appended unless drop_stale_output; "
        "schedule() skips a waiting request with deliverable stale output; reset_prefix_cache() drops",
        "publish": "v1/core/kv_cache_manager.py, allocate_slots(): cache_blocks() when the tokens are scheduled",
        "fence": "0.33.0, schedule(): `if not self._request_blocks_can_be_freed(…): break`, which holds back "
        "only with a consuming KV connector and overlapping batches",
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

#: Of a scheduler that flies one frame at a time and keeps no host copies.
_PLAIN = {
    "memory": "no host tier: a victim's computed tokens are set to 0",
    "release": "the victim's blocks are freed before it is queued",
    "returns": "a victim is queued in the step that preempts it",
    "stale": "one frame at a time: nothing flies when the scheduler decides",
    "fence": "one frame at a time",
    "hidden": "no timers and no chance in the scheduler",
    "tax": "no bound is stated: reported only",
}

NANO_VLLM = Profile(
    name="nano-vllm",
    contract=evolve(
        VLLM_FCFS.contract,
        name="nano-vllm",
        fence=Fence.NONE,
        victim=Victim.LAST_UNPLANNED,
        phase=Phase.PREFILL_FIRST,
        slots=Slots.BATCH,
        progress=Progress.EVERY_BATCH,
    ),
    sources={
        **_PLAIN,
        "publish": "nanovllm/engine/block_manager.py, allocate() and may_append(): when the block is planned full",
        "victim": "nano-vllm bb823b3 nanovllm/engine/scheduler.py, schedule(): self.preempt(self.running.pop())",
        "requeue": "same file, preempt(): waiting.appendleft",
        "order": "same file, add(): waiting.append",
        "need": "nanovllm/engine/block_manager.py, can_append(): a block only on a page boundary",
        "phase": "same file, schedule(): returns the prefill batch if there is one",
        "after_preemption": "follows from the phase: a step that preempts is a decode step",
        "after_self": "same file: the requester is then the only one left",
        "slots": "same file, schedule(): num_seqs < max_num_seqs counts the batch, in both loops",
        "full_hit": "nano-vllm #211: a hit must leave a token to compute",
        "oversize": "nano-vllm has no check: such requests are outside its contract",
        "progress": "derived: see policies.functions.patience",
        "causes": "same file, schedule(): preempt() only where can_append() is false",
    },
    core=CORE,
)

VIDUR_VLLM = Profile(
    name="vidur-vllm",
    contract=evolve(
        VLLM_FCFS.contract,
        name="vidur-vllm",
        fence=Fence.NONE,
        victim=Victim.LATEST_UNPLANNED,
        phase=Phase.PREFILL_FIRST,
        progress=Progress.EVERY_BATCH,
    ),
    sources={
        **_PLAIN,
        "publish": "no prefix cache",
        "victim": "Vidur 0.0.26 vllm_replica_scheduler.py, _get_next_batch(): sorted by arrived_at, pop(-1)",
        "requeue": "same file: [victim] + self._request_queue",
        "order": "base_replica_scheduler.py, add_request(): append",
        "need": "the vLLM it models: a block only when the table must grow",
        "phase": "same file: returns the prefill batch if there is one",
        "after_preemption": "follows from the phase: a step that preempts is a decode step",
        "after_self": "same file: the requester is then the only one left",
        "slots": "vllm_replica_scheduler.py: len(self._allocation_map) against batch_size_cap",
        "full_hit": "no prefix cache",
        "oversize": "no check: such requests are outside its contract",
        "progress": "derived: see policies.functions.patience",
        "causes": "same file: restart() only where _can_allocate_request() is false for a running request",
    },
    core=CORE,
    deviations=(
        Deviation(
            knob="need",
            value=Need.ONE_FREE,
            engine="vidur",
            versions=("0.0.26",),
            why="contract (vLLM, which it models): a request preempts only when its table must grow; Vidur wants one "
            "free block for every running request, grown or not (_can_allocate_request)",
            scenario="pages of 4, pool of 2: two requests of 2 tokens fill the pool; the second is preempted though "
            "nobody's table must grow",
        ),
    ),
)

VLLM_V0_SWAP = Profile(
    name="vllm-v0-swap",
    contract=evolve(
        NANO_VLLM.contract,
        name="vllm-v0-swap",
        slots=Slots.RUNNING,
        memory=Memory.SWAP,
    ),
    sources={
        **_PLAIN,
        "publish": "no prefix cache in this mode",
        "victim": "Kwon et al., SOSP 2023, 4.5 (the latest first); vLLM 0.6.3 core/scheduler.py, _schedule_running(): "
        "running_queue.pop()",
        "requeue": "same file, _schedule_running() and schedule(): preempted groups are put in front of waiting",
        "order": "same file, add_seq_group(): waiting.append",
        "need": "block_manager can_append_slots(): a block only when the last one is full",
        "phase": "same file, _schedule_default(): prefills first, none while anybody is swapped",
        "after_preemption": "same file: nobody is swapped in in a step that preempted or swapped out",
        "after_self": "same file: the requester is then the only one left",
        "slots": "same file: max_num_seqs bounds those that run",
        "full_hit": "no prefix cache in this mode",
        "oversize": "a layer above refuses what exceeds max_model_len",
        "progress": "derived: see policies.functions.patience",
        "causes": "same file, _preempt(): only where can_append_slots() is false",
        "memory": "SOSP 2023, 4.5: all-or-nothing eviction, swapped sequences come back before new ones are admitted; "
        "what does not fit in the host pool is recomputed",
    },
    core=(*CORE, "swap/round-trip", "swap/host-pool"),
    run=False,
)

PROFILES: Mapping[str, Profile] = {p.name: p for p in (VLLM_FCFS, VLLM_PRIORITY, NANO_VLLM, VIDUR_VLLM, VLLM_V0_SWAP)}
