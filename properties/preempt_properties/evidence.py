"""Evidence that takes minutes to find and is kept in a file: `python -m preempt_properties.evidence` renews it.

Two things are kept in `evidence.toml`, and shown in docs/traceability.md. How often the reference puts each rule to the
test, per profile: it conforms, so each of those times the rule held. And of each known-bad scheduler whether its rule
is the only one that catches it: the rule's clauses are switched off, and the workloads played on behind the fault; is
anybody else heard? If so, the first to be heard is noted, with the workload, so that it can be looked at again.

What is new is added; `--all` computes everything afresh.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random

from attrs import evolve, frozen

from preempt_properties.catch import Judge, first_violation
from preempt_properties.known_bad import ZOO, KnownBad
from preempt_properties.play import header, play
from preempt_properties.workload import EVERYTHING, workload
from preempt_spec import events as ev
from preempt_spec.micro import Malformed
from preempt_spec.offload import reference
from preempt_spec.policies.policy import Oversize, Policy
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import OBSERVES
from preempt_spec.rules import Violation
from preempt_spec.state import initial
from preempt_spec.system import clauses, run

FILE = Path(__file__).with_name("evidence.toml")
PLAYED = 60  # workloads per profile, of the reference
WORKLOADS = 40  # per profile, of each known-bad scheduler

HEAD = f"""\
# Written by `python -m preempt_properties.evidence`; see there.
# Of each profile the workloads of seed 0 and up: {PLAYED} of the reference, {WORKLOADS} of each known-bad scheduler.
"""


@frozen
class Heard:
    """Another rule than its own by which a known-bad scheduler is caught: the first, in this workload."""

    rule: str
    policy: str
    seed: int


@frozen
class Evidence:
    """The content of the file."""

    exercised: Mapping[str, Mapping[str, int]]  # profile -> rule -> times the reference put it to the test, and held it
    known_bad: Mapping[str, Heard | None]  # name of a scheduler -> who else catches it; None: nobody

    def alone(self, variant: type[KnownBad]) -> bool:
        """Whether only its rule catches it."""
        return self.known_bad.get(variant.__name__, False) is None


def exercised(policy: str, workloads: int = PLAYED) -> Counter[str]:
    """How often the reference puts each rule to the test under a profile. AssertionError if it breaks one.

    Half of the workloads go to a scheduler whose contract it is to refuse what can never fit.
    """
    count: Counter[str] = Counter()
    active = clauses(OBSERVES)
    for seed in range(workloads):
        contract, can = PROFILES[policy].contract, EVERYTHING
        if seed % 2:
            contract, can = evolve(contract, oversize=Oversize.SCHEDULER), can | {"reject"}
        scenario = workload(Random(seed), policy, capabilities=can)
        head = header(scenario.config)
        state = initial(head, contract)
        for event in play(scenario, reference(head, contract)):
            outcome = run(state, event, active)
            if outcome.violations:
                raise AssertionError(f"{policy}, workload of seed {seed}: {outcome.violations}")
            count.update(outcome.exercised)
            state = outcome.state
    return count


def heard(variant: type[KnownBad], policy: str, seed: int) -> str:
    """The rule that catches it in this workload with its own rule switched off; "" if none does.

    A stream that makes no sense any more behind the fault, or that the transitions cannot follow, is caught by no rule.
    """
    active = {micro: tuple(row for row in rows if row[0] != variant.rule) for micro, rows in clauses(OBSERVES).items()}

    def pure(head: ev.Header, contract: Policy) -> Judge:
        states = [initial(head, contract)]

        def look(event: ev.Event) -> list[Violation]:
            outcome = run(states[-1], event, active)
            states[:] = [outcome.state]
            return list(outcome.violations)

        return look

    try:
        broken = first_violation(variant, policy, seed, pure)
    except (Malformed, LookupError, ValueError):
        return ""
    return min((v.rule for v in broken), default="")


def others(variant: type[KnownBad], workloads: int = WORKLOADS) -> Heard | None:
    """Who else catches it: the first, in the order of its profiles and of seeds."""
    for policy in variant.policies:
        for seed in range(workloads):
            if rule := heard(variant, policy, seed):
                return Heard(rule, policy, seed)
    return None


def load(file: Path = FILE) -> Evidence:
    """What the file holds. Raises OSError, ValueError, TypeError, KeyError: it ships with us."""
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    return Evidence(
        data["exercised"],
        {name: Heard(**found) if found else None for name, found in data["known-bad"].items()},
    )


def dumps(evidence: Evidence) -> str:
    """The file's content."""
    lines = [HEAD, "# Profile, rule: times."]
    for policy, counts in evidence.exercised.items():
        lines.append(f"[exercised.{policy}]")
        lines += [f'"{rule}" = {counts[rule]}' for rule in sorted(counts)]
        lines.append("")
    lines += ["# Known-bad scheduler: who else catches it, and in which workload; {}: nobody.", "[known-bad]"]
    for name, found in evidence.known_bad.items():
        inside = f' rule = "{found.rule}", policy = "{found.policy}", seed = {found.seed} ' if found else ""
        lines.append(f"{name} = {{{inside}}}")
    return "\n".join([*lines, ""])


def renewed(old: Evidence | None, zoo: Iterable[type[KnownBad]] = ZOO) -> Evidence:
    """Everything that is not in `old`; and the counts, which any change may change."""
    known = {} if old is None else old.known_bad
    return Evidence(
        {policy: dict(exercised(policy)) for policy in PROFILES},
        {v.__name__: known[v.__name__] if v.__name__ in known else others(v) for v in zoo},
    )


def main(arguments: list[str]) -> int:
    """Write the file."""
    if arguments not in ([], ["--all"]):
        print("usage: python -m preempt_properties.evidence [--all]", file=sys.stderr)
        return 2
    old = load() if FILE.is_file() and not arguments else None
    FILE.write_text(dumps(renewed(old)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
