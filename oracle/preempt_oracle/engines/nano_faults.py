"""Faults for nano-vllm-fork's scheduler and block manager, repaired first (`nano_repair`).

Each wraps methods of one scheduler or of its block manager, underneath `nano_watch`, and acts only where the engine
would otherwise have done the right thing and no other rule could rightly speak before the intended one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault
    from preempt_oracle.engines.nano_faults_memory import MEMORY
    from preempt_oracle.engines.nano_faults_queues import QUEUES
    from preempt_oracle.engines.nano_faults_victims import VICTIMS
else:
    from faults import Fault
    from nano_faults_memory import MEMORY
    from nano_faults_queues import QUEUES
    from nano_faults_victims import VICTIMS

FAULTS: tuple[Fault, ...] = (*VICTIMS, *MEMORY, *QUEUES)
