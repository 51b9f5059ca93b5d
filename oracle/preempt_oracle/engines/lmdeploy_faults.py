"""Faults for LMDeploy's PyTorch scheduler and for the parts it is made of.

Each wraps methods of one `lmdeploy_engine.Loop`'s own objects, underneath `lmdeploy_watch`, and acts only where the
engine would otherwise have done the right thing and no other rule could rightly speak before the intended one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault
    from preempt_oracle.engines.lmdeploy_faults_memory import MEMORY
    from preempt_oracle.engines.lmdeploy_faults_queues import QUEUES
    from preempt_oracle.engines.lmdeploy_faults_victims import NEWEST_FIRST, OLDEST_FIRST, VICTIMS
else:
    from faults import Fault
    from lmdeploy_faults_memory import MEMORY
    from lmdeploy_faults_queues import QUEUES
    from lmdeploy_faults_victims import NEWEST_FIRST, OLDEST_FIRST, VICTIMS

FAULTS: tuple[Fault, ...] = (*VICTIMS, *MEMORY, *QUEUES)
#: Of 0.10.2, which looks at who runs from the other end.
FAULTS_OLD: tuple[Fault, ...] = tuple(NEWEST_FIRST if fault is OLDEST_FIRST else fault for fault in FAULTS)
