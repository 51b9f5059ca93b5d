"""vLLM 0 with the paper's swapping."""

from __future__ import annotations

from attrs import evolve

from preempt_spec.policies.policy import Memory, Slots
from preempt_spec.policies.profiles.nano import NANO_VLLM
from preempt_spec.policies.profiles.profile import CORE, PLAIN, Profile

VLLM_V0_SWAP = Profile(
    name="vllm-v0-swap",
    contract=evolve(
        NANO_VLLM.contract,
        name="vllm-v0-swap",
        slots=Slots.RUNNING,
        memory=Memory.SWAP,
    ),
    sources={
        **PLAIN,
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
        "progress": "derived: see policies.progress.patience",
        "causes": "same file, _preempt(): only where can_append_slots() is false",
        "memory": "SOSP 2023, 4.5: all-or-nothing eviction, swapped sequences come back before new ones are admitted; "
        "what does not fit in the host pool is recomputed",
    },
    core=(*CORE, "swap/round-trip", "swap/host-pool"),
    run=False,
)
