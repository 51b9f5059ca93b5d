"""A Python scheduler behind the adapter protocol, in the harness's own process.

    PYTHONPATH=examples preempt-oracle conform --adapter python_adapter:Adapter --policy vllm-fcfs

`Reference` stands for your scheduler here. It shows its decisions as the events of the specification; yours will not:
then build the same plain objects (docs/trace.md) from what it returns and from what its own structures hold. An adapter
translates. It never judges, never samples (`deliver` brings the tokens) and does not repair what it sees.
"""

from __future__ import annotations

from typing import Any

import msgspec

from preempt_oracle.engines.child import Command, Engine, Refused, Reply, header
from preempt_oracle.trace.convert import to_wire
from preempt_spec import events as ev
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import OBSERVES, Reference


class Adapter(Engine):
    """One scheduler at a time; `start` makes a fresh one and must forget everything of the last."""

    #: The import name of the engine: an exception raised by its files is a finding, any other a broken adapter.
    package = "preempt_spec"

    def start(self, config: dict[str, Any]) -> Reply:
        """Build the scheduler. Refuse what it does not do: a refusal is no verdict, doing something else is."""
        if config["policy"] not in PROFILES:
            raise Refused(f"policy {config['policy']!r}")
        if config["max_length"] > config["blocks"] * config["page_size"]:
            raise Refused("max_length exceeds the pool: a lone request would not fit")
        if config["options"]:
            raise Refused("there are no options")
        # Declare what is really observed: a rule that lacks something is "not observable", never a pass.
        can = ("abort", "caching", "chunked", "long_prefill", "priority", "salt", "unchunked", "watermark", "whole_fit")
        self.header = header("my-engine", "1.0", config, OBSERVES, can)
        limits = ev.Limits(**self.header["limits"])
        groups, pools = (ev.Group(page_size=config["page_size"]),), (ev.Pool(total=config["blocks"]),)
        policy = PROFILES[config["policy"]]
        told = ev.Header("my-engine", "1.0", policy.name, limits, groups, pools, OBSERVES)
        self.scheduler = Reference(told, policy.contract)
        return self.header

    def add(self, cmd: Command) -> Reply:
        """A request arrives: an `arrive` event, or a `reject` if the scheduler itself refuses it."""
        request = ev.Arrive(
            cmd["request"], tuple(cmd["prompt"]), cmd["max_tokens"], cmd["priority"], cmd["arrival"], cmd["salt"]
        )
        return plain(self.scheduler.arrive(request)[-1])

    def abort(self, request: str) -> Reply:
        """A live request is cancelled: which blocks really came back, and the free count afterwards."""
        return plain(self.scheduler.abort(request))

    def step(self) -> Reply:
        """One decision: grants, new blocks, what the worker is told, preemptions in order, the engine's own books."""
        return plain(self.scheduler.step())

    def deliver(self, cmd: Command) -> Reply:
        """Tokens for the requests that sampled one. `finished`: who ended with them, and the blocks they gave back."""
        tokens = tuple(tuple(t) for t in cmd["tokens"])
        told, *ended = map(plain, self.scheduler.deliver(ev.Deliver(cmd["frame"], tuple(cmd["requests"]), tokens)))
        return {**told, "finished": [{k: v for k, v in e.items() if k != "event"} for e in ended]}

    def stop(self) -> None:
        """Drop the scheduler."""
        del self.scheduler


def plain(event: ev.Event) -> Reply:
    """An event as JSON has it."""
    reply: Reply = msgspec.to_builtins(to_wire(event))
    return reply
