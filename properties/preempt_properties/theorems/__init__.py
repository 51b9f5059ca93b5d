"""The theorems of the cost model, one module per topic, in the order of the derivation."""

from types import ModuleType

from preempt_properties.theorems import (
    bandwidth,
    blocks,
    certificates,
    cheaper,
    configuration,
    copies,
    decision,
    hits,
    hybrid,
    interval,
    length,
    measured,
    mistakes,
    recompute,
    regret,
    sharding,
    spare,
    swap,
    window,
)
from preempt_properties.theorems.theorem import Kind, Parameter, Registry, Theorem

__all__ = ["THEOREMS", "Kind", "Parameter", "Registry", "Theorem"]

_TOPICS: tuple[ModuleType, ...] = (
    configuration,
    swap,
    recompute,
    bandwidth,
    decision,
    length,
    interval,
    copies,
    measured,
    hits,
    sharding,
    window,
    spare,
    cheaper,
    regret,
    hybrid,
    certificates,
    blocks,
    mistakes,
)

#: Every theorem by id. A topic is a module with a tuple `THEOREMS` in it.
THEOREMS = Registry(theorem for topic in _TOPICS for theorem in topic.THEOREMS)
