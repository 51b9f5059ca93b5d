"""The reference scheduler and its blocks: which hold a prefix, and which are handed out."""

from __future__ import annotations

from collections.abc import Mapping

from preempt_spec import events as ev
from preempt_spec.findable import Findable
from preempt_spec.memory import Slot
from preempt_spec.policies.admission import hit_limit
from preempt_spec.policies.pressure import squeeze
from preempt_spec.state import Request
from preempt_spec.view import Place


class Paging(Findable):
    """A scheduler's hooks about its pages; see `reference.Reference` for all others."""

    def find_prefix(self, request: str) -> tuple[tuple[tuple[int, ...], ...], int]:
        """Resident blocks that hold the longest usable prefix, and its length in tokens."""
        s, r = self.state, self.state.request(request)
        if not s.limits.caching or r.place is not Place.WAITING or r.computed:
            return ((),) * len(s.memory), 0
        # Freed blocks stay findable until they are handed out again: what is published decides, not ownership.
        index: list[dict[Slot, int]] = [
            {b.published: i for i, b in sorted(m.blocks.items(), reverse=True)} for m in s.memory
        ]
        limit = hit_limit(s, request)
        while limit and not all(self._found(r, m.page, limit, at) for m, at in zip(s.memory, index, strict=True)):
            limit -= 1
        found = [
            tuple(at[r.prefix(end)] for end in range(m.page, limit + 1, m.page))
            for m, at in zip(s.memory, index, strict=True)
        ]
        return tuple(found), limit

    @staticmethod
    def _found(r: Request, page: int, upto: int, at: Mapping[Slot, int]) -> bool:
        return upto % page == 0 and all(r.prefix(end) in at for end in range(page, upto + 1, page))

    def pressure(self, request: str) -> tuple[int, int]:
        """Blocks the request needs, and free blocks, where it is tightest."""
        return squeeze(self.state, request)

    def pick_blocks(self, group: int, count: int, keep: tuple[int, ...]) -> tuple[int, ...]:
        """Free blocks: those that hold no findable page first, so that a victim's prefix lives on for its resume."""
        m = self.state.memory[group]
        free = self.state.free_ids(group) - set(keep)
        return tuple(sorted(free, key=lambda b: (m.block(b).published is not None, b))[:count])

    def withdraw(self, group: int, blocks: tuple[int, ...]) -> None:
        """Blocks about to be written anew stop being findable."""
        old = tuple(b for b in blocks if self.state.memory[group].block(b).published is not None)
        if old:
            self._act(ev.Withdraw(old, len(self.state.plan.granted), group))
