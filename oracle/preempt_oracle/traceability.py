"""From each rule to everything that shows it at work: clauses, property, known-bad schedulers, traces, injected faults.

The registry, the zoo, the catalogue of vectors and the adapters' lists of faults are read; what takes minutes to find
(`preempt_properties.evidence`) is read from its file. A rule that lacks one of `EVIDENCE` is a hole, unless the reason
stands beside the rule (`rule(…, lacks={…})`); so is a reason for a lack that is none.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from attrs import frozen

from preempt_oracle.engines.environments import ENGINES
from preempt_oracle.report.rulebook import ClauseText, clauses, select
from preempt_oracle.vectors.catalogue import Vector
from preempt_oracle.vectors.catalogue import load as vectors
from preempt_properties.evidence import Evidence
from preempt_properties.evidence import load as evidence
from preempt_properties.known_bad import ZOO, KnownBad
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.rules import RULES
from preempt_spec.rules.rule import Rule

ENGINE_SIDE = Path(__file__).with_name("engines")

#: Reads the faults of one module where it runs: by path, beside the modules it imports, in a Python of its own.
_TELL = """
import json, sys
sys.path.insert(0, sys.argv[1])
faults = __import__(sys.argv[2]).FAULTS
print(json.dumps([{"name": f.name, "does": f.does, "rules": f.rules, "lacks": f.lacks} for f in faults]))
"""


class NoFaultsRead(Exception):
    """An adapter's list of faults cannot be read. The message says whose, and why."""


@frozen
class Fault:
    """A fault that can be injected into a real engine. `lacks`: observations without which its adapter misses it."""

    engine: str
    name: str
    does: str
    rules: tuple[str, ...]
    lacks: tuple[str, ...] = ()


@frozen
class Trace:
    """One rule, and what shows it at work."""

    rule: Rule
    clauses: tuple[ClauseText, ...]
    exercised: Mapping[str, int]  # profile -> times the reference put it to the test and held it; 0 left out
    known_bad: tuple[type[KnownBad], ...]  # schedulers that break it
    alone: frozenset[str]  # the names of those that no other rule catches
    broken: tuple[Vector, ...]  # traces that break it, and nothing else
    kept: tuple[str, ...]  # the recorded traces these were made from, which keep it
    faults: tuple[Fault, ...]  # injected faults that it must name

    @property
    def missing(self) -> tuple[str, ...]:
        """What of `EVIDENCE` it has none of."""
        found = {
            "property": bool(self.exercised),
            "known-bad": bool(self.known_bad),
            "alone": bool(self.alone),
            "vector": bool(self.broken),
        }
        return tuple(name for name, there in found.items() if not there)


def injected() -> tuple[Fault, ...]:
    """The faults of every adapter that has a list of them. Needs no engine. Raises NoFaultsRead."""
    return tuple(fault for engine in ENGINES for fault in _faults(engine, ENGINE_SIDE / ENGINES[engine].child))


def _faults(engine: str, child: Path) -> Iterator[Fault]:
    # An adapter may have several lists: vLLM's KV connectors have theirs.
    for named in re.findall(r"^\s*from (\w+_faults) import ", child.read_text(encoding="utf-8"), re.MULTILINE):
        command = [sys.executable, "-I", "-c", _TELL, str(child.parent), named]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if told.returncode:
            raise NoFaultsRead(f"{named}.py: {told.stderr.strip().splitlines()[-1] if told.stderr else 'no answer'}")
        for fault in json.loads(told.stdout):
            yield Fault(engine, fault["name"], fault["does"], tuple(fault["rules"]), tuple(fault["lacks"]))


def traces(
    known: Evidence | None = None,
    shipped: Iterable[Vector] | None = None,
    faults: Iterable[Fault] | None = None,
    zoo: Iterable[type[KnownBad]] = ZOO,
) -> tuple[Trace, ...]:
    """Every rule, by family. Raises NoFaultsRead; OSError, ValueError if files that ship with us cannot be read."""
    known = known or evidence()
    shipped = tuple(vectors() if shipped is None else shipped)
    faults = tuple(injected() if faults is None else faults)
    zoo = tuple(zoo)
    return tuple(_trace(rule, known, shipped, faults, zoo) for rule in select(None))


def _trace(
    rule: Rule,
    known: Evidence,
    shipped: tuple[Vector, ...],
    faults: tuple[Fault, ...],
    zoo: tuple[type[KnownBad], ...],
) -> Trace:
    bad = tuple(v for v in zoo if v.rule == rule.id)
    broken = tuple(v for v in shipped if v.base and v.rules == (rule.id,))
    return Trace(
        rule,
        clauses(rule),
        {policy: n for policy in PROFILES if (n := known.exercised.get(policy, {}).get(rule.id, 0))},
        bad,
        frozenset(v.__name__ for v in bad if known.alone(v)),
        broken,
        tuple(dict.fromkeys(v.base for v in broken)),
        tuple(f for f in faults if rule.id in f.rules),
    )


def holes(found: Iterable[Trace], faults: Iterable[Fault]) -> Iterator[str]:
    """What is missing and not excused, and what is excused and not missing; faults that name no rule."""
    for trace in found:
        id, lacks, missing = trace.rule.id, trace.rule.lacks, trace.missing
        for what in missing:
            if what not in lacks:
                yield f"{id}: {_MEANS[what]}; find one, or say beside the rule why there can be none (lacks)"
        for what in lacks:
            if what not in missing:
                yield f"{id}: lacks {what!r} beside the rule, and has it"
            elif not lacks[what].strip():
                yield f"{id}: lacks {what!r} without a reason"
    for fault in faults:
        for rule in fault.rules:
            if rule not in RULES:
                yield f"{fault.engine}, fault {fault.name}: there is no rule {rule!r}"


_MEANS = {
    "property": "the reference never puts it to the test",
    "known-bad": "no known-bad scheduler breaks it",
    "alone": "no known-bad scheduler is caught by it alone",
    "vector": "no shipped trace breaks it",
}


def stale(known: Evidence, zoo: Iterable[type[KnownBad]] = ZOO) -> Iterator[str]:
    """Schedulers and rules that the file of evidence does not know, or that are gone."""
    names = {v.__name__ for v in zoo}
    for name in sorted(names ^ known.known_bad.keys()):
        what = "is not in" if name in names else "is gone, and still in"
        yield f"{name} {what} evidence.toml: renew it with `python -m preempt_properties.evidence`"
    if known.exercised.keys() != PROFILES.keys():
        yield "evidence.toml has other profiles: renew it with `python -m preempt_properties.evidence`"
