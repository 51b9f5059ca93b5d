"""Every edit, in order: what is done wrong to blocks, victims and queues, at the ends of a life, in flight."""

from preempt_oracle.vectors import edits_blocks, edits_ends, edits_queues, edits_tiers
from preempt_oracle.vectors.editing import EDITS

__all__ = ["EDITS", "edits_blocks", "edits_ends", "edits_queues", "edits_tiers"]
