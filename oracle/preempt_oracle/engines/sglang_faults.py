"""Faults for SGLang's scheduler, its batches, its allocator and its tree.

Each wraps methods of one scheduler's objects, or of its classes where those are made anew for every batch, underneath
`sglang_watch`, and acts only where the engine would otherwise have done the right thing and no other rule could rightly
speak before the intended one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault
    from preempt_oracle.engines.sglang_faults_memory import MEMORY
    from preempt_oracle.engines.sglang_faults_priority import DISPLACING
    from preempt_oracle.engines.sglang_faults_queues import QUEUES
    from preempt_oracle.engines.sglang_faults_victims import VICTIMS
else:
    from faults import Fault
    from sglang_faults_memory import MEMORY
    from sglang_faults_priority import DISPLACING
    from sglang_faults_queues import QUEUES
    from sglang_faults_victims import VICTIMS

FAULTS: tuple[Fault, ...] = (*VICTIMS, *MEMORY, *QUEUES, *DISPLACING)
