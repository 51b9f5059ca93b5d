"""A handful of fixed scenarios that every engine should come through: does it start, and what can we see of it?"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve, frozen

from preempt_properties.scenario import Abort, Add, Config, Scenario, Step
from preempt_properties.workload import LEAST_PAGE
from preempt_spec.policies.policy import Gate, Need, Order
from preempt_spec.policies.profiles import PROFILES


@frozen
class Smoke:
    """One of them, and what it is for."""

    name: str
    scenario: Scenario


def smokes(config: Config, capabilities: frozenset[str]) -> Iterator[Smoke]:
    """The scenarios for an engine that started with `config`: its features are taken over, its sizes are not."""
    # Pages of two tokens, four blocks: two requests that both want the whole pool.
    # A gate that keeps some room for itself gets some more.
    more = 2 if PROFILES[config.policy].contract.gate is Gate.CONSERVATIVE else 0
    config = evolve(config, blocks=4 + more, page_size=2, max_running=4, budget=16, max_length=8)
    for smoke in _of_two(config, capabilities):
        yield evolve(smoke, scenario=_stretched(smoke.scenario, LEAST_PAGE.get(config.policy, 2)))


def _stretched(scenario: Scenario, page: int) -> Scenario:
    """The same with larger pages, for an engine that has no smaller ones: tokens grow alike."""
    k, c = page // 2, scenario.config
    if k <= 1:
        return scenario
    script = tuple(
        evolve(x, prompt=tuple(t for t in x.prompt for _ in range(k)), max_tokens=x.max_tokens * k)
        if isinstance(x, Add)
        else Step(x.count * k)
        if isinstance(x, Step) and x.count > 1
        else x
        for x in scenario.script
    )
    return evolve(
        scenario, config=evolve(c, page_size=page, budget=c.budget * k, max_length=c.max_length * k), script=script
    )


def _of_two(config: Config, capabilities: frozenset[str]) -> Iterator[Smoke]:
    a, b = Add("a", (1, 2, 3), 5), Add("b", (4, 5, 6), 5, arrival=1)
    yield Smoke("two requests outgrow the pool", Scenario(config, (a, b)))
    # One block each: the first two that grow each take the block of a victim, in the same step.
    ahead = PROFILES[config.policy].contract.need is Need.AHEAD  # a block has room for the token to come
    prompts = [(10 * i, 10 * i + 1)[: 1 if ahead else 2] for i in range(4)]
    four = tuple(Add(name, prompt, 4, arrival=i) for i, (name, prompt) in enumerate(zip("abcd", prompts, strict=True)))
    gated = PROFILES[config.policy].contract.gate is Gate.CONSERVATIVE
    few = evolve(config, blocks=5, max_length=6) if gated else config
    yield Smoke("four requests, two victims in a step", Scenario(few, four))
    yield Smoke("a request alone fills the pool", Scenario(config, (Add("a", (1, 2), 6),)))
    if "caching" in capabilities:
        cached = evolve(config, caching=True)
        same = (Add("a", (1, 2, 3, 4, 5), 3), Step(2), Add("b", (1, 2, 3, 4, 9), 3, arrival=2))
        yield Smoke("two requests share a prefix", Scenario(cached, same))
    if "abort" in capabilities:
        yield Smoke("a victim is cancelled", Scenario(config, (a, b, Step(4), Abort("b"), Step())))
        yield Smoke("a request is cancelled in flight", Scenario(config, (a, b, Step(), Abort("a", "flying"), Step())))
    if "priority" in capabilities and PROFILES[config.policy].contract.order is Order.PRIORITY:
        worse = Add("a", (1, 2, 3), 5, priority=5)
        yield Smoke("the better one comes last", Scenario(config, (worse, Step(), evolve(b, priority=1))))
