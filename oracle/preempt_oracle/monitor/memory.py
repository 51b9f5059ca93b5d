"""The blocks of one group, mutable: references, free count, and what each slot was last written for (`content`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from preempt_oracle.monitor.content import Held, Run, cut, range_holds, same, slot_holds
from preempt_spec.events import Group

if TYPE_CHECKING:
    from preempt_oracle.monitor.request import Req


class Memory:
    """One group on the device. `refs[b]`: tables that name b; `many`: holders of each block that has several.

    `top[b]` is what was written last; `under[b]`, rarely there, what older writes left in other slots, newest last.
    """

    def __init__(self, group: Group, total: int, reserved: int) -> None:
        self.group, self.page, self.total, self.reserved = group, group.page_size, total, reserved
        self.kind = group.kind
        self.slots = 1 if group.kind == "recurrent" else group.page_size
        self.refs = [0] * total
        self.top: list[Run | None] = [None] * total
        self.under: dict[int, list[Run]] = {}
        self.owner: list[Req | None] = [None] * total  # who was last given the block afresh
        self.pins: dict[int, int] = {}
        self.fences: dict[int, int] = {}
        self.filling: dict[int, int] = {}  # how many copies that no frame is ordered behind fill a block
        self.published: dict[int, tuple[list[int], str, int] | None] = {}
        self.nfree = total - reserved
        self.many: dict[int, int] = {}

    # -- ownership ---------------------------------------------------------------------------------------------------

    def is_free(self, b: int) -> bool:
        """May be handed out."""
        if self.refs[b] or b < self.reserved:
            return False
        return b not in self.pins and b not in self.fences and b not in self.filling

    def special(self) -> bool:
        """Whether anything but tables keeps blocks from being free."""
        return bool(self.pins or self.fences or self.filling)

    def holders(self, b: int) -> int:
        """Tables and pins that name the block."""
        return self.refs[b] + self.pins.get(b, 0)

    def _recount(self, b: int) -> None:
        holders = self.holders(b)
        if holders > 1:
            self.many[b] = holders
        elif b in self.many:
            del self.many[b]

    def take(self, b: int) -> None:
        """One more table names the block."""
        if self.is_free(b):
            self.nfree -= 1
        self.refs[b] += 1
        self._recount(b)

    def give(self, b: int) -> None:
        """One table less."""
        self.refs[b] -= 1
        self._recount(b)
        if self.is_free(b):
            self.nfree += 1

    def take_all(self, blocks: Sequence[int], owner: Req) -> None:
        """Blocks join `owner`'s table, afresh."""
        refs, owners, special = self.refs, self.owner, self.special()
        for b in blocks:
            if refs[b] or b < self.reserved or special:
                self.take(b)
            else:
                refs[b] = 1
                self.nfree -= 1
            owners[b] = owner

    def fresh(self, blocks: Sequence[int]) -> bool:
        """Whether blocks, at least one, may all be handed out, and each stands there once."""
        if self.special() or min(blocks) < self.reserved or max(blocks) >= self.total:
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
        special = self.special()
        if not self.many and not special and blocks and min(blocks) >= self.reserved:
            for b in blocks:  # everything that somebody holds is in one table, once
                refs[b] = 0
                owners[b] = None
            self.nfree += len(blocks)
            return
        for b in blocks:
            if refs[b] == 1 and b >= self.reserved and not special:
                refs[b] = 0
                self.nfree += 1
            else:
                self.give(b)
            if owners[b] is owner:
                owners[b] = None

    def pin(self, b: int) -> None:
        """One more pin."""
        if self.is_free(b):
            self.nfree -= 1
        self.pins[b] = self.pins.get(b, 0) + 1
        self._recount(b)

    def unpin(self, b: int) -> None:
        """One pin less; none left if there was none."""
        if b in self.pins:
            self.pins[b] -= 1
            if not self.pins[b]:
                del self.pins[b]
                self.nfree += self.is_free(b)
            self._recount(b)

    def fence(self, b: int, until: int) -> None:
        """Not to be reused yet."""
        if self.is_free(b):
            self.nfree -= 1
        self.fences[b] = until

    def unfence(self, b: int) -> None:
        """May be reused."""
        if self.fences.pop(b, None) is not None:
            self.nfree += self.is_free(b)

    def filled(self, b: int) -> None:
        """One more copy, in flight, fills the block."""
        if self.is_free(b):
            self.nfree -= 1
        self.filling[b] = self.filling.get(b, 0) + 1

    def arrived(self, b: int) -> None:
        """One less."""
        self.filling[b] -= 1
        if not self.filling[b]:
            del self.filling[b]
            self.nfree += self.is_free(b)

    def free_ids(self) -> set[int]:
        """Blocks `nfree` counts."""
        return {b for b in range(self.reserved, self.total) if self.is_free(b)}

    def shared(self) -> Mapping[int, int]:
        """Holders of each block that has several."""
        return self.many

    # -- content -----------------------------------------------------------------------------------------------------

    def write(self, b: int, r: Req, index: int, lo: int, hi: int) -> bool:
        """Slots [lo, hi) of page `index` are written for r's prefix. True if another holder of the block may see it."""
        top = self.top[b]
        if top is not None:
            if top[0] is r.tokens and top[2] == index and top[3] <= lo <= top[4]:
                lo, hi = top[3], max(hi, top[4])
            elif hi - lo < self.slots:
                self.under.setdefault(b, []).append(top)
                if len(self.under[b]) > 2 * self.slots:
                    self._prune(b)
        if hi - lo == self.slots and self.under:
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
            slots = {p % self.slots for p in range(run[3], run[4])}
            if slots - seen:
                keep.append(run)
                seen |= slots
        self.under[b] = keep[::-1]

    def held(self, b: int) -> Held:
        """All that the block holds."""
        top = self.top[b]
        if top is None:
            return ()
        return (top, *reversed(self.under[b])) if b in self.under else (top,)

    def put(self, b: int, held: Held) -> None:
        """The block holds this, and nothing else."""
        self.under.pop(b, None)
        self.top[b] = held[0] if held else None
        if len(held) > 1:
            self.under[b] = [*reversed(held[1:])]

    def cut(self, blocks: Iterable[int], tokens: list[int], at: int) -> None:
        """What was written for `tokens` from position `at` on will never be known."""
        for b in blocks:
            held = self.held(b)
            if any(run[0] is tokens and run[4] > at for run in held):
                self.put(b, cut(held, tokens, at))

    def slot_holds(self, b: int, slot: int, tokens: list[int], salt: str, upto: int) -> bool:
        """Whether the slot was last written for exactly the prefix tokens[:upto]."""
        return slot_holds(self.held(b), self.slots, slot, tokens, salt, upto)

    def holds(self, b: int, tokens: list[int], salt: str, lo: int, hi: int) -> bool:
        """Whether the block holds positions [lo, hi), all of one page, of exactly this stream."""
        top = self.top[b]
        if top is None:
            return hi <= lo
        written, its_salt, index, first, end = top
        if index == lo // self.slots and first <= lo and hi <= end and its_salt == salt and same(written, tokens, hi):
            return True
        return range_holds(self.held(b), self.slots, tokens, salt, lo, hi)


class Host:
    """The blocks of one group in the host tier: those in use, and what they hold."""

    def __init__(self, group: Group, total: int) -> None:
        self.group, self.total = group, total
        self.slots = 1 if group.kind == "recurrent" else group.page_size
        self.blocks: dict[int, Held] = {}

    def cut(self, tokens: list[int], at: int) -> None:
        """See `Memory.cut`."""
        for b, held in self.blocks.items():
            self.blocks[b] = cut(held, tokens, at)
