"""nano-vllm."""

from __future__ import annotations

from attrs import evolve

from preempt_spec.policies.policy import Fence, Phase, Progress, Slots, Victim
from preempt_spec.policies.profiles.profile import CORE, PLAIN, Profile
from preempt_spec.policies.profiles.vllm import VLLM_FCFS

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
        **PLAIN,
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
        "progress": "derived: see policies.progress.patience",
        "causes": "same file, schedule(): preempt() only where can_append() is false",
    },
    core=CORE,
)
