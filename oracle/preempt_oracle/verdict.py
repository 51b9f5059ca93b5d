"""From exercise counts and violations to a verdict, rule by rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from attrs import Factory, evolve, field, frozen, mutable

from preempt_oracle.divergence import Divergence
from preempt_oracle.monitor import Monitor
from preempt_oracle.trace import wire
from preempt_spec.policies.functions import blocks_for
from preempt_spec.policies.policy import Policy
from preempt_spec.policies.profiles import PROFILES, Deviation
from preempt_spec.rules import RULES, Violation
from preempt_spec.system import observable
from preempt_spec.view import View


class UnknownPolicy(ValueError):
    """There is no profile of this name."""


def policy_for(header: wire.Header, name: str | None = None) -> tuple[Policy, tuple[Deviation, ...]]:
    """The policy of a profile as this engine's version has it, and its deviations. Raises UnknownPolicy."""
    wanted = name or header.policy
    profile = PROFILES.get(wanted)
    if profile is None:
        raise UnknownPolicy(f"{wanted!r} is unknown; profiles are {', '.join(PROFILES)}")
    return profile.as_built(header.engine, header.version)


class Verdict(Enum):
    """What a run says, and the exit code that says it."""

    CONFORMS = "conforms"
    VIOLATES = "violates"
    UNREADABLE = "unreadable"
    BROKEN = "harness broken"
    INCONCLUSIVE = "inconclusive"

    @property
    def exit_code(self) -> int:
        """0, 1, 2, 3, 4 in the order above."""
        return list(Verdict).index(self)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of several inputs: harness broken, unreadable, violates, inconclusive, conforms."""
    order = (Verdict.BROKEN, Verdict.UNREADABLE, Verdict.VIOLATES, Verdict.INCONCLUSIVE, Verdict.CONFORMS)
    return min(verdicts, key=order.index, default=Verdict.INCONCLUSIVE)


#: The note of a failure that accuses nobody.
EXCUSED = "seen out of contract: no violation"


def out_of_contract(s: View) -> str:
    """Why a run with these limits is outside every engine's contract; "" if it is inside.

    A sequence of the longest length must fit in the pool alone: no victim could ever make room for it, so a scheduler
    that meets one may do as it likes. Its last token is never computed and needs no slot.
    """
    longest = s.limits.max_length
    for g, page in enumerate(s.pages):
        needed = blocks_for(longest - 1, page)
        if needed > s.total(g):
            return (
                f"out of contract: a sequence of the maximum length, {longest} tokens, needs {needed} blocks, and the "
                f"pool of group {g} has {s.total(g)}"
            )
    return ""


class Standing(Enum):
    """How a rule came out."""

    HELD = "held"
    VIOLATED = "violated"
    NOT_EXERCISED = "not exercised"
    NOT_OBSERVABLE = "not observable"


@frozen
class Failure:
    """A broken rule, where, and how to see it again."""

    violation: Violation
    where: str  # FILE:LINE, or the scenario
    frame: int  # the step; -1 before the first
    tail: tuple[wire.Event, ...] = ()  # the last events up to the one that broke it
    replay: str = ""  # the command that shows it again
    divergence: Divergence | None = None  # what the engine said, beside what the shadow state has
    note: str = ""  # how the scenario came to be as short as it is


@mutable
class Tally:
    """What one or more runs of one engine under one policy showed."""

    engine: str
    version: str
    policy: str
    observes: frozenset[str] | None = None  # what every run let us observe
    runs: int = 0
    steps: int = 0
    grants: int = 0
    preemptions: int = 0
    resumes: int = 0
    exercised: Counter[str] = Factory(Counter)
    failures: list[Failure] = field(factory=list)  # at least one of each broken rule
    times: Counter[str] = Factory(Counter)  # runs that broke a rule, kept as a failure or not
    deviations: tuple[Deviation, ...] = ()
    outside: str = ""  # why a run was out of contract; "" if none was
    excused: Counter[str] = Factory(Counter)  # as `times`, of the runs out of contract

    def add(self, monitor: Monitor, observes: frozenset[str]) -> None:
        """Count one more run. Of one out of contract only the sizes count: it exercises nothing and accuses nobody."""
        self.runs += 1
        self.steps += monitor.steps
        self.grants += monitor.grants
        self.preemptions += monitor.shadow.preemptions
        self.resumes += monitor.shadow.resumes
        broken = {v.rule for v in monitor.violations}
        if out := out_of_contract(monitor.shadow):
            self.outside = out
            self.excused.update(broken)
            mine = monitor.violations
            self.failures = [evolve(f, note=EXCUSED) if f.violation in mine else f for f in self.failures]
        else:
            self.exercised.update(monitor.exercised)
            self.times.update(broken)
        self.observes = observes if self.observes is None else self.observes & observes

    @property
    def standings(self) -> dict[str, Standing]:
        """Every rule, in the order of the specification."""
        seen = observable(self.observes or frozenset())
        broken = {f.violation.rule for f in self.failures} - set(self.excused) | set(self.times)
        return {
            rule: Standing.VIOLATED
            if rule in broken
            else Standing.NOT_OBSERVABLE
            if rule not in seen
            else Standing.HELD
            if self.exercised[rule]
            else Standing.NOT_EXERCISED
            for rule in RULES
        }

    @property
    def missing(self) -> tuple[str, ...]:
        """What keeps runs without a violation from being conclusive."""
        profile = PROFILES[self.policy]
        if self.outside and not self.exercised:
            return (self.outside,)
        out = [] if profile.run else [f"{profile.name} was only read from source: it gives no verdict"]
        out += [] if self.preemptions else ["no preemption happened"]
        out += [] if self.resumes else ["no request resumed"]
        standings = self.standings
        out += [f"{r} was {standings[r].value}" for r in profile.core if standings[r] is not Standing.HELD]
        return tuple(out)

    @property
    def verdict(self) -> Verdict:
        """Violates, inconclusive or conforms."""
        if Standing.VIOLATED in self.standings.values():
            return Verdict.VIOLATES if PROFILES[self.policy].run else Verdict.INCONCLUSIVE
        return Verdict.INCONCLUSIVE if self.missing else Verdict.CONFORMS
