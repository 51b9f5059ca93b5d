"""What the slots of a block hold, as *runs*: a writer's token list and the positions of it that were written.

The list is append-only and shared with its request, so a prefix of it never changes, and what was written for tokens
that still fly becomes known by itself when they are appended. What will never be known stands in a list that does not
grow any more, or is cut away. Equality of prefixes is a comparison of list slices, exact and in C; no hashing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

#: Slots [lo, hi) (token positions) of a block that is page `index` of a writer's table: (tokens, salt, index, lo, hi).
Run = tuple[list[int], str, int, int, int]
Held = tuple[Run, ...]  # all that a block holds, what was written last first

#: The tokens of what nothing can be told of. Never appended to.
NOTHING: Final[list[int]] = []


def same(written: list[int], tokens: list[int], upto: int) -> bool:
    """Whether both lists agree up to a length, or are one list that will be that long."""
    return written is tokens or (upto <= len(tokens) and written[:upto] == tokens[:upto])


def slot_holds(runs: Iterable[Run], slots: int, slot: int, tokens: list[int], salt: str, upto: int) -> bool:
    """Whether one of a block's `slots` was last written for exactly the prefix tokens[:upto]."""
    for written, its_salt, index, lo, hi in runs:
        at = index * slots + slot
        if lo <= at < hi:
            return at + 1 == upto and its_salt == salt and same(written, tokens, upto)
    return False


def range_holds(runs: Sequence[Run], slots: int, tokens: list[int], salt: str, lo: int, hi: int) -> bool:
    """Whether positions [lo, hi), all of one page, hold this stream."""
    if runs:
        written, its_salt, index, first, end = runs[0]
        if index == lo // slots and first <= lo and hi <= end and its_salt == salt and same(written, tokens, hi):
            return True
    return all(slot_holds(runs, slots, p % slots, tokens, salt, p + 1) for p in range(lo, hi))


def cut(runs: Iterable[Run], tokens: list[int], at: int) -> Held:
    """The runs without what was written for `tokens` from position `at` on: nothing can be told of those slots."""
    out: list[Run] = []
    for run in runs:
        written, salt, index, lo, hi = run
        if written is tokens and hi > at:
            if lo < at:
                out.append((written, salt, index, lo, at))
            out.append((NOTHING, salt, index, max(lo, at), hi))
        else:
            out.append(run)
    return tuple(out)
