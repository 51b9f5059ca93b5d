"""The baseline: a monitor as one would write it first, a Python loop over the grants with a handful of checks each.

It reads the same lines and keeps the same tables, but looks at fewer rules; what the cohort's columns are worth is how
`check`, with every rule on, compares with it.
"""

from __future__ import annotations

from pathlib import Path

from preempt_oracle.trace import wire


class Wrong(Exception):
    """A check failed."""


def per_grant(path: Path) -> int:
    """Read and check a trace of one group. Returns its grants; raises Wrong."""
    decode = wire.DECODER.decode
    known: dict[str, list[int]] = {}
    computed: dict[str, int] = {}
    tables: dict[str, list[int]] = {}
    holder: dict[int, str] = {}
    running: dict[str, None] = {}
    page = budget = grants = 0
    with path.open("rb") as lines:
        for raw in lines:
            e = decode(raw)
            if isinstance(e, wire.Step):
                for act in e.acts:
                    if isinstance(act, wire.Demote):
                        running.pop(act.request)
                        for b in tables[act.request]:
                            del holder[b]
                        tables[act.request], computed[act.request] = [], 0
                for d in e.blocks:
                    for b in d.blocks:
                        if b in holder:
                            raise Wrong(f"block {b} is held by {holder[b]}")
                        holder[b] = d.request
                    tables[d.request] += d.blocks
                seen: set[str] = set()
                spent = 0
                for request, tokens, start in zip(e.requests, e.tokens, e.start or (), strict=True):
                    table, end = tables[request], start + tokens
                    if request in seen or tokens < 1 or start != computed[request] or end > len(known[request]):
                        raise Wrong(f"the grant of {request}")
                    if end > len(table) * page or holder[table[start // page]] != request:
                        raise Wrong(f"the table of {request}")
                    seen.add(request)
                    computed[request] = end
                    spent += tokens
                    running[request] = None
                grants += len(e.requests)
                if spent > budget or len(seen) < len(running):
                    raise Wrong(f"step {e.frame}")
            elif isinstance(e, wire.Deliver):
                for request, sampled in zip(e.requests, e.tokens, strict=True):
                    if computed[request] != len(known[request]):
                        raise Wrong(f"the token of {request}")
                    known[request] += sampled
            elif isinstance(e, wire.Arrive):
                known[e.request], computed[e.request], tables[e.request] = [*e.prompt], 0, []
            elif isinstance(e, wire.Finish):
                for b in tables.pop(e.request):
                    del holder[b]
                del known[e.request], computed[e.request], running[e.request]
            elif isinstance(e, wire.Header):
                page, budget = e.groups[0].page_size, e.limits.budget
    return grants
