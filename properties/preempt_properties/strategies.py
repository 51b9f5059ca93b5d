"""Hypothesis strategies: scenarios, played streams, and streams with something wrong in them.

Hypothesis only draws bytes; our own code decodes them, which is an order of magnitude faster than drawing every number
by itself. Bytes still shrink: fewer and smaller ones make a shorter and plainer workload.
"""

from __future__ import annotations

from random import Random
from typing import Any

from attrs import frozen
from hypothesis import strategies as st

from preempt_properties.corruption import Accept, corrupt, thin
from preempt_properties.drawn import Bytes
from preempt_properties.known_bad import ZOO, KnownBad
from preempt_properties.overlap import OVERLAP, overlapped
from preempt_properties.play import header, play
from preempt_properties.scenario import Scenario
from preempt_properties.workload import CAPABILITIES, workload
from preempt_spec import events as ev
from preempt_spec.offload import Offloading
from preempt_spec.policies.policy import Memory, Policy
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import OBSERVES, Reference


@frozen
class Stream:
    """A stream of events with all that a judge must know of it."""

    scenario: Scenario
    header: ev.Header
    policy: Policy
    events: tuple[ev.Event, ...]
    scheduler: str  # whose
    mutations: int


def scenarios(policy: str, capabilities: frozenset[str] = CAPABILITIES) -> st.SearchStrategy[Scenario]:
    """Workloads for the profile named `policy`."""
    return st.binary(min_size=48, max_size=400).map(
        lambda data: workload(Bytes(data), policy, capabilities=capabilities)
    )


def streams(policy: str, accept: Any, *, corrupted: bool = True) -> st.SearchStrategy[Stream]:
    """Streams under the profile named `policy`, some valid, most with a few mutations.

    Not only the reference's: known-bad schedulers reach states that no mutation of a valid stream reaches. `accept`
    makes an `Accept` from a header. Observations are all there, or a random subset; a fifth have two KV-cache groups.
    """
    return st.binary(min_size=64, max_size=600).map(lambda data: stream(Bytes(data), policy, accept, corrupted))


def stream(random: Random, policy: str, accept: Any, corrupted: bool = True) -> Stream:
    """One such stream, from any source of randomness."""
    scenario = workload(random, policy, capabilities=CAPABILITIES | {"ties"})
    if random.randrange(3):
        scenario = overlapped(random, scenario, OVERLAP)
    scheduler: type[Reference] = Reference
    contract = PROFILES[policy].contract
    variant: type[KnownBad] | None = random.choice(ZOO) if random.randrange(4) == 3 else None
    if variant is not None and policy in variant.policies:
        scenario = variant.scene(scenario)
        scheduler, contract = variant, variant.contract(contract)
    elif scenario.config.host_blocks and contract.memory is Memory.RECOMPUTE:
        scheduler = Offloading
    observes, every = OBSERVES, random.choice((1, 1, 2, 4, 12))  # of so many observations one is not made
    if every > 1:
        observes = frozenset(o for o in sorted(OBSERVES) if random.randrange(every))
    head = header(
        scenario.config,
        pages=(random.randint(1, 4),) if random.randrange(5) == 4 and not scenario.config.host_blocks else (),
        reserved=random.choice((0, 0, 1, 2)),
        observes=observes,
    )
    events = list(play(scenario, scheduler(head, contract)))
    mutations = 0
    if corrupted:
        if random.randrange(3) == 2:
            events = thin(random, events)
        mutations = random.choice((0, 1, 1, 1, 2, 3, 5))
        form: Accept = accept(head)
        events = corrupt(random, events, form, mutations)
    return Stream(scenario, head, contract, tuple(events), scheduler.__name__, mutations)
