"""Larger workloads than the generator's: tens of blocks and requests, so that queues, prefixes and free lists are long.

The generator of `preempt_properties` keeps workloads small, because a rule that breaks should break in a few steps. A
prediction must hold in the thick of it as well. Inside vLLM's contract like those: a lone request fits the pool, and a
prompt leaves room for an output.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from preempt_properties.scenario import Abort, Add, Command, Config, Control, Deliver, Scenario, Step
from preempt_properties.timeline import chance
from preempt_spec.policies.policy import Order
from preempt_spec.policies.profiles import PROFILES

MOST_BLOCKS = 60  # an adapter reads the free list of pools of up to 64


def large(random: Random, policy: str) -> Scenario:
    """A workload under this policy, in no particular mode."""
    page, blocks, running = random.choice((1, 2, 4, 8, 16)), random.randint(12, MOST_BLOCKS), random.randint(4, 16)
    longest = min(blocks * page, random.choice((40, 80, 120)))
    budget = max(running, random.choice((16, 32, 64, longest + running)))
    config = Config(policy, blocks, page, running, budget, longest)
    return Scenario(config, tuple(_script(random, config)))


def _script(random: Random, config: Config) -> Iterator[Command]:
    ordered = PROFILES[config.policy].contract.order is Order.PRIORITY
    texts = [[random.randrange(5) for _ in range(2 * config.max_length)] for _ in range(3)]
    names = [f"r{i}" for i in range(random.randint(10, 30))]
    random.shuffle(names)  # ties in a priority queue go by id
    salted, resets, arrival = chance(random, 40), chance(random, 30), 0
    for i, name in enumerate(names):
        length = random.randint(1, min(config.max_length - 1, random.choice((8, 30, 80))))
        text, first = random.choice(texts), random.choice((0, 0, 0, config.page_size))
        arrival += random.choice((0, 0, 1, 2))  # a clock that stands still makes ties
        yield Add(
            name,
            tuple((text[first:] + text[:first])[:length]),
            random.randint(1, config.max_length - length),
            random.choice((0, 0, 1, 2)) if ordered else 0,
            arrival,
            random.choice(("", "s")) if salted else "",
        )
        if chance(random, 40):
            yield Step(random.randint(1, 4))
        if chance(random, 8):
            yield Abort(names[random.randrange(i + 1)], random.choice(("before", "flying")))
        if resets and chance(random, 10):
            yield Control("reset")
        if chance(random, 10):
            yield Deliver()
