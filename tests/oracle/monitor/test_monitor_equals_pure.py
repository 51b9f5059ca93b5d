"""The monitor equals the pure system, event by event: violations, exercise counts, malformed traces, and its state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings

from preempt_oracle.equality import drawn, lockstep, quiet, readable
from preempt_oracle.monitor.cohort import Cohort
from preempt_properties.overlap import overlapped
from preempt_properties.play import header, play
from preempt_properties.strategies import Stream, streams
from preempt_properties.workload import workload
from preempt_spec import events as ev
from preempt_spec.offload import Offloading
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.policies.visits import passes_over


@pytest.mark.profiles
@pytest.mark.parametrize("policy", PROFILES)
def test_same_judgement_of_valid_streams(policy: str):
    @settings(max_examples=15)
    @given(streams(policy, readable, corrupted=False))
    def check(s: Stream) -> None:
        lockstep(s)

    check()


@pytest.mark.profiles
@pytest.mark.parametrize("policy", PROFILES)
def test_same_slots(policy: str):
    for s in drawn(policy, range(15)):
        lockstep(s, slots=True)


@pytest.mark.profiles
@pytest.mark.parametrize("policy", PROFILES)
def test_same_answers(policy: str):
    """Whatever a clause might ask, asked of both: in streams that end in a violation, too."""
    for seed, s in enumerate(drawn(policy, range(100, 110))):
        lockstep(s, ask=Random(seed))
    for seed, s in enumerate(quiet(policy, range(100, 102))):
        assert lockstep(s, ask=Random(seed)) == "conforms"


@pytest.mark.slow
@pytest.mark.parametrize("policy", PROFILES)
def test_same_answers_in_many_streams(policy: str):
    for seed, s in enumerate(drawn(policy, range(20_000, 20_400))):
        lockstep(s, ask=Random(seed))


@pytest.mark.profiles
@pytest.mark.parametrize("policy", PROFILES)
def test_same_judgement_of_corrupted_streams(policy: str):
    @settings(max_examples=40)
    @given(streams(policy, readable))
    def check(s: Stream) -> None:
        lockstep(s)

    check()


@pytest.mark.long
def test_corrupted_streams_end_in_every_way():
    ends = Counter(lockstep(s) for policy in PROFILES for s in drawn(policy, range(30)))
    assert ends["conforms"] >= 30, ends
    assert ends["malformed"] >= 30, ends
    assert len(ends) >= 15, ends  # many rules are the first to be broken


#: Under the others, which make room behind a whole pass, all goes through the clauses.
SHORT = [p for p, profile in PROFILES.items() if not passes_over(profile.contract)]


@pytest.mark.profiles
@pytest.mark.parametrize("policy", SHORT)
def test_the_short_cuts_are_taken(policy: str, monkeypatch: pytest.MonkeyPatch):
    """What is proved equal above is the fast path too: it judges most steps, and all of its branches run."""
    taken: Counter[str] = Counter()

    def counting(name: str) -> None:
        method = getattr(Cohort, name)

        def wrapped(self: Cohort, *args: Any, **named: Any) -> Any:
            result = method(self, *args, **named)
            taken[name] += 1
            taken[f"{name} fast"] += result is not None
            return result

        monkeypatch.setattr(Cohort, name, wrapped)

    for name in ("step", "deliver", "_mixed", "_decode"):
        counting(name)
    for s in quiet(policy, range(20)):
        assert lockstep(s) == "conforms"
    assert taken["step fast"] >= 0.6 * taken["step"], taken
    assert taken["deliver fast"] >= 0.4 * taken["deliver"], taken
    assert taken["_mixed"] >= 0.1 * taken["step"], taken
    assert taken["_decode fast"] >= 0.05 * taken["step"], taken


class Keeping(Offloading):
    """As vLLM does: of who is cancelled while it loads all of the table stays pinned until the load is over."""

    leaks = False

    def abort(self, request: str) -> ev.Abort:
        copy = self.loaders.get(request)
        if copy is None:
            return super().abort(request)
        table = self.state.request(request).tables[0]
        if not self.leaks:
            self._do(ev.Pin(table))
        moving = self.moving[copy]
        self.moving[copy] = evolve(moving, device=() if self.leaks else table)
        told = super().abort(request)
        return evolve(told, blocks=((),), acts=() if self.leaks else (ev.Pin(table),))


class Leaking(Keeping):
    """It keeps them and says nothing of it."""

    leaks = True


def cancelled(scheduler: type[Keeping], seeds: Iterable[int]) -> Iterator[Stream]:
    """Streams in which somebody is cancelled while it loads behind a hit, whose pages no copy fills."""
    for seed in seeds:
        scenario = overlapped(Random(seed), workload(Random(seed), "vllm-fcfs"), frozenset({"offload"}))
        if not scenario.config.host_blocks:
            continue
        head, contract = header(scenario.config), PROFILES["vllm-fcfs"].contract
        events = tuple(play(scenario, scheduler(head, contract)))
        aborts = [n for n, e in enumerate(events) if isinstance(e, ev.Abort) and e.blocks == ((),)]
        if aborts:
            yield Stream(scenario, head, contract, events, scheduler.__name__, 0)


@pytest.mark.long
def test_who_is_cancelled_while_it_loads_may_keep_its_table():
    kept = [*cancelled(Keeping, range(1500))]
    assert len(kept) >= 10
    assert Counter(map(lockstep, kept)) == {"conforms": len(kept)}
    ends = Counter(map(lockstep, cancelled(Leaking, range(1500))))
    assert ends["edge/abort"], ends
    assert ends.keys() <= {"conforms", "edge/abort"}, "all that is kept may be what copies fill"


@pytest.mark.slow
@pytest.mark.parametrize("policy", PROFILES)
def test_same_judgement_of_thousands_of_streams(policy: str):
    for s in drawn(policy, range(10_000, 13_000)):
        lockstep(s)
