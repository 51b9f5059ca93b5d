"""Faults for `preempt-oracle smoke vllm --inject`: vLLM's own methods, wrapped to do one thing wrong.

Runs in the engine's Python (standard library only). They are put in before `vllm_watch` wraps the scheduler, so that
they stay underneath: the observation sees what a broken vLLM would show. What each needs of a workload to act stands
with it; that it acted is counted. The rule it names is the one that has to speak first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines import vllm_async_faults as overlap
    from preempt_oracle.engines import vllm_faults_memory as memory
    from preempt_oracle.engines import vllm_faults_plan as plan
    from preempt_oracle.engines import vllm_faults_victims as victims
    from preempt_oracle.engines.faults import Fault
else:
    import vllm_async_faults as overlap
    import vllm_faults_memory as memory
    import vllm_faults_plan as plan
    import vllm_faults_victims as victims
    from faults import Fault

FAULTS: tuple[Fault, ...] = (*victims.FAULTS, *memory.FAULTS, *plan.FAULTS, *overlap.FAULTS)
