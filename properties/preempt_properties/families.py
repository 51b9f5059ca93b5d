"""Families of scenarios: every workload belongs to just one, by the most particular thing it asks of a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from preempt_properties.scenario import Control, Scenario

#: Family -> what its scenarios ask for, and how that is told. The first that applies is the scenario's.
_TOLD: Mapping[str, tuple[str, Callable[[Scenario], bool]]] = {
    "groups": ("several KV-cache groups", lambda s: s.config.groups != "full"),
    "host": ("a host tier", lambda s: s.config.host_blocks > 0),
    "drafts": ("speculative drafts", lambda s: s.config.drafts > 0),
    "frames": ("several frames in flight", lambda s: s.config.frames > 1),
    "control": ("resets and pauses", lambda s: any(isinstance(c, Control) for c in s.script)),
    "cache": ("a prefix cache", lambda s: s.config.caching),
    "plain": ("nothing but requests, and users who cancel", lambda _: True),
}

#: Family -> what its scenarios ask a scheduler for beyond those that follow.
FAMILIES: Mapping[str, str] = {name: what for name, (what, _) in _TOLD.items()}


def family(scenario: Scenario) -> str:
    """The family of a scenario."""
    return next(name for name, (_, told) in _TOLD.items() if told(scenario))
