"""Crowds: scenarios in which many requests decode together for long, and outgrow the pool together. Pure.

What `workload` draws is small, for states that are rare to be frequent. Where whole columns of a step are looked at,
there must be columns.
"""

from __future__ import annotations

from random import Random
from typing import Any

from preempt_properties.scenario import Abort, Add, Config, Scenario, Step
from preempt_spec.policies.policy import Memory, Phase
from preempt_spec.policies.profiles import PROFILES


def crowded(random: Random, policy: str) -> Scenario:
    """Of 12 to 24 requests, none of which outgrows the pool alone."""
    page, running = random.choice((1, 2, 3, 4)), random.randint(8, 20)
    first = PROFILES[policy].contract.phase is Phase.PREFILL_FIRST
    swaps = PROFILES[policy].contract.memory is Memory.SWAP
    length = random.randint(20, 32)
    chunked = not first and random.random() < 0.7
    config = Config(
        policy=policy,
        blocks=running * length // page // 3,
        page_size=page,
        max_running=running,
        budget=running + random.randint(4, 12) if chunked else running * length,
        max_length=length,
        chunked=chunked,
        caching=random.random() < 0.5,
        frames=1 if first else random.choice((1, 2, 3)),
        host_blocks=running * length // page // 6 if swaps else 0,
    )
    chunk = tuple(random.randrange(5) for _ in range(8))
    script: list[Any] = []
    for n in range(running + 4):
        own = tuple(random.randrange(5) for _ in range(random.randint(1, 6)))
        prompt = chunk + own if random.random() < 0.5 else own
        script.append(Add(f"r{n}", prompt, random.randint(6, length - len(prompt)), random.randrange(3), n // 2))
        if n > running // 2:
            script.append(Step(random.randint(1, 3)))
    for n in random.sample(range(running), 2):
        script += [Step(random.randint(1, 4)), Abort(f"r{n}")]
    return Scenario(config, tuple(script))
