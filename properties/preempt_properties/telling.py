"""What a scheduler's runs tell of its policy, beyond what they refute.

Some values only allow more than others: a scheduler that never admits in a preempting step breaks nothing under a
policy that lets it. It is the narrower value that describes it, if it had the occasion: if it ran a scenario in which
the reference, with the wider value, does what the narrower one forbids. Without such a scenario nothing is told. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Any

from attrs import evolve, frozen

from preempt_properties.inference import Case, Explained, Refuted, Values, causes
from preempt_properties.play import play
from preempt_properties.scenario import Scenario
from preempt_spec.policies.policy import (
    AfterPreemption,
    AfterSelf,
    Hits,
    Memory,
    Need,
    Phase,
    Policy,
    Progress,
    Release,
    Return,
    Slots,
)
from preempt_spec.reference import OBSERVES, Reference

#: Values that only allow more than those before them, but for what a test of this table names.
WIDER: Mapping[str, tuple[tuple[Enum, ...], ...]] = {
    "need": ((Need.GROWTH, Need.TOGETHER), (Need.GROWTH, Need.AHEAD)),
    "phase": ((Phase.MIXED, Phase.PREFILL_FIRST, Phase.TURNS), (Phase.MIXED, Phase.DECODE_FIRST)),
    "after_preemption": ((AfterPreemption.CLOSED, AfterPreemption.OPEN),),
    "after_self": ((AfterSelf.CONTINUE, AfterSelf.STOP),),
    "slots": ((Slots.RUNNING, Slots.BATCH),),
    "progress": ((Progress.EVERY_BATCH, Progress.CHUNKED),),
    "memory": ((Memory.RECOMPUTE, Memory.SWAP),),
    "hits": ((Hits.FITTING, Hits.ALL),),
    "release": ((Release.AT_ONCE, Release.LAZY),),
    "returns": ((Return.AT_ONCE, Return.ACK),),
}
#: Whoever has the wider value shows it whenever somebody is preempted: it releases, or requeues, behind that.
_AT_EACH_DEMOTION = ("release", "returns")
#: Scenarios that are looked for.
ENOUGH = 3


@frozen
class Ran:
    """A scenario that the scheduler ran, and what it did."""

    scenario: Scenario
    case: Case


@frozen
class Knob:
    """What is known of one knob."""

    name: str
    possible: tuple[Any, ...]  # in no run does anything tell these apart
    refuted: tuple[Refuted, ...]
    unused: tuple[tuple[Any, tuple[str, ...]], ...]  # a wider value, and the runs in which it would have shown

    @property
    def value(self) -> Any:
        """The one value that is left; None if it is undetermined."""
        return self.possible[0] if len(self.possible) == 1 else None


def narrowed(found: Explained, runs: Sequence[Ran], policy: Policy) -> tuple[Knob, ...]:
    """Each knob, without the values that allow what was never done though there was occasion.

    `policy`: the declared one, for what is no knob.
    """
    out = []
    for left in found.knobs:
        possible, unused = [*left.possible], []
        for narrow in left.possible:
            if narrow not in possible:
                continue
            for wide in [v for v in possible if _wider(left.knob, v, narrow)]:
                shown = _occasions({**found.values, left.knob: narrow}, left.knob, wide, runs, policy)
                if shown:
                    possible.remove(wide)
                    unused.append((wide, shown))
        out.append(Knob(left.knob, tuple(possible), left.refuted, tuple(unused)))
    return tuple(out)


def _wider(knob: str, value: Any, than: Any) -> bool:
    return any(value in o and than in o and o.index(value) > o.index(than) for o in WIDER.get(knob, ()))


def _occasions(values: Values, knob: str, wide: Any, runs: Sequence[Ran], policy: Policy) -> tuple[str, ...]:
    """Names of runs in which the wider value would have shown."""
    if knob in _AT_EACH_DEMOTION:
        found = (run for run in runs if causes(run.case.events))
    else:
        found = (run for run in runs if _shows(values, knob, wide, run, policy))
    return tuple(run.case.name for run in islice(found, ENOUGH))


def _shows(values: Values, knob: str, wide: Any, run: Ran, policy: Policy) -> bool:
    """Whether the reference with the wider value does in this scenario what the narrower one forbids."""
    header = evolve(run.case.header, observes=OBSERVES)
    did = tuple(play(run.scenario, Reference(header, evolve(policy, **{**values, knob: wide}))))
    conflicts = Case("", header, did, policy).conflicts(values)
    return any((knob, values[knob]) in c.nogood for c in conflicts)
