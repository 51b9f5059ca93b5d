"""What a profile is: a policy by name, with the source of each value.

A profile has a *contract* (what the engine documents or upstream has fixed) and *deviations* (what runs of certain
versions show instead, with the scenario that shows it). Under `as_built` a deviation replaces the contract's value and
is reported with the verdict; so a policy never swallows a bug.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, frozen

from preempt_spec.policies.policy import Policy


@frozen
class Deviation:
    """A knob whose value in some versions of an engine is not the contract's."""

    knob: str
    value: object
    engine: str
    versions: tuple[str, ...]
    why: str  # what the contract says, what runs show
    scenario: str  # how to see it


@frozen
class Profile:
    """A policy by name. `run`: seen in runs; a profile only read from source gives no verdict."""

    name: str
    contract: Policy
    sources: Mapping[str, str]  # knob -> where the value comes from
    core: tuple[str, ...]  # rules that must have been exercised before anything conforms
    deviations: tuple[Deviation, ...] = ()
    run: bool = True

    def as_built(self, engine: str, version: str) -> tuple[Policy, tuple[Deviation, ...]]:
        """The policy as this version of the engine has it, and where it departs from the contract."""
        apply = tuple(d for d in self.deviations if d.engine == engine and version in d.versions)
        changes: dict[str, Any] = {d.knob: d.value for d in apply}
        return evolve(self.contract, **changes), apply


#: Without these, exercised, a run says nothing about preemption.
CORE = (
    "pool/conserve",
    "pool/capacity",
    "victim/trigger",
    "victim/necessity",
    "victim/choice",
    "victim/reset",
    "victim/keep-tokens",
    "victim/unplan",
    "queue/one-place",
    "queue/front",
    "queue/order",
    "queue/visit-once",
    "queue/admission",
    "output/stream",
    "live/progress",
)
CORE_WITH_WORKER = (*CORE, "resume/message", "resume/hit", "resume/provenance")

#: Of a scheduler that flies one frame at a time and keeps no host copies.
PLAIN = {
    "memory": "no host tier: a victim's computed tokens are set to 0",
    "release": "the victim's blocks are freed before it is queued",
    "returns": "a victim is queued in the step that preempts it",
    "stale": "one frame at a time: nothing flies when the scheduler decides",
    "fence": "one frame at a time",
    "lineup": "nobody but who leaves moves",
    "twins": "both tables keep their own",
    "idle": "a free block that is findable is handed out like another",
    "hits": "a hit counts for an admission, and makes none",
    "reads": "what a step reads is bounded by its grants alone",
    "gate": "the configuration's gates are all there are",
    "hidden": "no timers and no chance in the scheduler",
    "tax": "no bound is stated: reported only",
}
