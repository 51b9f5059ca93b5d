"""When things happen in a workload: bursts of arrivals, cancellations at their moments, steps between."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from preempt_properties.scenario import Abort, Add, Command, Config, Step
from preempt_spec.policies.blocks import blocks_for


def chance(random: Random, percent: int) -> bool:
    """True that often."""
    return random.randrange(100) < percent


def script(
    random: Random, config: Config, adds: list[Add], can: frozenset[str], *, late: bool = False
) -> Iterator[Command]:
    """Arrivals in bursts, cancellations at their moments, steps between. What is left over runs to its end.

    `late`: some come behind others for sure.
    """
    when = _bursts(random, adds, late)
    todo: list[tuple[int, Command]] = [*zip(when, adds, strict=True)]
    todo += _aborts(random, config, when, adds, can)
    now = 0
    for at, command in sorted(todo, key=lambda x: x[0]):  # stable: an abort comes behind the arrivals of its moment
        if at > now:
            yield Step(at - now)
        now = max(now, at)
        yield command
        if isinstance(command, Abort) and command.when == "flying":
            yield Step()
            now += 1


def _bursts(random: Random, adds: list[Add], late: bool) -> list[int]:
    """The step before which each request arrives: all at once, or some and then the others."""
    if late:
        first = random.randint(1, len(adds) - 1)
    else:
        first = random.randint(1, len(adds)) if chance(random, 40) else len(adds)
    at, when = 0, [0] * first
    while len(when) < len(adds):
        at += random.choice((1, 1, 2, 3))
        when += [at] * random.randint(1, 3)
    return when[: len(adds)]


def _aborts(
    random: Random, config: Config, when: list[int], adds: list[Add], can: frozenset[str]
) -> Iterator[tuple[int, Command]]:
    if "abort" not in can or not chance(random, 45):
        return
    arrival = {a.request: at for a, at in zip(adds, when, strict=True)}
    out = forecast(config, when, adds)
    again = {a.request: a for a in adds}
    for _ in range(random.randint(1, 2)):
        if out and chance(random, 70):
            at, request = random.choice(out)  # a victim, while it waits
        else:
            request = random.choice(adds).request
            at = arrival[request] + random.randrange(8)
        if request not in again:
            continue
        # Over once, it is not cancelled again: the id may stand for another request by then.
        add = again.pop(request)
        flying = chance(random, 30)
        yield at, Abort(request, "flying" if flying else "before")
        if not flying and "reuse" in can and chance(random, 20):
            yield at, add


def forecast(config: Config, when: list[int], adds: list[Add]) -> list[tuple[int, str]]:
    """(step, request): who will wait as a victim before which step, roughly. Blocks are counted, nothing else.

    Aims cancellations; a wrong guess only makes a duller workload.
    """
    size = {a.request: len(a.prompt) for a in adds}
    full = {a.request: len(a.prompt) + a.max_tokens for a in adds}
    waiting: list[str] = []
    running: list[str] = []
    victims: set[str] = set()
    out: list[tuple[int, str]] = []

    def held() -> int:
        return sum(blocks_for(size[r], config.page_size) for r in running)

    for step in range(max(when) + 2 * config.max_length):
        waiting += [a.request for a, at in zip(adds, when, strict=True) if at == step]
        out += [(step, r) for r in waiting if r in victims]
        crowded = False
        for r in [*running]:
            if r in running:
                size[r] += 1
                while held() > config.blocks and running:
                    waiting.insert(0, running.pop())
                    victims.add(waiting[0])
                    crowded = True
        running = [r for r in running if size[r] < full[r]]
        while waiting and not crowded and len(running) < config.max_running:
            if held() + blocks_for(size[waiting[0]], config.page_size) > config.blocks:
                break
            running.append(waiting.pop(0))
    return out
