"""A batch that is granted tokens together, or not at all: who goes, who stays where, where a victim waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from preempt_spec import events as ev
from preempt_spec.micro import Malformed
from preempt_spec.policies import admission, pressure, queues, victims
from preempt_spec.state import State
from preempt_spec.system import apply
from preempt_spec.transition import apply_micro
from preempt_spec.view import Place

At = Callable[..., State]
POLICY = "sglang-retract"


def rows(*lengths: tuple[int, int]) -> dict[str, dict[str, Any]]:
    """Running requests a, b, c … of these (prompt, known)."""
    return {n: {"prompt": p, "known": k, "computed": k - 1} for n, (p, k) in zip("abcdef", lengths, strict=False)}


VICTIMS = [
    # (prompt, known) of a, b, c → victim, who stays, in order
    ([(4, 6), (4, 5), (4, 7)], "b", "ca"),  # the fewest outputs; most outputs first
    ([(4, 6), (6, 8), (5, 7)], "b", "ac"),  # of equals the longest prompt; the shortest first
    ([(4, 6), (4, 6), (4, 6)], "c", "ab"),  # of those the last position; as they were
    ([(2, 8), (9, 10)], "b", "a"),
    ([(9, 10), (2, 8)], "a", "b"),  # the requester itself
]


@pytest.mark.parametrize(("lengths", "victim", "stay"), VICTIMS)
def test_the_least_is_lost(at: At, lengths: Any, victim: str, stay: str):
    s = at(POLICY, running=rows(*lengths), max_length=20)
    assert victims.victim(s, "a") == victim
    left = apply_micro(s, ev.Demote(victim, 0, "growth", s.running))
    assert left.running == tuple(stay)
    assert apply_micro(evolve(s, policy=at().policy), ev.Demote(victim, 0, "growth", s.running)).running == tuple(
        r for r in s.running if r != victim
    )


def test_the_only_one_never_goes(at: At):
    s = at(POLICY, running=rows((4, 6)))
    assert victims.eligible(s, "a") == ()
    assert victims.victim(s, "a") is None


def test_all_fit_or_none_does(at: At):
    """Each of two lacks a page, and one is free: neither of them may have it."""
    full = {"prompt": 2, "known": 3, "computed": 2}
    s = at(POLICY, running={"a": {**full, "table": (0,)}, "b": {**full, "table": (1,)}}, blocks=3)
    assert not pressure.fits(s, "a")
    assert not pressure.fits(s, "b")
    assert pressure.squeeze(s, "a") == (2, 1)
    assert pressure.beneficiaries(s, "b") == ("a", "b")
    served = evolve(s, plan=evolve(s.plan, granted={"a": (2, 1)}))
    assert pressure.squeeze(served, "b") == (1, 1)
    assert pressure.fits(served, "b")
    alone = at("nano-vllm", running={"a": {**full, "table": (0,)}, "b": {**full, "table": (1,)}}, blocks=3)
    assert pressure.fits(alone, "a")
    assert pressure.beneficiaries(alone, "b") == ("b",)


def test_one_trigger_is_for_the_same_until_it_is_over(at: At):
    s = at(POLICY, running=rows((2, 3), (2, 3)), plan={"served": ("a", "b", "c")})
    assert pressure.beneficiaries(s, "a") == ("a", "b", "c")
    assert pressure.beneficiaries(evolve(s, plan=evolve(s.plan, served=())), "a") == ("a", "b")


def test_a_victim_waits_behind_everybody(at: At):
    s = at(POLICY, waiting={"x": {}, "y": {}}, running=rows((2, 3)))
    assert queues.requeue_at(s, "a") == queues.enqueue_at(s, "a") == 2


def test_the_gate_keeps_a_page_while_somebody_runs(at: At):
    assert admission.kept_back(at(POLICY, running=rows((2, 3)))) == 1
    assert admission.kept_back(at(POLICY, waiting={"x": {}})) == 0
    assert admission.kept_back(at("nano-vllm", running=rows((2, 3)))) == 0


# -- what is computed twice is kept once ------------------------------------------------------------------------------


def twins(after: Callable[..., State]) -> State:
    """Two requests of one prompt have computed it both, in blocks 0, 1 and 2, 3."""
    a, b = (ev.Arrive(r, (1, 2, 3, 4), 4) for r in "ab")
    deltas = (ev.Delta("a", 0, (0, 1)), ev.Delta("b", 0, (2, 3)))
    step = ev.Step(0, ("a", "b"), (4, 4), (0, 0), deltas)
    return after(a, b, step, ev.Deliver(0, ("a", "b"), ((7,), (7,))), policy=POLICY, frames=1, caching=True)


def test_what_was_computed_twice_is_kept_once(after: Callable[..., State]):
    s = apply_micro(twins(after), ev.Exchange("b", (2, 3), (0, 1)))
    assert s.request("b").tables == ((0, 1),)
    assert s.shared(0) == {0: 2, 1: 2}
    assert s.free_ids(0) == {2, 3, 4, 5, 6, 7}
    assert s.request("b").sent == twins(after).request("b").sent, "the worker is to be told"
    assert s.covered("b", 4, 4) == 4


def test_what_is_not_in_the_table_is_not_exchanged(after: Callable[..., State]):
    s = twins(after)
    assert apply_micro(s, ev.Exchange("b", (5,), (0,))).request("b").tables == s.request("b").tables


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (ev.Exchange("b", (2,), ()), "0 blocks for 1"),
        (ev.Exchange("b", (2,), (8,)), "the pool of group 0 has 8 blocks"),
        (ev.Exchange("b", (9,), (0,)), "the pool of group 0 has 8 blocks"),
        (ev.Exchange("x", (2,), (0,)), "x is not live"),
    ],
)
def test_an_exchange_that_makes_no_sense(after: Callable[..., State], act: ev.Exchange, why: str):
    with pytest.raises(Malformed, match=why):
        apply(twins(after), ev.Step(1, acts=(act,)))


def test_a_wrong_page_taken_over_is_read(after: Callable[..., State]):
    s = apply(
        twins(after), ev.Step(1, ("b",), (1,), (4,), (ev.Delta("b", 0, (4,)),), acts=(ev.Exchange("b", (2,), (1,)),))
    )
    assert s.request("b").place is Place.RUNNING
    assert s.covered("b", 4, 5) == 0
