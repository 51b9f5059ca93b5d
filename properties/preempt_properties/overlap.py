"""What a workload may have beyond one frame at a time: frames in flight, drafts, resets, a host tier, more groups.

Drawn behind everything else, so that the workload of a seed stays what it is for an engine that can do none of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from attrs import evolve

from preempt_properties.scenario import GROUPS, Abort, Add, Command, Config, Control, Deliver, Scenario, Step
from preempt_properties.timeline import chance
from preempt_spec.policies.policy import Memory, Phase, Release
from preempt_spec.policies.profiles import PROFILES

#: Names of these capabilities: `frames` (several in flight), `drafts` (speculative decoding), `reset` (of all KV, with
#: everybody who runs preempted), `pause`, `host` (a tier that victims are swapped to), `groups` (sliding, recurrent),
#: `offload` (a host cache, filled and read by copies that no frame waits for).
OVERLAP = frozenset({"frames", "drafts", "reset", "pause", "host", "groups", "offload"})


def overlapped(random: Random, scenario: Scenario, can: frozenset[str]) -> Scenario:
    """The scenario, with some of what `can` allows."""
    config = scenario.config
    contract = PROFILES[config.policy].contract
    # The engines that prefill first fly one frame at a time.
    if "frames" in can and contract.phase is Phase.MIXED and chance(random, 60):
        config = evolve(config, frames=random.choice((2, 2, 3, 3, 4)))
    if "drafts" in can and chance(random, 30):
        # A grant with all its drafts fits the budget and the cap on prefills: where it does not, vLLM 0.31.0 and 0.33.0
        # starve a request or fail an assertion (docs/findings.md), and every campaign would end there.
        most = min(config.budget, config.long_prefill or config.budget) - 1
        config = evolve(config, drafts=max(0, min(random.randint(1, 3), most)))
    # Who waits with its table would be told of it with the holes of its window: a lazy release is for one group.
    if "groups" in can and contract.release is Release.AT_ONCE and chance(random, 30):
        # No cache: a state is overwritten where pages would be shared.
        kinds = GROUPS[1:2] if config.drafts else GROUPS[1:]  # drafts and recurrent states are not judged together
        config = evolve(config, groups=random.choice(kinds), caching=False)
    if "offload" in can and contract.phase is Phase.MIXED and config.groups == "full" and chance(random, 30):
        config = evolve(config, host_blocks=max(1, _host(random, config)), caching=True, whole_fit=True)
    if "host" in can and contract.memory is Memory.SWAP:
        config = evolve(config, host_blocks=_host(random, config))
    script = tuple(_script(random, config, scenario.script, can))
    return evolve(scenario, config=config, script=script)


def _host(random: Random, config: Config) -> int:
    """None at all, too few for one victim, enough for some, enough for all."""
    return random.choice((0, random.randint(1, 3), config.blocks, config.max_running * config.blocks))


def _script(random: Random, config: Config, script: tuple[Command, ...], can: frozenset[str]) -> Iterator[Command]:
    resets = "reset" in can and chance(random, 40)
    pauses = "pause" in can and chance(random, 20)
    flies = config.frames > 1
    aborted: set[str] = set()
    for command in script:
        if isinstance(command, Abort):
            aborted.add(command.request)
        if isinstance(command, Add) and command.request in aborted and flies:
            continue  # an id is free again only once nothing flies for it
        if not isinstance(command, Step):
            yield command
            continue
        for _ in range(command.count):
            yield Step()
            yield from _between(random, resets, pauses, flies)
    # Most of a run comes behind its script.
    for _ in range(random.randint(3, 8) if resets or pauses or flies else 0):
        yield Step(random.randint(1, 4))
        yield from _between(random, resets, pauses, flies)


def _between(random: Random, resets: bool, pauses: bool, flies: bool) -> Iterator[Command]:
    if resets and chance(random, 12):
        yield Control("reset")
    if pauses and chance(random, 8):
        yield from (Control("pause"), Step(random.randint(1, 2)), Control("resume"))
    if flies and chance(random, 12):
        yield Deliver()
