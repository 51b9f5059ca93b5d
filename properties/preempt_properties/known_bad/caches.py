"""A host cache that is filled and read by copies which no frame waits for (bugs of kind F)."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import BadCache, often_paused
from preempt_properties.scenario import Control, Scenario, Step
from preempt_spec import events as ev
from preempt_spec.offload import Moving
from preempt_spec.view import Place

BOTH = frozenset({"offload", "frames"})


class PinsNothing(BadCache):
    """Lets the blocks that a store still reads be handed out when their owner gives them up."""

    rule = "swap/fence"
    bug = "vllm #29870"

    def pin(self, blocks: tuple[int, ...], after: int) -> None:
        """Nothing."""


class ResumesBeforeItsLoad(BadCache):
    """Runs a request whose copies are still on their way."""

    rule = "swap/fence"
    bug = "sglang #31905"

    def load(self, request: str) -> bool:
        """Loaded as soon as it is asked for."""
        began = super().load(request)
        if began:
            self.good.append(request)
        return began


class LoadsIntoWhatIsStillWritten(BadCache):
    """Gives the blocks of a victim or of a cancelled request to a load while a pass that writes them flies."""

    rule = "swap/fence"
    bug = "sglang #30899"

    needs = frozenset({"frames", "offload", "reset"})

    @classmethod
    def scene(cls, scenario: Scenario) -> Scenario:
        """With many frames: it takes a step from the reset to the load."""
        scenario = super().scene(scenario)
        return evolve(scenario, config=evolve(scenario.config, frames=4))

    def fences(self, request: str) -> int | None:
        """None."""
        return None

    def holds_back(self, victim: str) -> bool:
        """Never."""
        return False


class TakesOneBlockTooFewForALoad(BadCache):
    """Rounds down when it counts the blocks that a load fills: its last page has nowhere to go."""

    rule = "pool/capacity"
    bug = "LMCache #5248"

    def _act(self, act: ev.Act) -> None:
        if isinstance(act, ev.Load):
            act = evolve(act, blocks=tuple(row[:-1] for row in act.blocks))
        super()._act(act)


class LoadsIntoNobodysBlocks(BadCache):
    """Gives the blocks up that it had picked for a load, and begins the load all the same."""

    rule = "swap/fence"
    bug = "neuralmagic/vllm #92"

    def _start(self, direction: str, blocks: tuple[tuple[int, int, int], ...], moving: Moving) -> None:
        free = [b for b in sorted(self.state.free_ids(0)) if direction == "in"]
        if free:
            blocks = (*blocks[:-1], (blocks[-1][0], free[0], 0))
        super()._start(direction, blocks, moving)


class LoadsWhilePaused(BadCache):
    """Takes memory for a load although the operator paused it."""

    rule = "queue/admission"
    needs = frozenset({"offload", "pause"})

    @classmethod
    def scene(cls, scenario: Scenario) -> Scenario:
        """Paused every other step."""
        return often_paused(super().scene(scenario))

    def load(self, request: str) -> bool:
        """As if nobody had said anything."""
        s = self.state
        self.state = evolve(s, paused=False)
        began = super().load(request)
        self.state = evolve(self.state, paused=s.paused)
        return began


class GivesUpWhatIsStillFilled(BadCache):
    """Takes a load for failed that only takes long, and gives its blocks back while they are filled."""

    rule = "pool/free-once"
    bug = "vllm #46014"

    def admit(self) -> None:
        """Every load that is not done with the next step has failed."""
        self.failed += [*self.loaders]
        self.loaders.clear()
        super().admit()


class EvictsWhatIsStillCopied(BadCache):
    """Makes room in a full host pool by giving up what a copy still fills or reads."""

    rule = "swap/fence"

    def pick_host(self, taken: int) -> int | None:
        """If nothing is free, the block of a copy in flight."""
        found = super().pick_host(taken)
        busy = [b for moved in self.moving.values() for b in moved.host if self.state.host_used(0, b)]
        if found is None and busy:
            self._act(ev.Evict((busy[0],), len(self.state.plan.granted)))
        return found


class LiftsItsFencesAtOnce(BadCache):
    """Frees fenced blocks with the next step, whatever still flies."""

    rule = "swap/fence"
    needs = BOTH

    def begin(self) -> None:
        """All fences fall."""
        super().begin()
        blocks = tuple(b for b, x in sorted(self.state.memory[0].blocks.items()) if x.fence is not None)
        if blocks:
            self._act(ev.Unfence(blocks))


class NeverLiftsItsFences(BadCache):
    """Waits for a frame with the blocks of a cancelled request, and does not notice when it is back."""

    rule = "edge/abort"
    bug = "sglang #40251"
    needs = BOTH

    def unfence(self, frame: int) -> tuple[ev.Act, ...]:
        """Nothing."""
        return ()


class ResumesBehindAFailedLoad(BadCache):
    """Counts what a load was to bring, whether it came or not."""

    rule = "swap/round-trip"
    bug = "transformers #43150"

    def copy_done(self, copy: int, ok: bool) -> ev.CopyDone:
        """It came."""
        done = super().copy_done(copy, ok)
        self.good += self.failed
        self.failed = []
        return done


class LoadsTheWrongPage(BadCache):
    """Loads the pages of a prefix in the order in which the host stored them last."""

    rule = "swap/round-trip"
    bug = "LMCache #2158"

    def _start(self, direction: str, blocks: tuple[tuple[int, int, int], ...], moving: Moving) -> None:
        if direction == "in":
            sources = [src for src, _, _ in blocks][::-1]
            blocks = tuple((src, dst, g) for src, (_, dst, g) in zip(sources, blocks, strict=True))
        super()._start(direction, blocks, moving)


class LoadsWhatIsStillStored(BadCache):
    """Takes a page for stored as soon as its copy has begun."""

    rule = "swap/host-pool"
    bug = "sglang #33385"
    needs = frozenset({"frames", "offload", "reset"})

    @classmethod
    def scene(cls, scenario: Scenario) -> Scenario:
        """With resets: else the block that is still stored is found itself."""
        scenario = super().scene(scenario)
        return evolve(scenario, script=(*scenario.script, *(Step(2), Control("reset")) * 3))

    def load(self, request: str) -> bool:
        """What is under way counts."""
        moving, self.moving = self.moving, {}
        began = super().load(request)
        self.moving = {**moving, **self.moving}
        return began


class OverwritesTheHostCache(BadCache):
    """Fills the same host block again and again."""

    rule = "swap/host-pool"
    bug = "sglang #33547"

    def pick_host(self, taken: int) -> int | None:
        """The first ones."""
        return taken if taken < self.state.host_extent(0) else None


class HandsOutPinnedBlocks(BadCache):
    """Reads its free list without looking at the pins of copies."""

    rule = "pool/conserve"
    bug = "LMDeploy #4700"

    def pick_blocks(self, group: int, count: int, keep: tuple[int, ...]) -> tuple[int, ...]:
        """Those first that only a pin holds."""
        m, owned = self.state.memory[group], {b for r in self.state.requests.values() for b in r.tables[group]}
        pinned = tuple(b for b, x in sorted(m.blocks.items()) if x.pins and b not in owned and b not in keep)
        return (*pinned, *super().pick_blocks(group, count, keep))[:count]


class QueuesWhoLoads(BadCache):
    """Leaves a request that loads in the waiting queue."""

    rule = "queue/one-place"
    bug = "vllm-omni #3774"

    def observe(self) -> ev.Observed:
        """It stands there and among the loading."""
        o = super().observe()
        loading = tuple(r for r, x in self.state.requests.items() if x.place is Place.LOADING)
        return evolve(o, loading=loading, waiting=(*(o.waiting or ()), *loading))


class LosesWhoLoads(BadCache):
    """Keeps a request that loads in no queue at all."""

    rule = "queue/one-place"

    def observe(self) -> ev.Observed:
        """Nobody loads."""
        return evolve(super().observe(), loading=())


class LoadsTwice(BadCache):
    """Asks for the same load again when the request is looked at the next time."""

    rule = "queue/one-place"
    bug = "vllm #53250"

    def load(self, request: str) -> bool:
        """Twice."""
        began = super().load(request)
        if began:
            self._act(ev.Load(request, self.state.request(request).computed, ((),), len(self.state.plan.granted)))
        return began


class ForgetsWhoLoaded(BadCache):
    """Never looks at the loads that are done: who was parked stays parked."""

    rule = "live/progress"
    bug = "vllm #45388"

    def admit(self) -> None:
        """They are not looked at."""
        self.good = []
        super().admit()


class FencesForEver(BadCache):
    """Fences the blocks of a cancelled request until a frame that came back long ago."""

    rule = "swap/fence"
    bug = "sglang #40251"

    def abort(self, request: str) -> ev.Abort:
        """Until the one before the last."""
        self.dying = True
        done = super().abort(request)
        self.dying = False
        return done

    dying = False

    def fences(self, request: str) -> int | None:
        """Those of others are right."""
        before = self.state.last_frame - 1
        return before if self.dying and before >= 0 else super().fences(request)


class DiesOfALoadBehindAStore(BadCache):
    """Asserts that no copy of a request flies when it is admitted again; its stores do."""

    rule = "live/survives"
    bug = "vllm #46014"

    def load(self, request: str) -> bool:
        """Of whoever was preempted."""
        stores = any(not m.loads for m in self.moving.values())
        assert not (self.state.request(request).preempted and stores), "transfer jobs"
        return super().load(request)
