"""A scheduler that is right but for one thing: a victim is requeued at the back. To see what `fuzz` makes of it.

PYTHONPATH=examples preempt-oracle fuzz --adapter faulty_scheduler:Faulty --workloads 40 --seed 1
"""

from __future__ import annotations

from preempt_oracle.adapters.reference import ReferenceEngine
from preempt_properties.known_bad.queues import RequeuesAtTheBack


class Faulty(ReferenceEngine):
    """The reference behind the adapter protocol, with that one decision wrong."""

    scheduler = RequeuesAtTheBack
