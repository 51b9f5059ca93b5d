"""The incremental evaluator: the clauses of the specification over a mutable shadow state, for production use."""

from preempt_oracle.monitor.monitor import Monitor

__all__ = ["Monitor"]
