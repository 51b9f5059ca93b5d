"""Faults for continuous batching of transformers: see `faults`.

Each wraps methods of one processor's scheduler, cache, offloading manager or tensors, underneath `transformers_watch`,
and acts only where the engine would otherwise have done the right thing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault
    from preempt_oracle.engines.transformers_faults_memory import MEMORY
    from preempt_oracle.engines.transformers_faults_queues import QUEUES
    from preempt_oracle.engines.transformers_faults_sharing import SHARING
    from preempt_oracle.engines.transformers_faults_victims import VICTIMS
else:
    from faults import Fault
    from transformers_faults_memory import MEMORY
    from transformers_faults_queues import QUEUES
    from transformers_faults_sharing import SHARING
    from transformers_faults_victims import VICTIMS

FAULTS: tuple[Fault, ...] = (*VICTIMS, *MEMORY, *QUEUES, *SHARING)
