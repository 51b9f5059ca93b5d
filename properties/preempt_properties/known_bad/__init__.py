"""Schedulers that are wrong, each in one place of a few lines, and each caught by the rule it names.

Every one is the reference with one hook wrong (`base.KnownBad`), most of them after a public report. A rule that no
variant here can break is a rule that nobody has seen at work. Importable without Hypothesis.
"""

from preempt_properties.known_bad import (
    accounting,
    bookkeeping,
    caches,
    controls,
    displacing,
    drafts,
    edges,
    flight,
    liveness,
    provenance,
    queues,
    reset,
    returns,
    starving,
    stream,
    swaps,
    victims,
)
from preempt_properties.known_bad.base import KnownBad

_MODULES = (
    bookkeeping,
    reset,
    provenance,
    accounting,
    victims,
    queues,
    stream,
    flight,
    drafts,
    swaps,
    caches,
    returns,
    liveness,
    edges,
    controls,
    starving,
    displacing,
)

#: Every known-bad scheduler, in the order of the modules.
ZOO: tuple[type[KnownBad], ...] = tuple(
    cls
    for module in _MODULES
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, KnownBad) and cls.__module__ == module.__name__
    if hasattr(cls, "rule")  # not a mere common ancestor
)

__all__ = ["ZOO", "KnownBad"]
