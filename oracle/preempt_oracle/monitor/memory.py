"""The blocks of one group, mutable: references, free count, and what each slot was last written for.

What a slot holds is kept as *runs*: a writer's token list (append-only, shared with the request, so a prefix of it
never changes) and the positions written. Equality of prefixes is then a comparison of list slices, exact and in C; no
hashing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preempt_oracle.monitor.request import Req


#: Slots [lo, hi) (token positions) of a block that is page `index` of a writer's table: (tokens, salt, index, lo, hi).
Run = tuple[list[int], str, int, int, int]


class Memory:
    """One group on the device. `refs[b]`: tables that name b.

    `top[b]` is what was written last; `under[b]`, rarely there, what older writes left in other slots, newest last.
    """

    def __init__(self, page: int, total: int, reserved: int) -> None:
        self.page, self.total, self.reserved = page, total, reserved
        self.refs = [0] * total
        self.top: list[Run | None] = [None] * total
        self.under: dict[int, list[Run]] = {}
        self.owner: list[Req | None] = [None] * total  # who was last given the block afresh
        self.pins: dict[int, int] = {}
        self.fences: dict[int, int] = {}
        self.published: dict[int, tuple[list[int], str, int] | None] = {}
        self.nfree = total - reserved
        self.nshared = 0  # blocks with several holders

    # -- ownership ---------------------------------------------------------------------------------------------------

    def is_free(self, b: int) -> bool:
        """May be handed out."""
        return b >= self.reserved and not self.refs[b] and b not in self.pins and b not in self.fences

    def holders(self, b: int) -> int:
        """Tables and pins that name the block."""
        return self.refs[b] + self.pins.get(b, 0)

    def take(self, b: int) -> None:
        """One more table names the block."""
        if self.is_free(b):
            self.nfree -= 1
        self.refs[b] += 1
        self.nshared += self.holders(b) == 2

    def give(self, b: int) -> None:
        """One table less."""
        self.nshared -= self.holders(b) == 2
        self.refs[b] -= 1
        if self.is_free(b):
            self.nfree += 1

    def take_all(self, blocks: Sequence[int], owner: Req) -> None:
        """Blocks join `owner`'s table, afresh."""
        refs, owners = self.refs, self.owner
        for b in blocks:
            if refs[b] or b < self.reserved or self.pins or self.fences:
                self.take(b)
            else:
                refs[b] = 1
                self.nfree -= 1
            owners[b] = owner

    def solitary(self) -> bool:
        """Whether every block that somebody holds is in one table, once."""
        return not (self.nshared or self.pins or self.fences)

    def fresh(self, blocks: Sequence[int]) -> bool:
        """Whether blocks, at least one, may all be handed out, and each stands there once."""
        if self.pins or self.fences or min(blocks) < self.reserved or max(blocks) >= self.total:
            return False
        return not any(map(self.refs.__getitem__, blocks)) and len(set(blocks)) == len(blocks)

    def hand_out(self, blocks: Sequence[int], owner: Req) -> None:
        """Blocks that are `fresh` join `owner`'s table."""
        refs, owners = self.refs, self.owner
        for b in blocks:
            refs[b] = 1
            owners[b] = owner
        self.nfree -= len(blocks)

    def give_all(self, blocks: Sequence[int], owner: Req) -> None:
        """Blocks leave `owner`'s table."""
        refs, owners = self.refs, self.owner
        if self.solitary() and blocks and min(blocks) >= self.reserved:
            for b in blocks:
                refs[b] = 0
                owners[b] = None
            self.nfree += len(blocks)
            return
        for b in blocks:
            self.give(b)
            if owners[b] is owner:
                owners[b] = None

    def pin(self, b: int) -> None:
        """One more pin."""
        if self.is_free(b):
            self.nfree -= 1
        self.pins[b] = self.pins.get(b, 0) + 1
        self.nshared += self.holders(b) == 2

    def unpin(self, b: int) -> None:
        """One pin less; none left if there was none."""
        if b in self.pins:
            self.nshared -= self.holders(b) == 2
            self.pins[b] -= 1
            if not self.pins[b]:
                del self.pins[b]
                self.nfree += self.is_free(b)

    def fence(self, b: int, until: int) -> None:
        """Not to be reused yet."""
        if self.is_free(b):
            self.nfree -= 1
        self.fences[b] = until

    def unfence(self, b: int) -> None:
        """May be reused."""
        if self.fences.pop(b, None) is not None:
            self.nfree += self.is_free(b)

    def free_ids(self) -> set[int]:
        """Blocks `nfree` counts."""
        return {b for b in range(self.reserved, self.total) if self.is_free(b)}

    def shared(self) -> Mapping[int, int]:
        """Holders of each block that has several."""
        if not self.nshared:
            return {}
        count = Counter({b: n for b, n in enumerate(self.refs) if n})
        count.update(self.pins)
        return {b: n for b, n in count.items() if n > 1}

    # -- content -----------------------------------------------------------------------------------------------------

    def write(self, b: int, r: Req, index: int, lo: int, hi: int) -> bool:
        """Slots [lo, hi) of page `index` are written for r's prefix. True if another holder of the block may see it."""
        top = self.top[b]
        if top is not None:
            if top[0] is r.tokens and top[2] == index and top[3] <= lo <= top[4]:
                lo, hi = top[3], max(hi, top[4])
            elif hi - lo < self.page:
                self.under.setdefault(b, []).append(top)
                if len(self.under[b]) > 2 * self.page:
                    self._prune(b)
        if hi - lo == self.page and self.under:
            self.under.pop(b, None)
        self.top[b] = (r.tokens, r.salt, index, lo, hi)
        return self.refs[b] > 1

    def fill(self, b: int, r: Req, index: int, lo: int, hi: int) -> None:
        """All slots of a block that one table names are written, as page `index`."""
        self.top[b] = (r.tokens, r.salt, index, lo, hi)
        if b in self.under:
            del self.under[b]

    def _prune(self, b: int) -> None:
        """Drop older runs of which no slot counts any more."""
        seen: set[int] = set()
        keep = []
        for run in reversed(self.under[b]):
            slots = {p % self.page for p in range(run[3], run[4])}
            if slots - seen:
                keep.append(run)
                seen |= slots
        self.under[b] = keep[::-1]

    def slot_holds(self, b: int, slot: int, tokens: list[int], salt: str, upto: int) -> bool:
        """Whether the slot was last written for exactly the prefix tokens[:upto]."""
        top = self.top[b]
        if top is None:
            return False
        for written, its_salt, index, lo, hi in (top, *reversed(self.under.get(b, ()))):
            at = index * self.page + slot
            if lo <= at < hi:
                if at + 1 != upto or its_salt != salt:
                    return False
                return written is tokens or written[:upto] == tokens[:upto]
        return False

    def page_holds(self, b: int, tokens: list[int], salt: str, first: int, upto: int) -> bool:
        """Whether the block's slots from 0 hold positions [first, upto) of exactly this stream."""
        if upto > len(tokens):
            return False
        top = self.top[b]
        if top is None:
            return False
        written, its_salt, index, lo, hi = top
        if index * self.page == first and lo <= first and hi >= upto and its_salt == salt:
            return written is tokens or written[:upto] == tokens[:upto]
        return all(self.slot_holds(b, p - first, tokens, salt, p + 1) for p in range(first, upto))
