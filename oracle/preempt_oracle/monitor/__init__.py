"""The incremental evaluator: the clauses of the specification over a mutable shadow state, fast enough for production."""

from preempt_oracle.monitor.monitor import Monitor

__all__ = ["Monitor"]
