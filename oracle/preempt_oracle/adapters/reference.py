"""The reference scheduler behind the adapter protocol: what a correct engine looks like from the harness's side."""

from __future__ import annotations

from typing import Any

import msgspec
from attrs import evolve, fields

from preempt_oracle.engines.child import Command, Engine, Refused, Reply
from preempt_oracle.trace.convert import to_wire
from preempt_properties.play import header
from preempt_properties.scenario import Config
from preempt_properties.workload import EVERYTHING
from preempt_spec import SPEC_VERSION
from preempt_spec import events as ev
from preempt_spec.policies.policy import Memory
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import Reference


class ReferenceEngine(Engine):
    """A `Reference` per start, under the contract of the policy asked for. `scheduler`: a relative of it instead."""

    package = "preempt_spec"
    scheduler: type[Reference] = Reference

    def start(self, config: dict[str, Any]) -> Reply:
        """A fresh scheduler."""
        profile = PROFILES.get(config["policy"])
        if profile is None:
            raise Refused(f"policy {config['policy']!r} is unknown; profiles are {', '.join(PROFILES)}")
        if config["max_length"] > config["blocks"] * config["page_size"]:
            raise Refused("max_length exceeds the pool")
        shape = Config(**{a.name: config[a.name] for a in fields(Config) if a.name in config})
        if shape.host_blocks and profile.contract.memory is not Memory.SWAP:
            # Its relative with a host cache copies in the background, which no reply of this protocol can tell.
            raise Refused(f"host_blocks = {shape.host_blocks}: {profile.name} swaps nobody")
        if shape.drafts and "recurrent" in shape.groups:
            raise Refused("drafts are not judged together with a recurrent group")
        told = evolve(header(shape), version=SPEC_VERSION)
        self.reference = self.scheduler(told, profile.contract)
        return {**plain(to_wire(told)), "capabilities": sorted(EVERYTHING - {"offload"})}

    def add(self, cmd: Command) -> Reply:
        """A request arrives, or is refused."""
        arrive = ev.Arrive(
            cmd["request"], tuple(cmd["prompt"]), cmd["max_tokens"], cmd["priority"], cmd["arrival"], cmd["salt"]
        )
        return plain(to_wire(self.reference.arrive(arrive)[-1]))

    def abort(self, request: str) -> Reply:
        """A request is cancelled."""
        return plain(to_wire(self.reference.abort(request)))

    def control(self, cmd: Command) -> Reply:
        """The operator acts."""
        return plain(to_wire(self.reference.control(cmd["kind"])))

    def step(self) -> Reply:
        """One decision."""
        return plain(to_wire(self.reference.step()))

    def deliver(self, cmd: Command) -> Reply:
        """Tokens arrive."""
        tokens = tuple(tuple(t) for t in cmd["tokens"])
        proposed = cmd.get("proposed")
        frame = ev.Deliver(
            cmd["frame"], tuple(cmd["requests"]), tokens, proposed=None if proposed is None else tuple(proposed)
        )
        told, *ended = self.reference.deliver(frame)
        finished = [plain(to_wire(e)) for e in ended]
        return {**plain(to_wire(told)), "finished": [{k: v for k, v in f.items() if k != "event"} for f in finished]}

    def stop(self) -> None:
        """Forget it."""
        del self.reference


def plain(event: msgspec.Struct) -> Reply:
    """An event as the objects of JSON."""
    plain: Reply = msgspec.to_builtins(event)
    return plain
