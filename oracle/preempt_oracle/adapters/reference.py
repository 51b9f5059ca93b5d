"""The reference scheduler behind the adapter protocol: what a correct engine looks like from the harness's side."""

from __future__ import annotations

from typing import Any

import msgspec

from preempt_oracle.engines.child import Command, Engine, Refused, Reply
from preempt_oracle.trace.convert import to_wire
from preempt_properties.workload import CAPABILITIES
from preempt_spec import SPEC_VERSION
from preempt_spec import events as ev
from preempt_spec.policies.profiles import PROFILES
from preempt_spec.reference import OBSERVES, Reference

_LIMITS = ("max_running", "budget", "max_length", "long_prefill", "chunked", "caching", "whole_fit", "watermark")


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
        header = ev.Header(
            "reference",
            SPEC_VERSION,
            profile.name,
            ev.Limits(**{name: config[name] for name in _LIMITS}),
            (ev.Group(page_size=config["page_size"]),),
            (ev.Pool(total=config["blocks"]),),
            OBSERVES,
        )
        self.reference = self.scheduler(header, profile.contract)
        return {**_plain(to_wire(header)), "capabilities": sorted(CAPABILITIES)}

    def add(self, cmd: Command) -> Reply:
        """A request arrives, or is refused."""
        arrive = ev.Arrive(
            cmd["request"], tuple(cmd["prompt"]), cmd["max_tokens"], cmd["priority"], cmd["arrival"], cmd["salt"]
        )
        return _plain(to_wire(self.reference.arrive(arrive)[-1]))

    def abort(self, request: str) -> Reply:
        """A request is cancelled."""
        return _plain(to_wire(self.reference.abort(request)))

    def step(self) -> Reply:
        """One decision."""
        return _plain(to_wire(self.reference.step()))

    def deliver(self, cmd: Command) -> Reply:
        """Tokens arrive."""
        tokens = tuple(tuple(t) for t in cmd["tokens"])
        told, *ended = self.reference.deliver(ev.Deliver(cmd["frame"], tuple(cmd["requests"]), tokens))
        finished = [_plain(to_wire(e)) for e in ended]
        return {**_plain(to_wire(told)), "finished": [{k: v for k, v in f.items() if k != "event"} for f in finished]}

    def stop(self) -> None:
        """Forget it."""
        del self.reference


def _plain(event: msgspec.Struct) -> Reply:
    plain: Reply = msgspec.to_builtins(event)
    return plain
