"""The modes in which vLLM is predicted: what a combination is called, and a workload for it.

A mode is a combination of settings that change what the scheduler does. A campaign goes through all combinations that
its selection leaves, one workload each, round after round, so that none is left out by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from random import Random
from typing import Final

from attrs import evolve, frozen

from preempt_oracle.lockstep.large import large
from preempt_oracle.lockstep.predicted import Build
from preempt_properties.scenario import Config, Option, Scenario
from preempt_properties.workload import workload

#: Policies that are predicted.
POLICIES: Final = ("vllm-fcfs", "vllm-priority")
#: What the generator of workloads may use; ids are not used again, and no budget is below `max_running`: vLLM takes
#: neither. Ties included: a prediction is right or wrong on them like anywhere else.
CAPABILITIES: Final = frozenset(
    {"abort", "caching", "chunked", "long_prefill", "priority", "salt", "unchunked", "watermark", "whole_fit"}
    | {"ties", "frames", "reset", "pause"}
)


class Unmodelled(Exception):
    """No prediction is made of this; the message says of what, and what is modelled. A usage error."""


@frozen
class Flight:
    """How frames fly: synchronous scheduling, asynchronous, or a pipeline that nothing is scheduled ahead of."""

    name: str  # sync, async, pipeline
    frames: int
    runner: int  # 1 or 2: the shape of vLLM's output


#: Three frames and more need the second runner when scheduling ahead, in vLLM itself.
FLIGHTS: Final = (
    Flight("sync", 1, 1),
    Flight("sync", 1, 2),
    Flight("async", 2, 1),
    Flight("async", 2, 2),
    Flight("async", 3, 2),
    Flight("async", 4, 2),
    Flight("pipeline", 2, 1),
    Flight("pipeline", 3, 2),
)


@frozen
class Mode:
    """One combination. `drafts`: whether there is a drafter."""

    policy: str
    flight: Flight
    chunked: bool
    long_prefill: bool
    whole_fit: bool
    caching: bool
    watermark: bool
    drafts: bool

    @property
    def words(self) -> tuple[str, ...]:
        """The words of `--mode` that select this one."""
        told = [self.flight.name, f"frames={self.flight.frames}", f"runner={self.flight.runner}"]
        told += [name if getattr(self, attribute) else other for name, (attribute, other) in SWITCHES.items()]
        return tuple(told)

    @property
    def options(self) -> dict[str, Option]:
        """Settings of the adapter."""
        options: dict[str, Option] = {"v2_runner": self.flight.runner == 2}
        return {**options, "pipeline": True} if self.flight.name == "pipeline" else options

    def build(self, version: str, drafts: int) -> Build:
        """What the prediction must know beyond the limits."""
        ahead = self.flight.name == "async"
        return Build(version, drafts, ahead, max(1, self.flight.frames - ahead), self.flight.runner == 2)


#: Word -> the attribute it says yes to, and the word that says no.
SWITCHES: Final[Mapping[str, tuple[str, str]]] = {
    "chunked": ("chunked", "unchunked"),
    "long-prefill": ("long_prefill", "no-long-prefill"),
    "whole-fit": ("whole_fit", "part-fit"),
    "caching": ("caching", "no-caching"),
    "watermark": ("watermark", "no-watermark"),
    "drafts": ("drafts", "no-drafts"),
}

#: Words for what is not predicted -> why not.
NOT_MODELLED: Final[Mapping[str, str]] = {
    "offload": "KV connectors: when a copy is done decides who is served, and no worker copies here",
    "host": "a host tier is a KV connector in vLLM",
    "groups": "several KV-cache groups: the adapter drives one full-attention group",
    "sliding": "several KV-cache groups: the adapter drives one full-attention group",
    "recurrent": "several KV-cache groups: the adapter drives one full-attention group",
    "adaptive": "long_prefill_token_threshold_adaptive: no setting of the adapter",
    "cadence": "prefill_schedule_interval: no setting of the adapter",
    "lora": "requests of the harness have no adapters of weights",
    "encoder": "requests of the harness have no images",
    "structured": "requests of the harness have no grammar",
}


def _shapes() -> list[tuple[bool, bool, bool]]:
    """(chunked, long_prefill, whole_fit). What is never cut has no threshold, and must fit as a whole anyway."""
    return [(False, False, True), *((True, cut, whole) for cut, whole in product((False, True), repeat=2))]


def modes(policies: Sequence[str]) -> list[Mode]:
    """Every combination, so ordered that neighbours differ in much: a short run sees something of everything."""
    found = [
        Mode(policy, flight, *shape, caching, watermark, drafts)
        for policy, flight, shape, caching, watermark, drafts in product(
            policies, FLIGHTS, _shapes(), (False, True), (False, True), (False, True)
        )
        # The adapter does not drive drafts through a pipeline that nothing is scheduled ahead of.
        if not (drafts and flight.name == "pipeline")
    ]
    Random(0).shuffle(found)
    return found


def select(policies: Sequence[str], wanted: str) -> list[Mode]:
    """The modes that have all of these words, separated by commas. Raises Unmodelled, ValueError for a word unknown."""
    chosen = modes(policies)
    known = sorted({word for mode in chosen for word in mode.words})
    for word in filter(None, (w.strip() for w in wanted.split(","))):
        if word in NOT_MODELLED:
            raise Unmodelled(f"{word} is not predicted: {NOT_MODELLED[word]} (docs/lockstep.md)")
        if word not in known:
            raise ValueError(f"{word!r} is no mode; words are {', '.join(known)}")
        chosen = [mode for mode in chosen if word in mode.words]
    if not chosen:
        raise Unmodelled(f"no modelled combination is all of {wanted} (docs/lockstep.md)")
    return chosen


def generated(seed: int, mode: Mode) -> Scenario:
    """The workload of a seed in a mode: one in four is large."""
    random = Random(seed)
    if random.randrange(4):
        scenario = workload(random, mode.policy, capabilities=CAPABILITIES)
    else:
        scenario = large(random, mode.policy)
    return evolve(scenario, config=_fitted(scenario.config, mode, random))


def _fitted(c: Config, mode: Mode, random: Random) -> Config:
    """The configuration, changed to the mode and still inside vLLM's contract."""
    drafts = random.randint(1, 3) if mode.drafts else 0
    # A grant with all its drafts fits the budget and the threshold: else vLLM starves a request or fails an assertion
    # (F3 and F4 of docs/findings.md).
    threshold = max(c.long_prefill or random.randint(1, min(5 * c.page_size, c.max_length)), 1 + drafts)
    if threshold > c.max_length:
        threshold, drafts = c.max_length, c.max_length - 1
    budget = max(c.budget, 1 + drafts)
    if not mode.chunked:  # a resume is computed in one step, so the longest sequence must fit in one
        budget = max(budget, c.max_length)
    return evolve(
        c,
        budget=budget,
        long_prefill=threshold if mode.long_prefill else 0,
        chunked=mode.chunked,
        caching=mode.caching,
        whole_fit=mode.whole_fit,
        watermark=(c.watermark or random.randint(1, max(1, c.blocks // 4))) if mode.watermark else 0,
        frames=mode.flight.frames,
        drafts=drafts,
    )
