"""From what was seen inside one scheduling call to the grants and acts of a step. Pure: no vLLM in here.

A timeline holds, in real order, a `Grant` for every successful allocation and a dictionary for every act. Which grants
stand is known only at the end, from what the worker is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from preempt_oracle.engines.child import Unsupported
else:
    from child import Unsupported

Act = dict[str, Any]


class Grant:
    """A successful `allocate_slots`: tokens granted from `start`, and the blocks it appended to the table."""

    __slots__ = ("blocks", "hit", "request", "stands", "start", "tokens")

    def __init__(self, request: str, start: int, tokens: int, blocks: list[int], hit: int | None) -> None:
        self.request = request
        self.start = start
        self.tokens = tokens
        self.blocks = blocks
        self.hit = hit  # tokens of the prefix hit, if this was an admission
        self.stands = True


def arrange(timeline: list[Grant | Act], scheduled: dict[str, int]) -> tuple[list[Grant], list[Act]]:
    """The standing grants, and the acts with `after` filled in.

    A grant stands if the worker is told of it. One that was followed by a demotion and not told was rolled back: it
    becomes a `plan` act where it was made, and the demotion's `unplan` gives it back. A demotion without a grant in
    this step loses its `unplan`.
    """
    last: dict[str, Grant] = {}
    for entry in timeline:
        if isinstance(entry, Grant):
            last[entry.request] = entry
        elif entry["act"] == "demote" and entry["request"] in last:
            last[entry["request"]].stands = False
    lost: list[str] = []  # neither told nor demoted
    for name, grant in last.items():
        if name in scheduled:
            grant.stands = True  # also after a demotion: then the worker runs a victim, and that is a finding
        elif grant.stands:
            grant.stands = False
            lost.append(name)
    grants: list[Grant] = []
    acts: list[Act] = []
    planned: dict[str, int] = {}
    for entry in timeline:
        if not isinstance(entry, Grant):
            if entry["act"] != "unplan":
                acts.append({**entry, "after": len(grants)})
            elif entry["request"] in planned:
                acts.append({**entry, "after": len(grants), "tokens": planned.pop(entry["request"])})
        elif entry.stands:
            grants.append(entry)
        else:
            planned[entry.request] = entry.tokens
            acts.append(
                {
                    "act": "plan",
                    "request": entry.request,
                    "after": len(grants),
                    "start": entry.start,
                    "tokens": entry.tokens,
                    "blocks": [entry.blocks],
                }
            )
    for name in lost:
        acts.append({"act": "unplan", "request": name, "after": len(grants), "tokens": planned.pop(name)})
    return grants, acts


def in_order(grants: list[Grant], scheduled: dict[str, int]) -> list[Grant]:
    """The standing grants with the tokens that the worker is told, checked against the order in which it is told.

    Raises `Unsupported` if the two orders differ. A request that the worker is told of although no slots were
    allocated for it is put where the worker has it.
    """
    seen = {grant.request: grant for grant in grants}
    told = list(scheduled)
    if [name for name in told if name in seen] != list(dict.fromkeys(grant.request for grant in grants)):
        raise Unsupported(f"slots were allocated for {[g.request for g in grants]}, the worker is told {told}")
    for name, grant in seen.items():
        grant.tokens = scheduled[name]
    if len(seen) == len(told):
        return grants
    found: list[Grant] = []
    rest = list(grants)
    for name in told:
        if name not in seen:
            found.append(Grant(name, 0, scheduled[name], [], None))
            continue
        while rest:
            found.append(rest.pop(0))
            if found[-1] is seen[name]:
                break
    return found
