"""Every rule, one module per family. Ids are `family/name`; find a rule by its id, in the module of its family."""

from preempt_spec.rules import edge, frame, live, output, pool, queue, resume, swap, victim
from preempt_spec.rules.rule import RULES, Kind, Rule, Violation

__all__ = [
    "RULES",
    "Kind",
    "Rule",
    "Violation",
    "edge",
    "frame",
    "live",
    "output",
    "pool",
    "queue",
    "resume",
    "swap",
    "victim",
]
