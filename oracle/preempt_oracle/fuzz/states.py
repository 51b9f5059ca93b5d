"""Abstract states: what a scheduler was seen in, with sizes cut down to none, one, several.

Two steps are in the same abstract state if a reader would describe them alike. How many were reached is an honest
measure of how far a search came, where a number of workloads is none; and a workload that reached a new one is worth
changing a little and trying again.
"""

from __future__ import annotations

from preempt_oracle.trace import wire
from preempt_spec.view import Fate, View

#: What an abstract state consists of, in the order of its numbers, and how far each is counted.
PARTS = {
    "running": 3,
    "waiting, new": 2,
    "waiting, preempted": 2,
    "swapped": 2,
    "free blocks": 2,  # none: the next growth preempts; one: it just does not
    "victims in the step": 2,
    "grants taken back": 1,
    "resumed": 2,
    "behind a hit": 1,
    "in mid-prefill": 1,
    "at the end of their last block": 2,  # the near miss: one token more, and they need a block
    "frames in flight": 2,
    "stale outputs due": 1,
    "blocks shared": 1,
    "host blocks free": 2,
    "copies in flight": 1,
    "drafts granted": 1,
    "paused": 1,
}

Abstract = tuple[int, ...]


def abstract(s: View, step: wire.Step) -> Abstract:
    """The state behind a step."""
    new = preempted = 0
    for name in s.waiting:
        if s.request(name).preempted:
            preempted += 1
        else:
            new += 1
    prefilling = full = 0
    page = s.pages[0]
    for name in s.running:
        r = s.request(name)
        computed = r.computed
        if computed < len(r.tokens) - 1:
            prefilling = 1
        if computed % page == 0:
            full += 1
    victims = undone = 0
    for act in step.acts:
        kind = type(act)
        if kind is wire.Demote:
            victims += 1
        elif kind is wire.Unplan:
            undone = 1
    flying = len(s.frames)
    stale = flying > 0 and any(x.fate is not Fate.LIVE for frame in s.frames.values() for x in frame.values())
    free, hosts = s.free(0), s.host_extent(0)
    return (
        min(len(s.running), 3),
        min(new, 2),
        min(preempted, 2),
        min(len(s.swapped), 2),
        min(free, 2),
        min(victims, 2),
        undone,
        min(len(step.resumed), 2),
        int(any(h.tokens for h in step.hits)),
        prefilling,
        min(full, 2),
        min(flying, 2),
        int(stale),
        int(bool(s.shared(0))),
        min(s.host_free(0), 2) if hosts else 0,
        int(bool(s.copies)),
        int(bool(step.drafts)),
        int(s.paused),
    )
