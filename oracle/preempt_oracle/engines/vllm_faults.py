"""Faults for `preempt-oracle smoke vllm --inject`: vLLM's own methods, wrapped to do one thing wrong.

Runs in the engine's Python (standard library only). They are put in before `vllm_watch` wraps the scheduler, so that
they stay underneath: the observation sees what a broken vLLM would show. What each needs of a workload to act stands
with it; that it acted is counted. The rule it names is the one that has to speak first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines import vllm_async_faults as overlap
    from preempt_oracle.engines import vllm_faults_memory as memory
    from preempt_oracle.engines import vllm_faults_message as message
    from preempt_oracle.engines import vllm_faults_plan as plan
    from preempt_oracle.engines import vllm_faults_victims as victims
    from preempt_oracle.engines.faults import Fault
else:
    import vllm_async_faults as overlap
    import vllm_faults_memory as memory
    import vllm_faults_message as message
    import vllm_faults_plan as plan
    import vllm_faults_victims as victims
    from faults import Fault

FAULTS: tuple[Fault, ...] = (*victims.FAULTS, *memory.FAULTS, *plan.FAULTS, *message.FAULTS, *overlap.FAULTS)

#: What a version must have for a fault to make sense there: traits of `vllm_versions`. Others make sense everywhere.
NEEDS: Mapping[str, frozenset[str]] = {
    name: frozenset(traits)
    for name, *traits in (
        ("preempted-twice", "preempt-method"),  # the assertion that fails stands there
        ("grant-kept", "preempt-method"),  # without, vLLM does that by itself
        ("nobody-preempted", "fence"),
        ("watermark-ignored", "watermark"),
        ("first-chunk-only", "whole-fit"),
        ("outputs-not-sent", "resumed-tokens"),
        ("stale-dropped", "stale"),
        ("stale-kept", "stale"),
        ("stale-not-awaited", "stale"),
        ("counts-preemptions-twice", "preemption-count", "cached-count"),
        ("counts-cached-beyond-prompt", "preemption-count", "cached-count"),
        ("admits-while-paused", "pause"),
    )
}


def faults(traits: frozenset[str]) -> tuple[Fault, ...]:
    """The faults that make sense in a version with these traits."""
    return tuple(fault for fault in FAULTS if NEEDS.get(fault.name, frozenset()) <= traits)
