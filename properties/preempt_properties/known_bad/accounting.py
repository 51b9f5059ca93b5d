"""Pool accounting: leaks, double credits, wrong amounts, and traces of failed attempts (bugs of kind E)."""

from __future__ import annotations

from attrs import evolve

from preempt_properties.known_bad.base import BUT_LAZY, MIXED, KnownBad
from preempt_spec import events as ev
from preempt_spec.view import Place


class LeaksAtPreemption(KnownBad):
    """Forgets the victim's last block when it releases the others."""

    rule = "pool/conserve"

    def release(self, victim: str) -> None:
        """All but the last block of each group."""
        tables = tuple(t[:-1] for t in self.state.request(victim).tables)
        self._act(ev.Release(victim, len(self.state.plan.granted), tables, None, 0, 0))


class CountsEvictableBlocksTwice(KnownBad):
    """Counts a block that several requests share as one that could be evicted."""

    rule = "pool/conserve"
    bug = "vllm #6849"

    def free_counts(self) -> tuple[int, ...]:
        """Shared blocks on top of the free ones."""
        return tuple(n + len(self.state.shared(g)) for g, n in enumerate(super().free_counts()))


class HandsOutWhatIsOwned(KnownBad):
    """When a running request is short of blocks, lends it the first block of the head of the running queue."""

    rule = "pool/conserve"
    bug = "ROCm/ATOM #2028"

    def pick_blocks(self, group: int, count: int, keep: tuple[int, ...]) -> tuple[int, ...]:
        """The last of several, or of an almost full pool, is somebody else's."""
        blocks = super().pick_blocks(group, count, keep)
        head = next((r for r in self.state.running if self.state.request(r).tables[group]), None)
        if not blocks or head is None or self.free(group) > 2:
            return blocks
        return (*blocks[:-1], self.state.request(head).tables[group][0])


class GrowsIntoAFullPool(KnownBad):
    """Grants a running request tokens whether or not a block is free, and finds it one somewhere."""

    rule = "pool/conserve"
    bug = "sglang #14939"

    def fits(self, request: str) -> bool:
        """Always."""
        return True

    def pick_blocks(self, group: int, count: int, keep: tuple[int, ...]) -> tuple[int, ...]:
        """Free blocks, then those of others."""
        blocks = super().pick_blocks(group, count, keep)
        owned = [b for r in self.state.running for b in self.state.request(r).tables[group] if b not in keep]
        return (*blocks, *dict.fromkeys(owned))[:count]


class CountsNoSharing(KnownBad):
    """Forgets to count a second reference when a prefix is shared."""

    rule = "pool/refcount"

    def observe(self) -> ev.Observed:
        """No block is ever shared."""
        return evolve(super().observe(), refs=())


class FreesTwice(KnownBad):
    """Appends a victim's blocks to the free list a second time."""

    rule = "pool/refcount"
    bug = "sglang #12224"

    def observe(self) -> ev.Observed:
        """The free list of a step that preempted repeats a block."""
        o = super().observe()
        if not self.state.plan.demoted:
            return o
        return evolve(o, free_ids=tuple((*ids, *ids[-1:]) for ids in o.free_ids or ()))


class DropsASharedBlock(KnownBad):
    """Puts a block into its free list as soon as the first of its holders lets go."""

    rule = "pool/refcount"

    def observe(self) -> ev.Observed:
        """Shared blocks are in the free list."""
        o = super().observe()
        ids = tuple((*x, *self.state.shared(g)) for g, x in enumerate(o.free_ids or ()))
        return evolve(o, free_ids=ids)


class KeepsTheHitOfAFailedAdmission(KnownBad):
    """Leaves the blocks it had looked up with the head of the queue when the admission fails."""

    rule = "pool/all-or-nothing"
    bug = "vllm #18411"

    def observe(self) -> ev.Observed:
        """The head of the queue holds a block."""
        o = super().observe()
        head = next((w for w in self.state.waiting if w not in self.state.plan.demoted), None)
        if head is None or not self.state.plan.granted:
            return o
        return evolve(o, held=(*(o.held or ()), ev.Held(head, 1, 0)))


class GrowsForASkippedStep(KnownBad):
    """Grows the table of the head of the queue for a step that then does not run it."""

    rule = "pool/all-or-nothing"
    bug = "TensorRT-LLM #13104"

    def step(self) -> ev.Step:
        """A free block goes to whoever waits first."""
        step = super().step()
        head = next(iter(self.state.waiting), None)
        free = sorted(self.state.free_ids(0))
        if head is None or not free or head in step.requests:
            return step
        return evolve(step, blocks=(*step.blocks, ev.Delta(head, 0, (free[-1],))))


class GrowsTooLate(KnownBad):
    """Rounds down when it counts the pages of a growing request: the token on the new page has no slot."""

    rule = "pool/capacity"

    def pick_blocks(self, group: int, count: int, keep: tuple[int, ...]) -> tuple[int, ...]:
        """One block too few for whoever runs already."""
        plan = self.state.plan
        growing = any(r not in plan.granted for r in plan.entered if self.state.request(r).place is Place.RUNNING)
        return super().pick_blocks(group, count - 1 if growing and count else count, keep)


class AdmitsWithoutItsLastBlock(KnownBad):
    """Takes one block too few for an admission that fills a page exactly."""

    rule = "pool/capacity"
    policies = MIXED

    def grant(self, request: str, tokens: int, hit: int = 0, blocks: tuple[tuple[int, ...], ...] = ()) -> None:
        """And grants all of it."""
        exact = self.state.request(request).place is Place.WAITING and (hit + tokens) % self.state.pages[0] == 0
        self.short = 1 if exact else 0
        super().grant(request, tokens, hit, blocks)
        self.short = 0

    short = 0

    def pick_blocks(self, group: int, count: int, keep: tuple[int, ...]) -> tuple[int, ...]:
        """What was asked for, less what it thinks it needs not."""
        return super().pick_blocks(group, max(0, count - self.short), keep)


class LeaksTheStateOfAFailedAdmission(KnownBad):
    """Takes a block for a request's recurrent state, sees that its pages do not fit, and forgets the block."""

    rule = "pool/conserve"
    policies = BUT_LAZY
    bug = "sglang #16067"
    needs = frozenset({"groups"})

    def prepare(self) -> None:
        """No admission failed."""
        self.lost = 0

    def may_admit(self, request: str, tokens: int, hit: int, blocks: tuple[tuple[int, ...], ...]) -> bool:
        """One state less for each."""
        may = super().may_admit(request, tokens, hit, blocks)
        self.lost += not may
        return may

    def observe(self) -> ev.Observed:
        """The free states, as it counts them."""
        kinds = [g.kind for g in self.state.groups]
        free = (n - self.lost if k == "recurrent" else n for k, n in zip(kinds, self.free_counts(), strict=True))
        return evolve(super().observe(), free=tuple(free))
