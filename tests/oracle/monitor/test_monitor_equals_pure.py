"""The monitor equals the pure system, event by event: violations, exercise counts, malformed traces, and its state."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings

from preempt_oracle.equality import drawn, lockstep, quiet, readable
from preempt_oracle.monitor.cohort import Cohort
from preempt_properties.strategies import Stream, streams
from preempt_spec.policies.profiles import PROFILES


@pytest.mark.parametrize("policy", PROFILES)
def test_same_judgement_of_valid_streams(policy: str):
    @settings(max_examples=15)
    @given(streams(policy, readable, corrupted=False))
    def check(s: Stream) -> None:
        lockstep(s)

    check()


@pytest.mark.parametrize("policy", PROFILES)
def test_same_slots(policy: str):
    for s in drawn(policy, range(15)):
        lockstep(s, slots=True)


@pytest.mark.parametrize("policy", PROFILES)
def test_same_judgement_of_corrupted_streams(policy: str):
    @settings(max_examples=40)
    @given(streams(policy, readable))
    def check(s: Stream) -> None:
        lockstep(s)

    check()


def test_corrupted_streams_end_in_every_way():
    ends = Counter(lockstep(s) for policy in PROFILES for s in drawn(policy, range(30)))
    assert ends["conforms"] >= 30, ends
    assert ends["malformed"] >= 30, ends
    assert len(ends) >= 15, ends  # many rules are the first to be broken


@pytest.mark.parametrize("policy", PROFILES)
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


@pytest.mark.slow
@pytest.mark.parametrize("policy", PROFILES)
def test_same_judgement_of_thousands_of_streams(policy: str):
    for s in drawn(policy, range(10_000, 13_000)):
        lockstep(s)
