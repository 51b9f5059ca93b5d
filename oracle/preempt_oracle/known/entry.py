"""What an entry of a known-failures file describes, and the runs it can describe.

A family of scenarios is given by what every run shows of itself: engine, version, the policy it is judged by, and
conditions on its configuration (`where`), or the name of a recorded trace (`trace`). Nothing is guessed: an entry
describes a run or it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from attrs import field, fields, frozen

from preempt_oracle.trace import wire
from preempt_spec import events as ev
from preempt_spec.view import View

#: What `where` may speak of, and whether it is a number (else true or false).
FACTS: Mapping[str, bool] = {
    # As in the header of a trace.
    **{a.name: a.type in (int, "int") for a in fields(ev.Limits) if a.type in (int, bool, "int", "bool")},
    "blocks": True,  # usable device blocks of the first group
    "page_size": True,  # tokens per block of the first group
    "ties": False,  # two requests with equal priority and arrival were live at once
    "drafted": False,  # drafts were proposed, or follow every grant
}


@frozen
class Bounds:
    """At least `min`, at most `max`; None: no bound."""

    min: int | None = None
    max: int | None = None

    def holds(self, value: int) -> bool:
        """Whether a number is inside."""
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)

    def __str__(self) -> str:
        """`1 or more`."""
        if self.min is not None and self.max is not None:
            return f"{self.min} to {self.max}"
        return f"{self.min} or more" if self.min is not None else f"{self.max} or less"


Condition = bool | int | Bounds


@frozen
class Scene:
    """What a run was a run of."""

    engine: str
    version: str
    policy: str  # the profile it is judged by
    facts: Mapping[str, bool | int]
    trace: str = ""  # file name of a recorded trace, without its folder; "" of a live run


class Scenery:
    """The facts of a run, collected while it goes by."""

    def __init__(self, shadow: View) -> None:
        self._shadow = shadow
        self._ties = False
        self._drafted = shadow.limits.drafts > 0

    def see(self, event: wire.Event) -> None:
        """Look at an event before it is judged. O(live requests), at arrivals only."""
        if type(event) is wire.Arrive and not self._ties:
            live = map(self._shadow.request, self._shadow.live())
            self._ties = any((r.priority, r.arrival) == (event.priority, event.arrival) for r in live)
        elif type(event) is wire.Deliver and event.proposed is not None and not self._drafted:
            self._drafted = any(event.proposed)

    def scene(self, header: wire.Header, policy: str, trace: str = "") -> Scene:
        """The run so far."""
        s = self._shadow
        facts = {name: getattr(s.limits, name) for name in FACTS if hasattr(s.limits, name)}
        facts |= {"blocks": s.total(0), "page_size": s.pages[0], "ties": self._ties, "drafted": self._drafted}
        return Scene(header.engine, header.version, policy, facts, trace)


@frozen
class Known:
    """One entry: these rules break in this family of scenarios."""

    rules: tuple[str, ...]
    engine: str
    versions: tuple[str, ...]
    policy: str
    reason: str
    where: Mapping[str, Condition] = field(factory=dict, hash=False)
    trace: str = ""  # a pattern for the file name of a recorded trace; "": any run, live or recorded
    within: int = 1  # runs of the family of which at least one breaks the rule
    place: str = ""  # FILE:LINE of the entry

    def describes(self, scene: Scene) -> bool:
        """Whether a run belongs to the family."""
        return (
            scene.engine == self.engine
            and scene.version in self.versions
            and scene.policy == self.policy
            and (not self.trace or (bool(scene.trace) and fnmatchcase(scene.trace, self.trace)))
            and all(_holds(condition, scene.facts[name]) for name, condition in self.where.items())
        )

    @property
    def family(self) -> str:
        """The family in words: `vllm 0.31.0, 0.33.0, vllm-priority: caching = true, long_prefill 1 or more`."""
        told = [f"trace {self.trace}"] if self.trace else []
        told += [f"{name} {_said(condition)}" for name, condition in self.where.items()]
        return f"{self.engine} {', '.join(self.versions)}, {self.policy}: {', '.join(told) or 'every configuration'}"


def _holds(condition: Condition, value: bool | int) -> bool:
    return condition.holds(value) if isinstance(condition, Bounds) else condition == value


def _said(condition: Condition) -> str:
    return str(condition) if isinstance(condition, Bounds) else f"= {str(condition).lower()}"
