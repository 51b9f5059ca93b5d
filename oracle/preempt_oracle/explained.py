"""A rule or a finding, explained: what it says, why it matters, who reported such a fault, and the shortest run.

The run is real: a known-bad scheduler of ours that breaks the rule, in the shortest scenario known, judged as any
engine is. Of a finding it is the scenario that shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from attrs import frozen

from preempt_oracle.divergence import diverged
from preempt_oracle.engines.environments import ENGINES
from preempt_oracle.film import Film
from preempt_oracle.found import Finding, listed
from preempt_oracle.monitor import Monitor
from preempt_oracle.trace import wire
from preempt_oracle.trace.convert import to_wire
from preempt_oracle.verdict import Failure, Tally
from preempt_properties.known_bad import ZOO, KnownBad
from preempt_properties.known_bad.kept import scenes
from preempt_properties.known_bad.kinds import Kind, load
from preempt_properties.play import header, play
from preempt_properties.scenario import Scenario
from preempt_spec.policies.profiles import PROFILES


@frozen
class Told:
    """A scheduler that breaks a rule, in the shortest scenario known: what it did, and the failure."""

    variant: type[KnownBad]
    scenario: Scenario
    events: tuple[wire.Event, ...]
    failure: Failure
    film: Film
    tally: Tally  # of this run alone


_scenes = lru_cache(maxsize=1)(scenes)


def reports(rule: str) -> tuple[Kind, ...]:
    """The kinds of publicly reported faults whose known-bad scheduler breaks this rule."""
    names = {v.__name__ for v in ZOO if v.rule == rule}
    return tuple(k for k in load().kinds if names.intersection(k.shown_by))


def told(rule: str) -> Told | None:
    """Of all known-bad schedulers that break a rule, the one with the shortest scenario; None if none has any."""
    kept = _scenes()
    ours = [v for v in ZOO if v.rule == rule and v.__name__ in kept]
    # The fewest commands, and one that somebody reported before one that nobody did.
    order = sorted(ours, key=lambda v: (len(kept[v.__name__].script), not v.bug, v.__name__))
    for variant in order:
        if found := _shown(variant, kept[variant.__name__]):
            return found
    return None


def _shown(variant: type[KnownBad], scenario: Scenario) -> Told | None:
    head = header(scenario.config)
    contract = variant.contract(PROFILES[scenario.config.policy].contract)
    monitor = Monitor(head, contract)
    film, seen = Film(monitor), list[wire.Event]()
    for event in map(to_wire, play(scenario, variant(head, contract))):
        seen.append(event)
        broken = monitor.feed(event)
        film.see(event)
        for violation in broken:
            if violation.rule == variant.rule:
                state = diverged(monitor, event, violation)
                where = f"the scheduler {variant.__name__}"
                failure = Failure(violation, where, monitor.shadow.last_frame, tuple(seen), divergence=state)
                tally = Tally("reference", variant.__name__, scenario.config.policy)
                tally.failures.append(failure)
                tally.add(monitor, head.observes)
                return Told(variant, scenario, tuple(seen), failure, film, tally)
        if broken:
            return None
    return None


def findings() -> Mapping[str, tuple[tuple[str, Finding], ...]]:
    """By id, every finding and its engine."""
    out: dict[str, tuple[tuple[str, Finding], ...]] = {}
    for engine, finding in _findings():
        out[finding.id] = (*out.get(finding.id, ()), (engine, finding))
    return out


def _findings() -> Iterator[tuple[str, Finding]]:
    for engine in ENGINES:
        for finding in listed(engine):
            yield engine, finding
