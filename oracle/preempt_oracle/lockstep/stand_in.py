"""The prediction in the place of the engine: a vLLM that is predicted by construction, and needs no installation.

For tests of the comparison, and to try the command: `--adapter preempt_oracle.lockstep.stand_in:StandIn`. It says of
itself that it is vLLM, which is why nothing but lockstep should ever be pointed at it.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve, fields

from preempt_oracle.adapters.reference import ReferenceEngine, plain
from preempt_oracle.engines.child import Refused, Reply
from preempt_oracle.lockstep.predicted import VERSIONS, Build, Predicted
from preempt_oracle.trace.convert import to_wire
from preempt_properties.play import header
from preempt_properties.scenario import Config
from preempt_spec.policies.profiles import PROFILES


class StandIn(ReferenceEngine):
    """A `Predicted` per start. Subclasses change what it says, to be caught."""

    version: str = VERSIONS[-1]

    def start(self, config: dict[str, Any]) -> Reply:
        """A fresh scheduler."""
        shape = Config(**{a.name: config[a.name] for a in fields(Config) if a.name in config})
        if shape.max_length > shape.blocks * shape.page_size:
            raise Refused("max_length exceeds the pool")
        options = config.get("options", {})
        ahead = shape.frames > 1 and not options.get("pipeline", False)
        build = Build(
            self.version, shape.drafts, ahead, max(1, shape.frames - ahead), bool(options.get("v2_runner", False))
        )
        told = evolve(header(shape, reserved=1), engine="vllm", version=self.version)
        policy, _ = PROFILES[shape.policy].as_built("vllm", self.version)
        self.reference = Predicted(told, policy, build)
        return {**plain(to_wire(told)), "capabilities": ["abort", "drafts", "frames", "pause", "reset"]}
