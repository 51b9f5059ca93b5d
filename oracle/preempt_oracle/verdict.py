"""From exercise counts and violations to a verdict, rule by rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from attrs import Factory, evolve, field, frozen, mutable

from preempt_oracle.divergence import Divergence
from preempt_oracle.monitor import Monitor
from preempt_oracle.trace import wire
from preempt_spec import SPEC_VERSION
from preempt_spec.policies.blocks import blocks_at_once
from preempt_spec.policies.policy import Policy
from preempt_spec.policies.profiles import PROFILES, Deviation
from preempt_spec.rules import Violation
from preempt_spec.rules.rule import advisory, edition
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
    KNOWN = "conforms but for known failures"
    STALE = "known failures are stale"

    @property
    def exit_code(self) -> int:
        """0, 1, 2, 3, 4 in the order above; 0 again for what is known.

        A stale entry is 2: the engine does nothing wrong (so not 1), and what the user gave us says what is not so.
        """
        return {Verdict.KNOWN: 0, Verdict.STALE: 2}.get(self, list(Verdict).index(self))


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of several inputs: harness broken, unreadable or stale, violates, inconclusive, conforms."""
    order = (
        Verdict.BROKEN,
        Verdict.UNREADABLE,
        Verdict.STALE,
        Verdict.VIOLATES,
        Verdict.INCONCLUSIVE,
        Verdict.KNOWN,
        Verdict.CONFORMS,
    )
    return min(verdicts, key=order.index, default=Verdict.INCONCLUSIVE)


#: The note of a failure that accuses nobody.
EXCUSED = "seen out of contract: no violation"


def out_of_contract(s: View) -> str:
    """Why a run with these limits is outside every engine's contract; "" if it is inside.

    A sequence of the longest length must fit in the pool alone: no victim could ever make room for it, so a scheduler
    that meets one may do as it likes. Its last token is never computed and needs no slot.
    """
    longest = s.limits.max_length
    for g, group in enumerate(s.groups):
        needed = blocks_at_once(group, longest - 1)
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
    KNOWN = "known failure"  # violated, each time as a known-failures file says
    ADVISED = "advisory: violated"  # changes no verdict
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
    known: str = ""  # why this is a known failure; "" if it is none
    advisory: bool = False  # of an advisory rule: the run went on behind it


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
    recomputed: int = 0  # tokens computed that had been computed before: the recompute tax of preemption
    delivered: int = 0  # tokens that came out
    exercised: Counter[str] = Factory(Counter)
    failures: list[Failure] = field(factory=list)  # at least one of each broken rule
    times: Counter[str] = Factory(Counter)  # runs that broke a rule, kept as a failure or not
    deviations: tuple[Deviation, ...] = ()
    outside: str = ""  # why a run was out of contract; "" if none was
    excused: Counter[str] = Factory(Counter)  # as `times`, of the runs out of contract
    spec: str = SPEC_VERSION  # the version of the specification they were judged by
    known: Counter[str] = Factory(Counter)  # runs that broke a rule as a known-failures file says; not in `times`
    advised: Counter[str] = Factory(Counter)  # runs that broke an advisory rule; not in `times`
    failed: Counter[str] = Factory(Counter)  # of `exercised`: how often the rule did not hold where a run ended
    ended: int = 0  # runs that ended at a known failure: nothing behind it was judged
    unjudged: int = 0  # steps of recorded traces behind one
    lost: int = 0  # events of recorded traces that could not be written, at least: behind the end of what was judged

    def add(
        self,
        monitor: Monitor,
        observes: frozenset[str],
        *,
        known: Iterable[str] = (),
        advised: Iterable[str] = (),
    ) -> None:
        """Count one more run. Of one out of contract only the sizes count: it exercises nothing and accuses nobody.

        `known`: which of its violations are known failures; `advised`: the advisory rules it broke.
        """
        self.runs += 1
        self.steps += monitor.steps
        self.grants += monitor.grants
        self.preemptions += monitor.shadow.preemptions
        self.resumes += monitor.shadow.resumes
        self.recomputed += monitor.shadow.recomputed
        self.delivered += monitor.shadow.delivered
        broken = {v.rule for v in monitor.violations}
        if out := out_of_contract(monitor.shadow):
            self.outside = out
            self.excused.update(broken)
            mine = monitor.violations
            self.failures = [evolve(f, note=EXCUSED) if f.violation in mine else f for f in self.failures]
        else:
            self.exercised.update(monitor.exercised)
            self.failed.update(v.rule for v in monitor.violations)
            expected = broken & {*known}
            self.times.update(broken - expected)
            self.known.update(expected)
            self.advised.update({*advised})
            self.ended += bool(broken) and broken == expected
        self.observes = observes if self.observes is None else self.observes & observes

    def join(self, other: Tally) -> None:
        """Count what further runs of the same engine, policy and specification showed."""
        for name in ("runs", "steps", "grants", "preemptions", "resumes", "recomputed", "delivered", "ended",
                     "unjudged", "lost"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("exercised", "times", "excused", "known", "advised", "failed"):
            getattr(self, name).update(getattr(other, name))
        seen = {(f.violation.rule, f.known) for f in self.failures}
        self.failures += [f for f in other.failures if (f.violation.rule, f.known) not in seen]
        self.outside = self.outside or other.outside
        if other.observes is not None:
            self.observes = other.observes if self.observes is None else self.observes & other.observes

    def seen_in(self, failure: Failure) -> int:
        """Runs in which its rule broke in the same way: as a known failure, as an advisory rule, or as neither."""
        rule = failure.violation.rule
        return (self.advised if failure.advisory else self.known if failure.known else self.times)[rule]

    @property
    def standings(self) -> dict[str, Standing]:
        """Every rule of this version of the specification, in its order."""
        seen = observable(self.observes or frozenset(), self.spec)
        ours = {f.violation.rule for f in self.failures if not f.known and not f.advisory}
        broken = ours - set(self.excused) | set(self.times)
        return {
            rule: Standing.VIOLATED
            if rule in broken
            else Standing.KNOWN
            if rule in self.known
            else Standing.ADVISED
            if rule in self.advised
            else Standing.NOT_OBSERVABLE
            if rule not in seen
            else Standing.HELD
            if self.exercised[rule]
            else Standing.NOT_EXERCISED
            for rule in (r.id for r in edition(self.spec))
        }

    @property
    def core(self) -> tuple[str, ...]:
        """The rules that must have held before anything conforms: of the profile's, those in force and not advisory."""
        rules = {r.id for r in edition(self.spec)} - advisory(self.spec)
        return tuple(r for r in PROFILES[self.policy].core if r in rules)

    @property
    def missing(self) -> tuple[str, ...]:
        """What keeps runs without a violation from being conclusive."""
        profile = PROFILES[self.policy]
        if self.outside and not self.exercised:
            return (self.outside,)
        out = [] if profile.run else [f"{profile.name} was only read from source: it gives no verdict"]
        out += [] if self.preemptions else ["no preemption happened"]
        out += [] if self.resumes else ["no request resumed"]
        out += list(self._uncovered(self.standings))
        return tuple(out)

    def _uncovered(self, standings: Mapping[str, Standing]) -> Iterator[str]:
        for rule in self.core:
            if standings[rule] is Standing.KNOWN:
                # What is known to fail has not been seen to hold by that: without the entry's runs it must be covered.
                if self.exercised[rule] <= self.failed[rule]:
                    yield f"{rule} was only exercised where it is known to fail"
            elif standings[rule] is not Standing.HELD:
                yield f"{rule} was {standings[rule].value}"

    @property
    def verdict(self) -> Verdict:
        """Violates, inconclusive or conforms; but for known failures, if there were any."""
        if Standing.VIOLATED in self.standings.values():
            return Verdict.VIOLATES if PROFILES[self.policy].run else Verdict.INCONCLUSIVE
        if self.missing:
            return Verdict.INCONCLUSIVE
        return Verdict.KNOWN if self.known else Verdict.CONFORMS
