"""The blocks of one group, one change at a time; what their slots hold; what a frame in flight owes."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import frozen

from preempt_oracle.monitor.content import range_holds
from preempt_oracle.monitor.flight import Flight
from preempt_oracle.monitor.memory import Memory
from preempt_oracle.monitor.shadow import Shadow
from preempt_spec import events as ev
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import OBSERVES
from preempt_spec.view import Due

pytestmark = pytest.mark.as_written  # an Owner is no request


@frozen(eq=False)
class Owner:
    """What the memory knows of a request."""

    tokens: list[int]
    salt: str = ""


def memory(reserved: int = 0) -> Memory:
    """Six blocks of two slots."""
    return Memory(ev.Group("full", "full", 2), 6, reserved)


A: Any = Owner([1, 2, 3, 4])


def test_what_a_copy_fills_is_not_free_whoever_has_it():
    m = memory()
    m.hand_out((0,), A)
    m.filled(0)
    m.filled(1)
    assert m.nfree == len(m.free_ids()) == 4
    m.arrived(0)
    m.arrived(1)
    assert m.nfree == len(m.free_ids()) == 5


@pytest.mark.parametrize(
    ("blocks", "fresh"), [((1, 5), True), ((1, 6), False), ((0, 1), False), ((2, 3), False), ((1, 1), False)]
)
def test_which_blocks_may_be_handed_out_together(blocks: tuple[int, ...], fresh: bool):
    m = memory(reserved=1)
    m.hand_out((2,), A)
    assert m.fresh(blocks) is fresh


def test_a_block_of_the_engines_own_is_never_free():
    m = memory(reserved=1)
    m.take_all((0, 1), A)
    assert m.nfree == len(m.free_ids()) == 4
    m.give_all((0, 1), A)
    assert m.nfree == len(m.free_ids()) == 5


def test_who_gave_blocks_back_owns_them_no_more():
    m = memory()
    m.pin(5)
    m.hand_out((0, 1), A)
    m.give_all((0, 1), A)
    assert m.owner == [None] * 6


def test_a_write_is_seen_by_others_who_hold_the_block():
    m = memory()
    m.hand_out((0,), A)
    assert not m.write(0, A, 0, 0, 1)
    m.take(0)
    assert m.write(0, A, 0, 1, 2)


def test_a_page_may_be_written_in_pieces():
    pieces = ((A.tokens, "", 1, 3, 4), (A.tokens, "", 1, 2, 3))
    assert range_holds(pieces, 2, A.tokens, "", 2, 4)
    assert not range_holds(pieces[:1], 2, A.tokens, "", 2, 4)


def test_what_a_frame_owes_whoever_decodes_steadily():
    flight = Flight(("a", "b"), {}, [[], []], [], 9, (-5, -1), 4)
    assert [flight["a"], flight["b"]] == [Due(1, 4, 1, 4), Due(1, 8, 1, 4)]


FULL, SLIDING, STATE = ev.Group("f", "full", 2), ev.Group("w", "sliding", 2, 4), ev.Group("r", "recurrent", 2)


@pytest.mark.parametrize(
    ("groups", "drafts", "policy", "simple"),
    [
        ((FULL,), 0, "vllm-fcfs", True),
        ((SLIDING,), 0, "vllm-fcfs", False),
        ((STATE,), 0, "vllm-fcfs", False),
        ((FULL, FULL), 0, "vllm-fcfs", False),
        ((FULL,), 1, "vllm-fcfs", False),
        ((FULL,), 0, "hf-cb", False),
    ],
)
def test_what_the_short_cuts_know(groups: tuple[ev.Group, ...], drafts: int, policy: str, simple: bool):
    pools = tuple(ev.Pool(ev.DEVICE, g, 8) for g in range(len(groups)))
    head = ev.Header("test", "", policy, ev.Limits(4, 16, 12, drafts=drafts), groups, pools, OBSERVES)
    assert Shadow(head, PROFILES[policy].contract).simple is simple
