"""Victims that are swapped to the host tier and back (bugs of kind F)."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import SWAPPING, KnownBad
from preempt_spec import events as ev
from preempt_spec.policies.blocks import pages_for
from preempt_spec.policies.queues import requeue_at
from preempt_spec.state import needed_pages
from preempt_spec.view import Place

Pairs = tuple[tuple[int, int, int], ...]


class Swapping(KnownBad):
    """It swaps its victims. Relatives change what is copied, and when."""

    policies = SWAPPING
    needs = frozenset({"host"})

    def outward(self, victim: str, pairs: Pairs) -> Pairs:
        """(device, host, group) blocks that go out."""
        return pairs

    def inward(self, request: str, pairs: Pairs) -> Pairs:
        """(host, device, group) blocks that come in."""
        return pairs

    def _act(self, act: ev.Act) -> None:
        if isinstance(act, ev.Swap):
            change = self.outward if act.direction == "out" else self.inward
            act = evolve(act, blocks=change(act.request, act.blocks))
        super()._act(act)


class CopiesNothingOut(Swapping):
    """Counts its victim's tokens as swapped and issues no copy."""

    rule = "swap/round-trip"
    bug = "LMDeploy #3864"

    def _act(self, act: ev.Act) -> None:
        if not (isinstance(act, ev.Swap) and act.direction == "out"):
            super()._act(act)


class CopiesTheFirstPageOnly(Swapping):
    """Copies the same page out for every page of its victim."""

    rule = "swap/round-trip"

    def outward(self, victim: str, pairs: Pairs) -> Pairs:
        """One source."""
        return tuple((pairs[0][0], dst, g) if g == pairs[0][2] else (src, dst, g) for src, dst, g in pairs)


class SwapsOutOneComponent(Swapping):
    """Copies the blocks of the first group out and forgets the windows and states of the others."""

    rule = "swap/round-trip"
    bug = "sglang #16067"
    needs = frozenset({"host", "groups"})

    def outward(self, victim: str, pairs: Pairs) -> Pairs:
        """Group 0."""
        return tuple(p for p in pairs if p[2] == 0)


class SwapsIntoItsOldBlocks(Swapping):
    """Brings the KV back to where it was before, and not to where it is needed now."""

    rule = "swap/round-trip"
    bug = "sglang #33547"

    def prepare(self) -> None:
        """Nobody was swapped."""
        self.before: dict[tuple[str, int, int], int] = {}  # request, group, host block -> device block

    def outward(self, victim: str, pairs: Pairs) -> Pairs:
        """Noted."""
        self.before |= {(victim, g, dst): src for src, dst, g in pairs}
        return pairs

    def inward(self, request: str, pairs: Pairs) -> Pairs:
        """And believed."""
        return tuple((src, self.before[request, g, src], g) for src, _, g in pairs)


class LeavesItsLastPageBehind(Swapping):
    """Brings back full pages only."""

    rule = "swap/round-trip"

    def inward(self, request: str, pairs: Pairs) -> Pairs:
        """All but the last."""
        return pairs[:-1]


class ExchangesPages(Swapping):
    """Brings pages back in the order in which the host has them free again."""

    rule = "swap/round-trip"

    def inward(self, request: str, pairs: Pairs) -> Pairs:
        """Upside down, per group."""
        out: list[tuple[int, int, int]] = []
        for of in dict.fromkeys(g for _, _, g in pairs):
            mine = [p for p in pairs if p[2] == of]
            out += [(src, dst, of) for (src, _, _), (_, dst, _) in zip(reversed(mine), mine, strict=True)]
        return tuple(out)


class FillsABlockMore(Swapping):
    """Brings its last page back a second time, into a free block that it took for its own."""

    rule = "swap/round-trip"

    def inward(self, request: str, pairs: Pairs) -> Pairs:
        """One pair more, if there is a free block."""
        free = self.state.free_ids(0)
        return (*pairs, (pairs[-1][0], min(free), 0)) if free and pairs[-1][2] == 0 else pairs


class RecomputesThoughThereIsRoom(Swapping):
    """Says that it swaps and drops its victims' KV."""

    rule = "swap/host-pool"
    bug = "LMDeploy #3864"

    def swap_out(self, victim: str) -> int:
        """Nothing is kept."""
        return 0


class OverwritesTheHost(Swapping):
    """Starts to fill the host pool at its first block each time, whoever is there."""

    rule = "swap/host-pool"

    def outward(self, victim: str, pairs: Pairs) -> Pairs:
        """Block 0 and on."""
        at = [0] * len(self.state.groups)
        out = []
        for src, _, g in pairs:
            out.append((src, at[g], g))
            at[g] += 1
        return tuple(out)


class EvictsBeforeItIsBack(Swapping):
    """Gives the host blocks up before their pages are copied in."""

    rule = "swap/host-pool"
    bug = "sglang #33385"

    def swap_in(self, request: str) -> None:
        """Free first, then read."""
        backup, tables = self.backups[request], self.state.request(request).tables
        self.drop_backup(request)
        pairs = tuple((src, tables[g][page], g) for g, page, src in backup)
        self._act(ev.Swap(request, "in", pairs, len(self.state.plan.granted)))


class EvictsTwice(Swapping):
    """Gives a host block up a second time when its request ends."""

    rule = "swap/host-pool"
    bug = "vllm #51228"

    def _act(self, act: ev.Act) -> None:
        super()._act(act)
        if isinstance(act, ev.Evict):
            super()._act(act)


class LeaksTheHostCopyOfTheAborted(Swapping):
    """Forgets a swapped request that is cancelled, and not its host blocks."""

    rule = "swap/host-pool"
    bug = "sglang #18701"

    def abort(self, request: str) -> ev.Abort:
        """They are in use for ever."""
        self.backups.pop(request, None)
        return super().abort(request)


class MiscountsTheHost(Swapping):
    """Counts the host blocks of who came back as in use for one step more."""

    rule = "swap/host-pool"

    def observe(self) -> ev.Observed:
        """Fewer are free than are."""
        o = super().observe()
        back = any(isinstance(a, ev.Evict) for a in self.acts)
        return evolve(o, host_free=o.host_free and (o.host_free[0] - back, *o.host_free[1:]))


class SwapsWhatFits(Swapping):
    """Copies as many pages as the host has room for, and keeps as many tokens."""

    rule = "victim/reset"
    bug = "vllm #5578"

    def swap_out(self, victim: str) -> int:
        """Part of it, if all of it is too much."""
        s, r = self.state, self.state.request(victim)
        free, page = s.host_free(0), s.pages[0]
        if len(s.groups) > 1 or not free or free >= pages_for(s.groups[0], r.computed):
            return super().swap_out(victim)
        unused = [b for b in range(s.host_extent(0)) if not s.host_used(0, b)]
        pairs = tuple((r.tables[0][i], unused[i], 0) for i in range(free))
        self.backups[victim] = tuple((0, i, dst) for i, (_, dst, _) in enumerate(pairs))
        self._act(ev.Swap(victim, "out", pairs, len(s.plan.granted)))
        return free * page


class QueuesTheSwappedToWait(Swapping):
    """Puts a victim whose KV the host holds into the waiting queue, behind which nobody looks for a copy."""

    rule = "queue/front"

    def requeue(self, victim: str) -> None:
        """In front, as if it was to be recomputed."""
        at, known = requeue_at(self.state, victim), len(self.state.request(victim).tokens)
        self._act(ev.Requeue(victim, len(self.state.plan.granted), "waiting", at, known))


class QueuesTheRecomputedAsSwapped(Swapping):
    """Puts every victim into the swapped queue, also one that did not fit in the host pool."""

    rule = "queue/front"
    bug = "vllm #546"

    def requeue(self, victim: str) -> None:
        """Behind the swapped."""
        s = self.state
        known = len(s.request(victim).tokens)
        self._act(ev.Requeue(victim, len(s.plan.granted), "swapped", len(s.swapped), known))


class SwapsBackTheLatestFirst(Swapping):
    """Puts a swapped victim in front of those that were swapped before it."""

    rule = "queue/front"

    def requeue(self, victim: str) -> None:
        """Index 0."""
        queue = "swapped" if self.state.request(victim).computed else "waiting"
        known = len(self.state.request(victim).tokens)
        self._act(ev.Requeue(victim, len(self.state.plan.granted), queue, 0, known))


class AdmitsPastTheSwapped(Swapping):
    """Lets new requests take the room that swapped ones wait for."""

    rule = "queue/order"

    def next_waiting(self) -> str | None:
        """Who waits, before who is swapped."""
        return next(iter((*self.state.waiting, *self.state.swapped)), None)


class SwapsInWithoutItsNextBlock(Swapping):
    """Looks for room for what was swapped, and not for the token that comes next."""

    rule = "queue/admission"
    bug = "vllm #8824"

    def may_admit(self, request: str, tokens: int, hit: int, blocks: tuple[tuple[int, ...], ...]) -> bool:
        """Its old blocks would fit."""
        s, r = self.state, self.state.request(request)
        if r.place is not Place.SWAPPED or s.plan.demoted:
            return super().may_admit(request, tokens, hit, blocks)
        slot = len(s.running) < s.limits.max_running
        return slot and all(pages_for(group, r.computed) <= s.free(g) for g, group in enumerate(s.groups))


class KeepsTheSwappedInRunning(Swapping):
    """Splits its queues and leaves the swapped in the old running queue as well."""

    rule = "queue/one-place"
    bug = "HabanaAI/vllm-fork #2247"

    def observe(self) -> ev.Observed:
        """They stand in both."""
        o = super().observe()
        return evolve(o, running=(*(o.running or ()), *(o.swapped or ())))


class LosesTheSwapped(Swapping):
    """Takes the swapped out of every queue until they are looked for."""

    rule = "queue/one-place"

    def observe(self) -> ev.Observed:
        """Nobody is swapped."""
        return evolve(super().observe(), swapped=())


class DiesOfAFullHost(Swapping):
    """Takes as many free host blocks as its victim has pages, also when there are fewer."""

    rule = "live/survives"
    bug = "vllm #787"

    def swap_out(self, victim: str) -> int:
        """The last of them is looked up."""
        s = self.state
        unused = [b for b in range(s.host_extent(0)) if not s.host_used(0, b)]
        return super().swap_out(victim) if unused[pages_for(s.groups[0], s.request(victim).computed) - 1] >= 0 else 0


class SuspendsOnlyWhatTheHostHolds(Swapping):
    """Preempts nobody whom the host has no room for: without a host tier, nobody at all."""

    rule = "victim/duty"
    bug = "TensorRT-LLM #12306"

    def choose_victim(self, request: str) -> str | None:
        """Who fits there."""
        s, victim = self.state, super().choose_victim(request)
        if victim is None:
            return None
        r = s.request(victim)
        fits = all(len(needed_pages(group, r.computed)) <= s.host_free(g) for g, group in enumerate(s.groups))
        return victim if fits else None
