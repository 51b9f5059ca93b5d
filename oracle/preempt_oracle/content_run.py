"""Drive an engine that runs its model, round by round, and compare what it did (`content`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import msgspec
from attrs import evolve, frozen

from preempt_oracle.adapters.protocol import HarnessError, Transport
from preempt_oracle.content import Comparison, Image, Round, Said, Trip
from preempt_oracle.engines.environments import Environment
from preempt_oracle.inject import Fault
from preempt_properties.scenario import Add

#: Engine -> the program that runs its model.
CHILDREN: Mapping[str, str] = {"transformers": "transformers_content_child.py"}
PAGE, VOCABULARY = 4, 250


@frozen
class Sizes:
    """A round: requests, and too few blocks for them."""

    requests: tuple[Add, ...]
    blocks: int
    running: int
    budget: int
    host_blocks: int
    sharing: bool = False

    @property
    def config(self) -> dict[str, Any]:
        """As the engine is told."""
        longest = max(len(a.prompt) + a.max_tokens for a in self.requests)
        sizes = {"blocks": self.blocks, "page_size": PAGE, "max_running": self.running, "budget": self.budget}
        return {**sizes, "max_length": longest, "host_blocks": self.host_blocks, "caching": self.sharing}


def sizes(seed: int, sharing: bool = False) -> Sizes:
    """The round of a seed: five to nine requests that outgrow a pool in which the longest fits alone.

    `sharing`: they begin alike, with two pages and a bit, and one may find what another computed.
    """
    random = Random(seed)
    requests = []
    for i in range(random.randint(5, 9)):
        prompt = tuple(random.randrange(1, VOCABULARY) for _ in range(random.randint(2, 14)))
        requests.append(Add(f"r{i}", prompt, random.randint(8, 26)))
    need = max(-(-(len(a.prompt) + a.max_tokens) // PAGE) for a in requests)
    blocks = need + random.randint(1, 5)
    # A pool for all of them: one that is nearly full makes 5.23.0 raise (docs/findings.md). Sometimes none.
    host = 0 if random.randrange(6) == 0 else blocks * len(requests)
    running = random.randint(3, len(requests))
    budget = running + random.choice((4, 8, 40))
    if sharing:
        common = tuple(random.randrange(1, VOCABULARY) for _ in range(2 * PAGE + 1))
        requests = [evolve(a, prompt=common + a.prompt) for a in requests]
        blocks += 3
        host *= 2
    return Sizes(tuple(requests), blocks, running, budget, host, sharing)


def play(transport: Transport, seed: int, fault: str | None = None, sharing: bool = False) -> tuple[Round, int]:
    """One round. With `fault`, also how often it acted. Raises HarnessError."""
    chosen = sizes(seed, sharing)
    if fault:
        chosen = evolve(chosen, host_blocks=chosen.blocks * len(chosen.requests))
    options = {} if fault is None else {"fault": fault}
    number = iter(range(1, 1 << 30))

    def ask(do: str, **fields: Any) -> dict[str, Any]:
        reply = transport.exchange({"id": next(number), "do": do, **fields})
        if reply.get("event") in ("engine_error", "refused"):
            what = reply.get("message") or reply.get("reason")
            raise HarnessError(f"{transport.name}, round of seed {seed}: {do}: {what} ({reply.get('where', '')})")
        return reply

    ask("start", config={**chosen.config, "options": options})
    for add in chosen.requests:
        ask("add", request=add.request, prompt=list(add.prompt), max_tokens=add.max_tokens)
    reply = ask("step")
    fired = reply.get("fired", 0)
    ask("stop")
    try:
        return read(seed, reply), fired
    except (KeyError, TypeError, ValueError) as e:
        raise HarnessError(f"{transport.name}, round of seed {seed}: not a round: {e!r}") from None


def read(seed: int, reply: Mapping[str, Any]) -> Round:
    """A reply as a round. Raises KeyError, TypeError or ValueError if it is none."""

    def image(told: Mapping[str, Any]) -> Image:
        return Image(told["tokens"], {part: tuple(digests) for part, digests in told["parts"].items()})

    def said(told: Mapping[str, Any]) -> dict[str, Said]:
        return {r: Said(tuple(x["tokens"]), tuple(x["best"]), tuple(x["margins"])) for r, x in told.items()}

    trips = tuple(
        Trip(t["request"], image(t["out"]), None if t["back"] is None else image(t["back"])) for t in reply["trips"]
    )
    streams = said(reply["pressed"]), said(reply["unpressed"])
    return Round(seed, trips, *streams, reply["recomputed"], reply.get("hits", 0))


def compare(
    transport: Transport, seed: int, victims: int, note: Callable[[Comparison], None], sharing: bool = False
) -> Comparison:
    """Rounds until so many victims came back, or something is wrong. Raises HarnessError."""
    out = Comparison()
    most = 20 + victims  # a round nearly always has several
    for i in range(most):
        if out.victims >= victims or out.violations:
            break
        out.add(play(transport, seed + i, sharing=sharing)[0])
        note(out)
    return out


@frozen
class Caught:
    """What became of a fault that was put into the engine."""

    fault: Fault
    fired: int
    rules: tuple[str, ...]  # that spoke, in the first round in which any did
    message: str
    rounds: int

    @property
    def rightly(self) -> bool:
        """Whether the intended rule spoke, and none that has no business here."""
        may = {*self.fault.rules, *self.fault.also}
        return bool(self.rules) and {*self.rules} <= may and bool({*self.rules} & {*self.fault.rules})


def injected(transport: Transport, seed: int, rounds: int = 12) -> Iterator[Caught]:
    """Each fault of the engine's content adapter, through rounds until a rule speaks. Raises HarnessError."""
    head = transport.exchange({"id": 0, "do": "start", "config": {**sizes(seed).config, "options": {"fault": ""}}})
    for fault in msgspec.convert(head.get("faults", []), list[Fault]):
        fired, out = 0, Comparison()
        for i in range(rounds):
            round, acted = play(transport, seed + i, fault.name)
            fired += acted
            out.add(round)
            if out.violations:
                break
        rules = tuple(dict.fromkeys(v.rule for _, v in out.violations))
        yield Caught(fault, fired, rules, out.violations[0][1].message if out.violations else "", out.rounds)


def command(environment: Environment) -> list[str]:
    """How the program that runs this engine's model is started."""
    return [environment.python, str(environment.child.with_name(CHILDREN[environment.name]))]
