"""Which policy a scheduler follows, from what it did: every value of every knob that its events leave possible.

A policy is a value per knob, and a clause reads only some knobs. So an event that breaks a rule refutes more than one
policy: all that agree on the knobs which were read on the way to that violation (by the clause, or by a transition
before it). Such a set of values is a *nogood*. The search takes any policy that no nogood rules out, judges all events
by it, and adds the nogoods of what breaks, until one is left that breaks nothing, or none is left at all. A value is
refuted if no policy that has it is left. (`telling` has what is to be made of values that only allow more.) Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, cast

import attrs
from attrs import define, frozen

from preempt_properties.nogoods import Nogood, Nogoods
from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.micro import Malformed
from preempt_spec.policies.policy import Policy
from preempt_spec.rules.rule import Clause
from preempt_spec.state import State, initial
from preempt_spec.system import admissible, clauses
from preempt_spec.transition import apply_micro

#: Every knob, and the values that it may have.
KNOBS: Mapping[str, tuple[Enum, ...]] = {
    a.name: tuple(a.type)
    for a in attrs.fields(attrs.resolve_types(Policy))
    if isinstance(a.type, type) and issubclass(a.type, Enum)
}

Values = Mapping[str, Any]  # a value for each knob
#: Combinations of values that are tried to blame a break on as few knobs as possible.
MOST = 128


@frozen
class Conflict:
    """What breaks under some values, and all of them that it hangs on."""

    nogood: Nogood
    rule: str
    message: str
    event: int  # of the case


class _Noting:
    """A policy of other values now and then, that notes which of its knobs are read."""

    def __init__(self, policy: Policy, causes: frozenset[str]) -> None:
        self.values: Values = {}
        self.read: set[str] = set()
        self._rest = {"name": policy.name, "causes": causes, "hidden": policy.hidden, "tax": policy.tax}

    def __getattr__(self, knob: str) -> Any:
        if knob in KNOBS:
            self.read.add(knob)
            return self.values[knob]
        return self._rest[knob]


@frozen(eq=False)
class _Point:
    """A clause that hangs on the policy, where it was put to the test."""

    event: int
    state: State
    base: frozenset[str]  # the knobs that transitions read up to here: the state hangs on no others
    micro: mi.Micro
    rule: str
    clause: Clause


@frozen(eq=False)
class _Course:
    """A case followed under certain values of the knobs that transitions read."""

    base: Nogood
    points: tuple[_Point, ...]
    end: Conflict | None  # where an event breaks, or makes no sense, under these values, whatever the others are


@define(eq=False)
class Case:
    """The events of one run, and whatever has been found out of it."""

    name: str
    header: ev.Header
    events: Sequence[ev.Event]
    policy: Policy  # the declared one, for what is no knob
    _noting: _Noting = attrs.field(init=False)
    _courses: list[_Course] = attrs.field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        self._noting = _Noting(self.policy, self.policy.causes | causes(self.events))

    def conflicts(self, values: Values) -> list[Conflict]:
        """Everything that breaks under these values."""
        noting = self._noting
        noting.values = values
        course = next((c for c in self._courses if all(values[k] == v for k, v in c.base)), None)
        if course is None:
            course = self._followed(values)
            self._courses.append(course)
        found: dict[Nogood, Conflict] = {}
        for at in course.points:
            message = self._asked(at, values)
            if message is not None:
                matter = at.base | self._blamed(at, values, noting.read - at.base)
                nogood = frozenset((k, values[k]) for k in matter)
                found.setdefault(nogood, Conflict(nogood, at.rule, message, at.event))
        if course.end is not None:
            found.setdefault(course.end.nogood, course.end)
        return [*found.values()]

    def _asked(self, at: _Point, values: Values) -> str | None:
        """What a clause finds under these values; which of them it read is noted."""
        self._noting.values = values
        self._noting.read.clear()
        return next((message for message in at.clause(at.state, at.micro) if message is not None), None)

    def _blamed(self, at: _Point, values: Values, read: set[str]) -> set[str]:
        """Of the knobs that a clause read as it broke, those without which it might not: the others it only passed by.

        A knob goes if the clause breaks whatever the value, also of those that went before, and reads nothing else. A
        nogood of many knobs would be learned once for each of their combinations.
        """
        kept, passed = set(read), [values]
        for knob in sorted(read, key=lambda k: (len(KNOBS[k]), k)):
            more = [{**v, knob: other} for v in passed for other in KNOBS[knob] if other is not values[knob]]
            if len(passed) + len(more) > MOST:
                break
            if all(self._asked(at, v) is not None and self._noting.read <= read | at.base for v in more):
                kept.remove(knob)
                passed += more
        return kept

    def _followed(self, values: Values) -> _Course:
        """To the end, or to where a clause breaks that reads no knob, or an event makes no sense: no state follows."""
        noting, active = self._noting, clauses(self.header.observes)
        base: set[str] = set()
        so_far = frozenset[str]()  # the same, once for all points that share it
        points: list[_Point] = []

        def course(rule: str = "", message: str = "", event: int = 0) -> _Course:
            nogood = frozenset((k, values[k]) for k in base)
            return _Course(nogood, tuple(points), Conflict(nogood, rule, message, event) if message else None)

        noting.read.clear()
        state = initial(self.header, cast(Policy, noting))
        for n, event in enumerate(self.events):
            try:
                for m in mi.expand(event, len(state.memory)):
                    admissible(state, m)
                    base |= noting.read
                    so_far = so_far if len(so_far) == len(base) else frozenset(base)
                    for rule, clause in active.get(type(m), ()):
                        noting.read.clear()
                        broken = next((message for message in clause(state, m) if message is not None), None)
                        if noting.read:
                            points.append(_Point(n, state, so_far, m, rule, clause))
                        elif broken is not None:
                            return course(rule, broken, n)
                    noting.read.clear()
                    state = apply_micro(state, m)
                    base |= noting.read
            except Malformed as e:
                base |= noting.read
                return course("", f"makes no sense: {e}", n)
        return course()


def causes(events: Iterable[ev.Event]) -> frozenset[str]:
    """For what somebody was preempted."""
    acts = (act for e in events for act in getattr(e, "acts", ()))
    return frozenset(act.cause for act in acts if isinstance(act, ev.Demote) and act.cause != "reset")


@frozen
class Refuted:
    """A value that no possible policy has: what breaks if only this knob is changed."""

    value: Any
    case: Case | None  # None: it takes several runs together
    conflict: Conflict | None


@frozen
class Left:
    """What the cases leave of one knob."""

    knob: str
    possible: tuple[Any, ...]
    refuted: tuple[Refuted, ...]


@frozen
class Explained:
    """What the cases leave of a policy. `cut`: what no policy explains, not even of one run; it is left out of it."""

    values: Values  # that explain everything else
    knobs: tuple[Left, ...]
    cut: tuple[tuple[Case, Conflict], ...]


@frozen
class Unexplained:
    """Each run can be explained, but no policy explains all: what breaks under the one that was thought of first."""

    conflicts: tuple[tuple[Case, Conflict], ...]


def values_of(policy: Policy) -> Values:
    """The values of its knobs."""
    return {knob: getattr(policy, knob) for knob in KNOBS}


def explain(cases: Sequence[Case], first: Policy) -> Explained | Unexplained:
    """What the cases leave possible. `first`: the policy to think of first."""
    cut: list[tuple[Case, Conflict]] = []
    cases = [_explicable(case, values_of(first), cut) for case in cases]
    search = _Search([*cases], values_of(first))
    values = search.find({})
    if values is None:
        return Unexplained(tuple((case, x) for case in cases for x in case.conflicts(search.preferred)))
    search.preferred = values
    knobs = []
    for knob, domain in KNOBS.items():
        possible, refuted = [values[knob]], []
        for value in domain:
            if value is values[knob]:
                continue
            if search.find({knob: value}) is not None:
                possible.append(value)
            else:
                refuted.append(search.refutation(knob, value))
        knobs.append(Left(knob, tuple(sorted(possible, key=domain.index)), tuple(refuted)))
    return Explained(values, tuple(knobs), tuple(cut))


def _explicable(case: Case, preferred: Values, cut: list[tuple[Case, Conflict]]) -> Case:
    """The case, up to where no policy explains it."""
    if _Search([case], preferred).find({}) is not None:
        return case

    def explained(upto: int) -> tuple[Case, Values | None]:
        rest = Case(case.name, case.header, case.events[:upto], case.policy)
        return rest, _Search([rest], preferred).find({})

    # What explains a run explains its beginning.
    upto = bisect_left(range(len(case.events) + 1), True, key=lambda n: explained(n)[1] is None) - 1
    rest, values = explained(upto)
    assert values is not None  # nothing ever happened: anybody could have done that
    cut.append((case, min(case.conflicts(values), key=lambda c: c.event)))
    return rest


@define(eq=False)
class _Search:
    cases: list[Case]
    preferred: Values
    nogoods: Nogoods = attrs.field(factory=lambda: Nogoods(KNOBS))

    def find(self, fixed: Values) -> Values | None:
        """A policy with these values under which nothing breaks; None if there is none."""
        while (values := self.nogoods.allowed(self.preferred, fixed)) is not None:
            case, found = next(self._breaking(values), (None, []))
            if case is None:
                return values
            for conflict in found:
                self.nogoods.add(conflict.nogood)
            # What told this one apart tells the next one apart, too.
            self.cases.remove(case)
            self.cases.insert(0, case)
        return None

    def refutation(self, knob: str, value: Any) -> Refuted:
        """The run that shows it, of several the shortest."""
        changed = {**self.preferred, knob: value}
        found = [(case, conflict) for case, some in self._breaking(changed) for conflict in some]
        if not found:
            return Refuted(value, None, None)
        case, conflict = min(found, key=lambda x: (x[1].event, x[0].name))
        return Refuted(value, case, conflict)

    def _breaking(self, values: Values) -> Iterator[tuple[Case, list[Conflict]]]:
        for case in [*self.cases]:
            if found := case.conflicts(values):
                yield case, found
