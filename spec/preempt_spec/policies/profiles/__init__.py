"""Profiles: the policies of named engines, a file per engine."""

from __future__ import annotations

from collections.abc import Mapping

from preempt_spec.policies.profiles.lmdeploy import LMDEPLOY
from preempt_spec.policies.profiles.nano import NANO_VLLM
from preempt_spec.policies.profiles.profile import CORE, CORE_WITH_WORKER, Deviation, Profile
from preempt_spec.policies.profiles.sglang import SGLANG_PRIORITY, SGLANG_RETRACT
from preempt_spec.policies.profiles.transformers import HF_CB, HF_CB_OFFLOAD, HF_CB_PREFILL_FIRST
from preempt_spec.policies.profiles.vidur import VIDUR_VLLM
from preempt_spec.policies.profiles.vllm import VLLM_FCFS, VLLM_PRIORITY
from preempt_spec.policies.profiles.vllm_v0 import VLLM_V0_SWAP

__all__ = ["CORE", "CORE_WITH_WORKER", "PROFILES", "Deviation", "Profile"]

PROFILES: Mapping[str, Profile] = {
    p.name: p
    for p in (
        *(VLLM_FCFS, VLLM_PRIORITY, NANO_VLLM, VIDUR_VLLM, VLLM_V0_SWAP, LMDEPLOY, SGLANG_RETRACT, SGLANG_PRIORITY),
        *(HF_CB, HF_CB_PREFILL_FIRST, HF_CB_OFFLOAD),
    )
}
