"""The vLLM scheduler of the simulator Vidur."""

from __future__ import annotations

from attrs import evolve

from preempt_spec.policies.policy import Fence, Need, Phase, Progress, Victim
from preempt_spec.policies.profiles.profile import CORE, PLAIN, Deviation, Profile
from preempt_spec.policies.profiles.vllm import VLLM_FCFS

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
        **PLAIN,
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
        "progress": "derived: see policies.progress.patience",
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
