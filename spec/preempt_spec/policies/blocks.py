"""Blocks: how many it takes, and how many can be had. All counts are blocks of one group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from preempt_spec.events import Group
from preempt_spec.policies.policy import Idle, Release
from preempt_spec.view import HOLE, View


def blocks_for(tokens: int, page: int) -> int:
    """Blocks that hold this many tokens."""
    return -(-tokens // page)


def pages_for(group: Group, tokens: int) -> int:
    """Entries of a request's table that this many tokens take in a group."""
    return min(tokens, 1) if group.kind == "recurrent" else blocks_for(tokens, group.page_size)


def blocks_at_once(group: Group, tokens: int) -> int:
    """Blocks of a group that a request of this many tokens needs at once, at the least: a window moves on."""
    pages = pages_for(group, tokens)
    return min(pages, blocks_for(group.window, group.page_size) + 1) if group.kind == "sliding" else pages


def shared_pages(group: Group, hit: int) -> int:
    """Leading blocks of an admission that a prefix hit brings. A recurrent state is never shared: it is overwritten."""
    return 0 if group.kind == "recurrent" else blocks_for(hit, group.page_size)


def table_room(groups: Sequence[Group], tables: Sequence[Sequence[int]], most: int) -> int:
    """Tokens, at most `most`, that fit in a request's tables: the group with least room decides."""
    return min(
        most if group.kind == "recurrent" and table else len(table) * group.page_size * (group.kind != "recurrent")
        for table, group in zip(tables, groups, strict=True)
    )


def lazily_held(s: View, group: int, but: str = "") -> set[int]:
    """Blocks that only waiting requests hold, `but` apart: under a lazy release, whoever needs them takes them back."""
    if s.policy.release is not Release.LAZY:
        return set()
    names = Counter(b for w in s.waiting if w != but for b in s.request(w).tables[group])
    if not names:
        return set()
    shared = s.shared(group)
    return {b for b, n in names.items() if shared.get(b, 1) == n and b != HOLE}


def supply(s: View, group: int) -> int:
    """Blocks that a running request can get without a victim: free ones, and those that wait to be taken back."""
    return s.free(group) + len(lazily_held(s, group))


def room(s: View, group: int) -> int:
    """Free blocks that can be had at once, where findable ones cannot."""
    return s.free(group) - (s.idle(group) if s.policy.idle is Idle.STARVED else 0)


def swept(s: View) -> bool:
    """Whether this step gave up what was findable to make room."""
    return s.plan.swept and s.policy.idle is Idle.STARVED
