"""Every edit, in order: what is done wrong to blocks, to victims and queues, and at the ends of a request's life."""

from preempt_oracle.vectors import edits_blocks, edits_ends, edits_queues
from preempt_oracle.vectors.editing import EDITS

__all__ = ["EDITS", "edits_blocks", "edits_ends", "edits_queues"]
