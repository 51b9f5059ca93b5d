"""What is swapped crosses the link twice: out when its request is preempted, in when it comes back. Bytes are counted.

The number is that of the cost model: with a round trip a swap moves 2 x KV bytes.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from attrs import evolve

from preempt_properties.play import header, play
from preempt_properties.scenario import Scenario, loads
from preempt_properties.workload import CAPABILITIES, workload
from preempt_spec import events as ev
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import OBSERVES, Reference
from preempt_spec.state import State, initial, needed_pages
from preempt_spec.system import clauses, run

POLICY = "vllm-v0-swap"
ACTIVE = clauses(OBSERVES)
#: Bytes of a page of tokens, and of a recurrent state: any numbers will do that no sum of others makes up.
BYTES = {"full": 4_096, "sliding": 1_000_003, "recurrent": 70_000_027}


def page_bytes(state: State, group: int) -> int:
    """Bytes of a block of a group."""
    kind = state.groups[group].kind
    return BYTES[kind] * (1 if kind == "recurrent" else state.groups[group].page_size)


def kv_bytes(state: State, request: str) -> int:
    """Bytes of what it takes to go on where a request is, block by block, in every group."""
    computed = state.request(request).computed
    return sum(len(needed_pages(group, computed)) * page_bytes(state, g) for g, group in enumerate(state.groups))


def trips(scenario: Scenario) -> tuple[Counter[str], list[tuple[int, int, int]]]:
    """Plays a scenario. Bytes out and in; and, per request that came back: its KV bytes, those out and those in."""
    policy = PROFILES[POLICY].contract
    head = header(scenario.config)
    state = initial(head, policy)
    total: Counter[str] = Counter()
    there: dict[str, tuple[int, int]] = {}  # swapped: KV bytes, bytes out
    back = []
    for event in play(scenario, Reference(head, policy)):
        for act in event.acts if isinstance(event, ev.Step) else ():
            if isinstance(act, ev.Swap):
                moved = sum(page_bytes(state, g) for *_, g in act.blocks)
                total[act.direction] += moved
                if act.direction == "out":
                    there[act.request] = kv_bytes(state, act.request), moved
                else:
                    back.append((*there.pop(act.request), moved))
        if isinstance(event, ev.Abort | ev.Finish):
            there.pop(event.request, None)
        outcome = run(state, event, ACTIVE)
        assert outcome.violations == ()
        state = outcome.state
    return total, back


SEED = '''
policy = "vllm-v0-swap"
blocks = 4
page_size = 4
max_running = 2
budget = 16
max_length = 16
chunked = false
host_blocks = 4
script = """
add a prompt=1,2,3,4,5,6,7 max=6
add b prompt=11,12,13,14,15,16,17 max=4
"""
'''


def test_a_victim_crosses_the_link_out_and_in():
    """b has computed 8 tokens in 2 pages of 4 when a needs a third page: 2 pages go out, 2 come back."""
    page = 4 * BYTES["full"]
    total, back = trips(loads(SEED))
    assert back == [(2 * page, 2 * page, 2 * page)]
    assert total == {"out": 2 * page, "in": 2 * page}
    assert total.total() == 2 * (2 * page)


def test_without_room_in_the_host_nothing_crosses():
    for host in ("host_blocks = 1", ""):
        assert trips(loads(SEED.replace("host_blocks = 4", host))) == (Counter(), [])


@pytest.mark.parametrize("groups", ["full", "full+sliding+recurrent"])
def test_every_round_trip_moves_twice_the_kv(groups: str):
    many = 0
    for seed in range(30):
        scenario = workload(Random(seed), POLICY, capabilities=CAPABILITIES | {"host", "reset"})
        config = evolve(scenario.config, groups=groups, caching=False)
        total, back = trips(evolve(scenario, config=evolve(config, host_blocks=config.max_running * config.blocks)))
        for kv, out, into in back:
            assert out == into == kv
            assert out + into == 2 * kv
        many += len(back)
        assert total["in"] == sum(into for *_, into in back)
        assert total["out"] >= total["in"]  # who is cancelled while it is swapped never comes back
    assert many >= 20
