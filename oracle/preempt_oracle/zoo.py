"""The kill matrix: each known-bad scheduler, under each profile it can have, searched until the monitor names its rule.

The search knows what kind of engine it drives and nothing of the fault: the workloads are those that any engine gets,
drawn from a seed. Schedulers that are right are driven too, and must not be accused of anything. Each pair of a
scheduler and a profile is a task of its own; tasks run in `jobs` processes and every result is the same whatever the
number of these is, but for the seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

from attrs import frozen

from preempt_oracle.monitor import Monitor
from preempt_oracle.trace.convert import to_wire
from preempt_properties.catch import Judge, generated, shown
from preempt_properties.evidence import Evidence
from preempt_properties.known_bad import ZOO, KnownBad
from preempt_properties.known_bad.kinds import Kinds
from preempt_properties.known_bad.right import RIGHT
from preempt_spec import events as ev
from preempt_spec.micro import Malformed
from preempt_spec.policies.policy import Policy
from preempt_spec.rules import RULES, Violation

#: Processor seconds after which a search gives up. What is required: half of all searches end within `MEDIAN`.
WORST, MEDIAN = 30.0, 1.0
#: Workloads that a scheduler which is right must survive under each profile.
SURVIVED = 100
#: Seeds of two searches do not meet.
APART = 1_000_003


class NoSuchVariant(ValueError):
    """There is no group and no known-bad scheduler of this name."""


@frozen
class Kill:
    """How the search for one scheduler under one profile ended."""

    name: str
    policy: str
    rule: str  # that it must be named by; "" if it is right
    named: tuple[str, ...]  # the rules of its first accusation; none: it was not accused
    workloads: int  # played
    events: int  # judged
    seconds: float  # of processor time
    message: str  # of the accusation
    also: frozenset[str] = frozenset()  # rules that may name it in some workloads before its own does

    @property
    def fault(self) -> str:
        """Why this is not as it should be; "" if it is."""
        if not self.rule:
            return f"is right and was accused of {', '.join(self.named)}: {self.message}" if self.named else ""
        if not self.named:
            return f"was not caught in {self.workloads} workloads, {self.seconds:.0f} s"
        if self.rule not in self.named:
            return f"was accused of {', '.join(self.named)} and not of {self.rule}: {self.message}"
        return f"took {self.seconds:.1f} s, more than {WORST:g}" if self.seconds > WORST else ""


def monitor(header: ev.Header, policy: Policy) -> Judge:
    """The judge."""
    m = Monitor(header, policy)
    return lambda event: m.feed(to_wire(event))


def counting(count: list[int]) -> Callable[[ev.Header, Policy], Judge]:
    """The judge, and how many events it got."""

    def made(header: ev.Header, policy: Policy) -> Judge:
        look = monitor(header, policy)

        def counted(event: ev.Event) -> list[Violation]:
            count[0] += 1
            return look(event)

        return counted

    return made


def hunt(name: str, policy: str, seed: int) -> Kill:
    """Search for one scheduler under one profile. KeyError if there is no such scheduler."""
    variant = {v.__name__: v for v in (*ZOO, *RIGHT)}[name]
    began, events, n = time.process_time(), [0], 0
    judge = counting(events)
    while time.process_time() - began < WORST and (variant.rule or n < SURVIVED):
        try:
            broken = shown(variant, generated(variant, policy, seed * APART + n), judge)
        except Malformed as e:  # a stream that no engine could have written: the scheduler is no good example
            broken = [Violation("(malformed)", str(e))]
        n += 1
        rules = {v.rule for v in broken}
        if broken and (variant.rule in rules or not rules & variant.also):
            message = next((v.message for v in broken if v.rule == variant.rule), broken[0].message)
            return _kill(variant, policy, tuple(sorted(rules)), n, events[0], time.process_time() - began, message)
    return _kill(variant, policy, (), n, events[0], time.process_time() - began, "")


def _kill(
    variant: type[KnownBad], policy: str, named: tuple[str, ...], n: int, events: int, seconds: float, message: str
) -> Kill:
    return Kill(variant.__name__, policy, variant.rule, named, n, events, seconds, message, variant.also)


def chosen(only: Sequence[str], kinds: Kinds) -> list[type[KnownBad]]:
    """The known-bad schedulers of these groups (letter or name), rules, or names; all of them if `only` is empty.

    Raises NoSuchVariant.
    """
    wanted: dict[str, type[KnownBad]] = {}
    for word in only:
        found = [
            v
            for v in ZOO
            if word in (v.__name__, v.rule, kinds.letter(v.__name__)) or word.lower() == kinds.group(v).lower()
        ]
        if not found:
            groups = ", ".join(f"{letter} ({group})" for letter, group in kinds.groups.items())
            raise NoSuchVariant(f"{word!r} is neither a rule nor a known-bad scheduler nor a group: {groups}")
        wanted |= {v.__name__: v for v in found}
    return [v for v in ZOO if not only or v.__name__ in wanted]


def tasks(variants: Iterable[type[KnownBad]]) -> Iterator[tuple[str, str]]:
    """Each scheduler with each of its profiles."""
    for variant in variants:
        for policy in variant.policies:
            yield variant.__name__, policy


def matrix(todo: Sequence[tuple[str, str]], seed: int, jobs: int, tell: Callable[[Kill], None]) -> list[Kill]:
    """Do all of it, and tell of each when it is done. In the order of `todo`."""
    if jobs == 1:
        return [_told(hunt(name, policy, seed), tell) for name, policy in todo]
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    # Spawned: a fork would take along whatever threads the caller has.
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        futures = {pool.submit(hunt, name, policy, seed): (name, policy) for name, policy in todo}
        try:
            done = {futures[f]: _told(f.result(), tell) for f in as_completed(futures)}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [done[task] for task in todo]


def _told(kill: Kill, tell: Callable[[Kill], None]) -> Kill:
    tell(kill)
    return kill


@frozen
class Summary:
    """What all searches together say."""

    kills: tuple[Kill, ...]  # of known-bad schedulers
    right: tuple[Kill, ...]  # of those that are right

    @property
    def seconds(self) -> tuple[float, float]:
        """Median and worst, of the searches for known-bad schedulers."""
        all_of = [k.seconds for k in self.kills] or [0.0]
        return median(all_of), max(all_of)

    @property
    def workloads(self) -> tuple[float, int]:
        """Median and worst."""
        all_of = [k.workloads for k in self.kills] or [0]
        return median(all_of), max(all_of)

    @property
    def faults(self) -> list[str]:
        """What is not as it should be."""
        out = [f"{k.name}, {k.policy}: {k.fault}" for k in (*self.kills, *self.right) if k.fault]
        if (typical := self.seconds[0]) > MEDIAN:
            out.append(f"half of the searches took more than {typical:.1f} s; {MEDIAN:g} are allowed")
        return out


def summary(kills: Iterable[Kill]) -> Summary:
    """Of these searches."""
    kills = tuple(kills)
    return Summary(tuple(k for k in kills if k.rule), tuple(k for k in kills if not k.rule))


def unattended(evidence: Evidence, zoo: Iterable[type[KnownBad]] = ZOO) -> list[str]:
    """Rules that are needed by no known-bad scheduler, since others catch them all, and that do not say why."""
    needed = {v.rule for v in zoo if evidence.alone(v)}
    return [
        f"{r.id} is the only one to catch no known-bad scheduler, and does not say why (lacks)"
        for r in RULES.values()
        if r.id not in needed and "alone" not in r.lacks
    ]
