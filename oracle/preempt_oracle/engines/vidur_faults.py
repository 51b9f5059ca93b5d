"""Faults for Vidur's vLLM scheduler, its `Request.restart` repaired first (`vidur_watch`).

Each wraps methods of one scheduler, or of the class of its requests, underneath `vidur_watch`, and acts only where the
engine would otherwise have done the right thing and no other rule could rightly speak before the intended one. Where
the engine decides inside a loop, a list it works on is replaced by one that behaves wrongly in one way.

Vidur has no block ids, no tokens, no prefix cache and no abort, so there is nothing to break about them, except where a
fault of those kinds has a counterpart in its counts: such a fault names the observation it would take to see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preempt_oracle.engines.faults import Fault
    from preempt_oracle.engines.vidur_faults_memory import MEMORY
    from preempt_oracle.engines.vidur_faults_queues import QUEUES
    from preempt_oracle.engines.vidur_faults_victims import VICTIMS
else:
    from faults import Fault
    from vidur_faults_memory import MEMORY
    from vidur_faults_queues import QUEUES
    from vidur_faults_victims import VICTIMS

FAULTS: tuple[Fault, ...] = (*VICTIMS, *MEMORY, *QUEUES)
