"""vLLM's block pool as far as it decides which block is next: the free queue, and who is found by which prefix.

The specification leaves block ids and the order of evictions open; to predict an engine they must be known. This is
what vLLM 0.31.0 and 0.33.0 do, in v1/core/block_pool.py (`BlockPool`, `BlockHashToBlockMap`) and kv_cache_utils.py
(`FreeKVCacheBlockQueue`). Nothing of it decides who is served: see `predicted`.
"""

from __future__ import annotations

from collections.abc import Iterable

from preempt_spec.memory import Slot


class Blocks:
    """The free blocks, next one first, and the blocks that hold a findable page, oldest registration first."""

    def __init__(self, reserved: int, total: int) -> None:
        """All blocks but the reserved ones (the null block) are free, in the order of their ids."""
        self.free = list(range(reserved, total))
        self._found: dict[Slot, list[int]] = {}
        self._pages: dict[int, Slot] = {}

    def find(self, page: Slot) -> int | None:
        """The block that a hit on this page takes: of several with the same page, the one registered first."""
        holders = self._found.get(page)
        return holders[0] if holders else None

    def register(self, block: int, page: Slot) -> None:
        """A block becomes findable. Other blocks with the same page stay findable: vLLM merges none."""
        self._pages[block] = page
        self._found.setdefault(page, []).append(block)

    def is_registered(self, block: int) -> bool:
        """Whether a block is findable."""
        return block in self._pages

    def forget(self, block: int) -> None:
        """A block is findable no more."""
        page = self._pages.pop(block, None)
        if page is not None:
            self._found[page].remove(block)
            if not self._found[page]:
                del self._found[page]

    def touch(self, blocks: Iterable[int]) -> None:
        """A hit takes blocks out of the free queue, wherever they stand in it."""
        for b in blocks:
            if b in self.free:
                self.free.remove(b)

    def give_back(self, blocks: Iterable[int]) -> None:
        """Blocks that nobody holds any more, last page of the table first.

        Unregistered ones go to the front, to be used again first; registered ones to the end, to be evicted last.
        """
        order = [*blocks]
        plain = [b for b in order if b not in self._pages]
        self.free = [*plain, *self.free, *(b for b in order if b in self._pages)]
