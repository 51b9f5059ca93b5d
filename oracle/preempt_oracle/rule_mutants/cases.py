"""The cases that clauses are put to: a state, a micro-event, and what a clause must say of it.

All streams are played once, on the code as it is; a rule changes no stream, so that a changed clause need only be asked
again. What it must say does not come from itself: of what the reference and its right relatives do, nothing; where a
known-bad scheduler is caught, or a shipped trace breaks, what the zoo and the catalogue say; and how often it is
exercised in the workloads of `evidence.toml`, what stands there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from random import Random

from attrs import evolve, field, frozen

from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_spec
from preempt_oracle.trace.reader import read
from preempt_oracle.vectors.catalogue import FOLDER, Vector
from preempt_oracle.vectors.catalogue import load as catalogue
from preempt_oracle.verdict import out_of_contract, policy_for
from preempt_properties.catch import generated
from preempt_properties.corruption import thin
from preempt_properties.evidence import PLAYED, load
from preempt_properties.known_bad import ZOO, KnownBad
from preempt_properties.known_bad.kept import kills, scenes
from preempt_properties.known_bad.right import RIGHT
from preempt_properties.mutants.session import NotReady
from preempt_properties.play import header, play
from preempt_properties.scenario import Scenario
from preempt_properties.workload import EVERYTHING, workload
from preempt_spec import events as ev
from preempt_spec import micro as mi
from preempt_spec.micro import Malformed
from preempt_spec.offload import reference
from preempt_spec.policies.policy import Oversize, Policy
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import OBSERVES
from preempt_spec.rules.rule import Clause
from preempt_spec.state import State, initial
from preempt_spec.system import admissible, clauses
from preempt_spec.transition import apply_micro

#: Workloads of each right relative of the reference, per profile; of the reference, partly unread.
RELATIVES, UNREAD = 2, 20


@frozen
class Broken:
    """A micro-event of which one of these clauses, all of one rule, must find something; and who is behind it."""

    clauses: tuple[Clause, ...]
    state: State
    micro: mi.Micro
    who: str
    kind: str


@frozen
class Cases:
    """Everything that clauses are asked."""

    #: Clause -> what it must find nothing wrong with; and who is behind it.
    held: dict[Clause, list[tuple[State, mi.Micro, str]]] = field(factory=lambda: defaultdict(list))
    #: The same, of the workloads whose exercise counts are kept.
    counted: dict[Clause, list[tuple[State, mi.Micro]]] = field(factory=lambda: defaultdict(list))
    #: Clause -> how often it is exercised in those.
    exercised: Counter[Clause] = field(factory=Counter)
    broken: dict[Clause, list[Broken]] = field(factory=lambda: defaultdict(list))

    def play(
        self,
        events: Iterable[ev.Event],
        head: ev.Header,
        policy: Policy,
        expected: frozenset[str],
        who: str,
        kind: str = "known bad",
        *,
        keep: bool = True,
        counted: bool = False,
        each: bool = False,
    ) -> bool:
        """Enter a stream up to its first violation, and say whether there is one, by one of the rules expected.

        `keep`: enter what holds as well. `each`: every clause that finds something must, for itself. Raises NotReady
        if anybody else is heard.
        """
        active, state = clauses(head.observes), initial(head, policy)
        for event in events:
            for m in mi.expand(event, len(state.memory)):
                try:
                    admissible(state, m)
                except Malformed:
                    return False
                table = active.get(type(m), ())
                if isinstance(m, mi.Grant) and m.request not in state.live():
                    table = tuple(row for row in table if row[0] == "edge/abort")
                said = [(rule, clause, [*clause(state, m)]) for rule, clause in table]
                found = {rule for rule, _, messages in said if any(x is not None for x in messages)}
                if found:
                    if not found & expected:
                        raise NotReady(f"{who}: {sorted(found)} instead of {sorted(expected)}")
                    self._breaks(said, state, m, found & expected, who, kind, each)
                    return True
                if keep:
                    for _, clause, messages in said:
                        if counted:
                            self.counted[clause].append((state, m))
                            self.exercised[clause] += len(messages)
                        else:
                            self.held[clause].append((state, m, who))
                state = apply_micro(state, m)
        return False

    def _breaks(
        self,
        said: Iterable[tuple[str, Clause, list[str | None]]],
        state: State,
        m: mi.Micro,
        rules: Iterable[str],
        who: str,
        kind: str,
        each: bool,
    ) -> None:
        for rule in rules:
            mine = tuple(c for r, c, messages in said if r == rule and any(x is not None for x in messages))
            for clause in mine:
                self.broken[clause].append(Broken((clause,) if each else mine, state, m, who, kind))


def events_of(variant: type[KnownBad], scenario: Scenario) -> tuple[ev.Header, Policy, Iterator[ev.Event]]:
    """A variant at work."""
    contract = variant.contract(PROFILES[scenario.config.policy].contract)
    head = header(scenario.config)
    return head, contract, play(scenario, variant(head, contract))


def gathered() -> Cases:
    """All cases. Raises NotReady if the code as it is does not do what they demand."""
    cases = Cases()
    _zoo(cases)
    _right(cases)
    _unread(cases)
    _vectors(cases)
    _evidence(cases)
    return cases


def _zoo(cases: Cases) -> None:
    """The kept scenario of each known-bad scheduler; and, of every profile, the workload in which it is caught."""
    kept, caught = scenes(), kills()
    for v in ZOO:
        name = v.__name__
        head, contract, events = events_of(v, kept[name])
        if not cases.play(events, head, contract, frozenset({v.rule}), name, each=True):
            raise NotReady(f"{name} is not caught in its scenario")
        for policy, n in caught[name].items():
            head, contract, events = events_of(v, generated(v, policy, n - 1))
            if not cases.play(events, head, contract, frozenset({v.rule}), name, keep=False):
                raise NotReady(f"{name} is not caught in workload {n} of {policy}")


def _right(cases: Cases) -> None:
    for v in RIGHT:
        for policy in v.policies:
            for seed in range(RELATIVES):
                head, contract, events = events_of(v, generated(v, policy, seed))
                if cases.play(events, head, contract, frozenset(), v.__name__):
                    raise NotReady(f"{v.__name__} is accused")


def _unread(cases: Cases) -> None:
    """The reference, of which not everything is read: what nobody saw accuses nobody."""
    for policy in PROFILES:
        for seed in range(UNREAD):
            scenario = workload(Random(seed), policy, capabilities=EVERYTHING)
            head, contract = header(scenario.config), PROFILES[policy].contract
            events = thin(Random(seed), [*play(scenario, reference(head, contract))])
            if cases.play(events, head, contract, frozenset(), "the reference, partly unread,"):
                raise NotReady(f"the reference is accused in workload {seed} of {policy}, partly unread")


def _vectors(cases: Cases) -> None:
    for vector in catalogue():
        head, policy, events = _read(vector)
        if out_of_contract(initial(head, policy)):
            continue  # nobody is accused there
        cases.play(events, head, policy, frozenset(vector.rules), vector.file, "vector")


def _read(vector: Vector) -> tuple[ev.Header, Policy, Iterator[ev.Event]]:
    lines = [line for _, line in read(FOLDER / vector.file)]
    top = lines[0]
    assert isinstance(top, wire.Header)
    policy, _ = policy_for(top, vector.policy)
    return to_spec(top), policy, (to_spec(x) for x in lines[1:] if not isinstance(x, wire.Header | wire.Footer))


def _evidence(cases: Cases) -> None:
    kept: Mapping[str, Mapping[str, int]] = load().exercised
    for policy in PROFILES:
        before = Counter(cases.exercised)
        for seed in range(PLAYED):
            contract, can = PROFILES[policy].contract, EVERYTHING
            if seed % 2:
                contract, can = evolve(contract, oversize=Oversize.SCHEDULER), can | {"reject"}
            scenario = workload(Random(seed), policy, capabilities=can)
            head = header(scenario.config)
            events = play(scenario, reference(head, contract))
            if cases.play(events, head, contract, frozenset(), "the reference", counted=True):
                raise NotReady(f"the reference is accused in workload {seed} of {policy}")
        counts: Counter[str] = Counter()
        for rule, clause in {row for rows in clauses(OBSERVES).values() for row in rows}:  # one may be of two events
            counts[rule] += cases.exercised[clause] - before[clause]
        if {r: n for r, n in counts.items() if n} != kept[policy]:
            raise NotReady(f"{policy}: exercise counts are not those of evidence.toml; renew it first")
