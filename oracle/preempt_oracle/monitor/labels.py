"""Pages that become findable, or stop being so, while their requests decode steadily: proved at a glance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from preempt_oracle.monitor.change import publish, withdraw
from preempt_oracle.monitor.shadow import Shadow
from preempt_oracle.trace import wire
from preempt_spec.policies.policy import Publish


def proved(s: Shadow, acts: Sequence[wire.Act]) -> tuple[int, int] | None:
    """How many acts publish, and how many pages are findable anew behind all of them.

    None unless all clauses hold in a step of plain grants.

    A page of a member is what it is published as if its tokens are known and the member is past it, or gets past it in
    this very step: its slots are its own, and were looked at. Its block stays its own, as nobody is preempted.
    """
    if s.policy.publish is not Publish.SCHEDULE:
        return None
    m, requests = s.memory[0], s.requests
    page, total, now = m.page, m.total, s.clock + 1
    published: list[int] = []
    publishing = 0
    for act in acts:
        if type(act) is wire.Publish:
            r = requests.get(act.request)
            if r is None or not r.steady or act.group:
                return None
            table, upto = r.tables[0], min(len(r.tokens), r.base + now)
            for b in act.blocks:
                if b not in table or (table.index(b) + 1) * page > upto:
                    return None
            published += act.blocks
            publishing += 1
        elif type(act) is wire.Withdraw and not act.group:
            if act.blocks and max(act.blocks) >= total:
                return None
            if published:
                published = [b for b in published if b not in act.blocks]
        else:
            return None
    return publishing, len(published)


def apply(s: Shadow, acts: Sequence[wire.Act]) -> None:
    """Make what was proved so."""
    m = s.memory[0]
    for act in acts:
        if type(act) is wire.Publish:
            r = s.requests[act.request]
            table = r.tables[0]
            for b in act.blocks:
                m.published[b] = (r.tokens, r.salt, (table.index(b) + 1) * m.page)
        elif type(act) is wire.Withdraw:
            for b in act.blocks:
                m.published.pop(b, None)


def labels(acts: Sequence[wire.Act], at: int) -> Sequence[wire.Publish | wire.Withdraw]:
    """The acts from here on that only make pages findable, or stop that."""
    run: list[wire.Publish | wire.Withdraw] = []
    for act in acts[at:]:
        if type(act) is wire.Publish or type(act) is wire.Withdraw:
            run.append(act)
        else:
            break
    return run


def commute(s: Shadow, e: wire.Step, acts: Iterable[wire.Act], new: Mapping[str, Sequence[int]]) -> bool:
    """Whether these acts are such, hold, and are the same wherever they stand among grants.

    `new`: blocks that join tables in this step by a grant that is not made yet.
    """
    if s.policy.publish is not Publish.SCHEDULE:
        return False
    m = s.memory[0]
    for act in acts:
        if type(act) is wire.Publish and not act.group:
            r = s.requests.get(act.request)
            if r is None:
                return False
            table, fresh = r.tables[0], new.get(act.request, ())
            for b in act.blocks:
                if b in fresh:
                    if act.request not in e.requests[: act.after]:
                        return False  # it is told before the grant that brings it
                elif b not in table:
                    return False
        elif type(act) is not wire.Withdraw or act.group or max(act.blocks, default=0) >= m.total:
            return False
    return True


def make(s: Shadow, acts: Iterable[wire.Publish | wire.Withdraw]) -> None:
    """Make them so, in order."""
    for act in acts:
        if type(act) is wire.Publish:
            publish(s, act)
        elif type(act) is wire.Withdraw:
            withdraw(s, act)


def publishing(acts: Iterable[wire.Act]) -> int:
    """How many of them make pages findable."""
    return sum(type(act) is wire.Publish for act in acts)
